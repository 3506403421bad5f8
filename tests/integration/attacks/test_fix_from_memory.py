"""Attacks on ``fix --from memory``: a PATCH that must not be sent, or did nothing, a value that is lost."""

from __future__ import annotations

import base64
import copy
import json
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from etcdfix.apiserver import client as api_client
from etcdfix.apiserver.client import NoReply, RefusalReason
from etcdfix.copies.rescued import file_name
from etcdfix.encryption.config import NOT_DEPLOYED
from etcdfix.model.model import GroupResource, digest_of
from etcdfix.remediation import patcher
from etcdfix.remediation.memory import patch as patch_module
from etcdfix.remediation.saved_objects import RescueStore
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver import Answer, Request, StandIn
from tests.support.apiserver.https import Listener
from tests.support.change_runs import Ran
from tests.support.etcd_proxy import Refusal
from tests.support.healing import (
    DATA,
    NEW,
    OLD,
    RESOURCES,
    THIRD,
    LoseKey,
    LostKeyCluster,
    beside,
    lost_key_kine_cluster,
)
from tests.support.kms_plugin import KMSPlugin
from tests.support.kms_plugin import Refusal as PluginRefusal
from tests.support.lossy_etcd import LossyProxy
from tests.support.objects import (
    IDENTITY,
    KEY_2,
    KMS_V2,
    aescbc,
    config_map,
    configuration_yaml,
    json_object,
    provider,
    secret,
)

pytestmark = pytest.mark.etcd

Lost = Callable[..., AbstractContextManager[LostKeyCluster]]


@pytest.fixture(params=["kine"])
def lost(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    authority: CertificateAuthority,
) -> Lost:
    """A cluster on kine, which needs no server of its own, unless a test says etcd."""
    if request.param == "kine":
        return lambda *names: lost_key_kine_cluster(tmp_path, capfd, authority, names)
    make: LoseKey = request.getfixturevalue("lose_key")
    return lambda *names: make(names)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is busy is asked again at once."""
    monkeypatch.setattr(api_client, "sleep", lambda _seconds: None)


@pytest.fixture
def cluster(lost: Lost) -> Iterator[LostKeyCluster]:
    with lost("one", "two", "three") as cluster:
        cluster.rescue()
        cluster.p1.requests.clear()
        yield cluster


on_etcd = pytest.mark.parametrize("lost", ["etcd"], indirect=True)
"""For what kine has not: an address that can fail, a command that writes; kine keeps the value before the last one."""
on_both = pytest.mark.parametrize("lost", ["etcd", "kine"], indirect=True)

SHOP = "/api/v1/namespaces/shop/secrets"
PATCHED = f"{SHOP}/one?fieldManager=etcdfix"
SAYS_NOTHING = Answer(403, b'{"kind": "Status"}')
OVERLOAD = Answer(429, b"Too many requests, please try again later.\n", "text/plain")
KEY_3 = b"abcdefghijklmnop"
OURS = provider("aescbc", key2=KEY_2)
OTHER = "99999999-2222-3333-4444-555555555555"


def _refused(cluster: LostKeyCluster, *words: str, rule: str | None, says: str = "") -> dict[str, Any]:
    """Nothing is sent and nothing is written; what the refusal names is a key, a uid or an address."""
    with cluster.unwritten():
        refusal = cluster.told(*(words or ("one",)), code=4)["refusal"]
    assert refusal["rule"] == rule, refusal
    assert says in refusal["message"], refusal
    assert cluster.patches() == []
    return dict(refusal)


def _at_patch(cluster: LostKeyCluster, action: Callable[[Request], object]) -> None:
    done: list[Request] = []

    def arrived(request: Request) -> None:
        if request.method == "PATCH" and not done:
            done.append(request)
            action(request)

    cluster.p1.before.append(arrived)


def _unknown(cluster: LostKeyCluster) -> None:
    """Leave an intent open: the server died before it wrote."""
    _at_patch(cluster, lambda _: cluster.p1.die_after(0))
    with cluster.unwritten():
        told = cluster.told("one", code=3)
    assert told["result"] == "unknown"
    assert any("log settle" in step["command"] for step in told["follow_ups"])


def _settled(cluster: LostKeyCluster, *arguments: str, configured: bool = True) -> Ran:
    common = [*cluster.where, "--etcd-prefix", cluster.prefix]
    common += ["--encryption-config", str(cluster.config)] if configured else []
    return cluster.run("log", "settle", *common, *arguments, str(cluster.log))


def _tell_nothing(*servers: StandIn) -> None:
    for server in servers:
        server.behaviour.instead["/metrics"] = SAYS_NOTHING


def _instead(path: str, answer: Answer) -> Prepare:
    return lambda one, _: one.p1.behaviour.instead.update({path: answer})


def _configure(one: LostKeyCluster, *providers: Any, resources: tuple[str, ...] = RESOURCES) -> None:
    one.config.write_bytes(configuration_yaml(*providers, resources=resources))
    one.p1.reload(one.config.read_bytes())


def _index(one: LostKeyCluster, edit: Callable[[dict[str, Any]], object], *names: str) -> None:
    """Edit the lines of saved copies; a line that is edited to None goes."""
    path = one.saved / "index.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    edited = [edit(line) if not names or line["name"] in names else line for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in edited if line))


def _unsaved(one: LostKeyCluster, *names: str) -> None:
    _index(one, lambda _: None, *names)


def _spoil_saved(one: LostKeyCluster, spoil: Callable[[Path], object], *names: str) -> None:
    for line in map(json.loads, (one.saved / "index.jsonl").read_text().splitlines()):
        if not names or line["name"] in names:
            spoil(one.saved / line["file"])


def _beside(one: LostKeyCluster, stack: ExitStack, *, configuration: bytes = NEW, runs: bool = True) -> str:
    """Let the first server list a second one; return its address."""
    with ExitStack() as here:
        p2 = here.enter_context(beside(one, configuration))
        if runs:
            stack.push(here.pop_all())
    return p2.url


def _unserved(one: LostKeyCluster, _: ExitStack) -> None:
    one.place(one.key("shop/odd", "configmaps"), aescbc(config_map("odd"), KEY_3, "key3"))
    place = "/api/v1/namespaces/shop/configmaps/odd"
    one.p1.behaviour.instead[f"{place}?resourceVersion=0"] = Answer(404, b"404 page not found\n")


def _nowhere(prepare: Callable[[LostKeyCluster], object]) -> Prepare:
    def act(one: LostKeyCluster, _: ExitStack) -> None:
        prepare(one)
        one.p1.lose_cache("secrets")

    return act


def _differing(one: LostKeyCluster, stack: ExitStack) -> None:
    """Two servers have different objects in memory."""
    revision = str(one.mod_revision(one.key("shop/one")))
    metadata = {"name": "one", "namespace": "shop", "uid": "another", "resourceVersion": revision}
    body = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}
    p2 = stack.enter_context(beside(one, NEW))
    p2.behaviour.instead[f"{SHOP}/one?resourceVersion=0"] = Answer(200, json.dumps(body).encode())


def _dying(one: LostKeyCluster, *, cached: bool) -> None:
    one.p1.reload(OLD)
    when = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"]}
    one.p1.create("v1", "Secret", "dying", "shop", type="Opaque", data={"p": DATA}, metadata=when)
    one.p1.wait()
    one.p1.reload(NEW)
    one.rescue("dying")
    if not cached:
        one.p1.lose_cache("secrets")


def _behind(one: LostKeyCluster, _: ExitStack) -> None:
    """Another server wrote it since, under a key that nobody here has: the newest write is not in memory."""
    one.p1.behaviour.given_up_after = 60
    one.place(one.key("shop/one"), aescbc(secret("one"), KEY_3, "key3"))


def _healed(one: LostKeyCluster, _: ExitStack) -> None:
    assert one.fix("one").code == 0
    one.p1.requests.clear()


Prepare = Callable[[LostKeyCluster, ExitStack], object]


class Situation(NamedTuple):
    """What is prepared, by which rule it is refused, what the message names (the address that preparing returns)."""

    prepare: Prepare
    rule: str | None
    says: str = ""
    words: tuple[str, ...] = ("one",)


KUBE_SYSTEM = {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "other"}}
REFUSED = {
    "a server reads it": Situation(lambda one, _: one.p1.reload(OLD), "configuration-wrong"),
    "one of two servers has not loaded the new key": Situation(
        partial(_beside, configuration=OLD), "configuration-wrong"
    ),
    "ours is another file": Situation(lambda one, _: one.config.write_bytes(THIRD), "unchecked-server"),
    "nothing would be encrypted": Situation(lambda one, _: _configure(one, IDENTITY, OURS), "write-key"),
    "a kind that the configuration does not cover": Situation(
        lambda one, _: _configure(one, OURS, IDENTITY, resources=("configmaps",)), "write-key"
    ),
    "a plugin that is not asked proves nothing": Situation(
        lambda one, _: one.config.write_bytes(configuration_yaml(KMS_V2, OURS, resources=RESOURCES)), "write-key",
        words=("one", "--no-kms"),
    ),
    "another cluster": Situation(
        _instead("/api/v1/namespaces/kube-system", Answer(200, json.dumps(KUBE_SYSTEM).encode())), None
    ),
    "a damaged value": Situation(
        lambda one, _: one.place(one.key("shop/broken"), aescbc(secret("broken"), KEY_2, "key2")[:-21]),
        "not-from-memory", "value-truncated", ("broken",),
    ),
    "a value with a lease goes by itself": Situation(
        lambda one, _: one.grant(one.key("shop/leased"), aescbc(secret("leased"), KEY_3, "key3")), "not-from-memory",
        "lease", ("leased",),
    ),
    "a name that no request can carry": Situation(
        lambda one, _: one.place(one.key("shop/a%2fb"), aescbc(secret("a%2fb"), KEY_3, "key3")), "not-from-memory",
        words=("a%2fb",),
    ),
    "a kind that no server serves": Situation(
        _unserved, "not-from-memory", "configmaps", ("/registry/configmaps/shop/odd",)
    ),
    "a saved copy that was changed": Situation(
        lambda one, _: _spoil_saved(one, lambda path: path.write_bytes(path.read_bytes() + b" ")), "not-rescued"
    ),
    "a saved copy of another object": Situation(
        lambda one, _: _index(one, lambda line: line | {"uid": OTHER}), "other-object", OTHER
    ),
    "a saved copy of another cluster": Situation(
        lambda one, _: _index(one, lambda line: line | {"cluster_uid": OTHER}), "other-cluster", OTHER
    ),
    "the copy of another object is of another cluster": Situation(
        lambda one, _: _index(one, lambda line: line | {"cluster_uid": OTHER}, "two"), "not-rescued", "shop/two"
    ),
    "the copy of another object is gone, and the index names it": Situation(
        lambda one, _: _spoil_saved(one, Path.unlink, "two"), "not-rescued", "shop/two"
    ),
    "another object of the kind was not saved": Situation(
        lambda one, _: _unsaved(one, "two"), "not-rescued", "shop/two"
    ),
    "it was not saved itself": Situation(lambda one, _: _unsaved(one, "one"), "not-rescued", "shop/one"),
    "a wrong uid in the index, and no server gives it": Situation(
        _nowhere(lambda one: _index(one, lambda line: line | {"uid": OTHER})), "not-rescued"
    ),
    "saved copies that are gone, and no server gives it": Situation(
        _nowhere(lambda one: _spoil_saved(one, Path.unlink)), "not-rescued"
    ),
    "no saved copy, and no server gives it": Situation(
        _nowhere(lambda one: _unsaved(one, "one")), "not-from-memory"
    ),
    "a server has loaded another file": Situation(partial(_beside, configuration=THIRD), "unchecked-server"),
    "a server does not answer": Situation(partial(_beside, runs=False), "unchecked-server"),
    "a server without the right to read": Situation(
        lambda one, _: one.p1.behaviour.denied.add(("get", "secrets")), "unchecked-server"
    ),
    "a server without the right to patch": Situation(
        lambda one, _: one.p1.behaviour.denied.add(("patch", "secrets")), None
    ),
    "a readable value": Situation(_healed, "readable"),
    "it is being deleted": Situation(
        lambda one, _: _dying(one, cached=True), "not-from-memory", "deletionTimestamp", ("dying",)
    ),
    "it was being deleted, and no server gives it": Situation(
        lambda one, _: _dying(one, cached=False), "not-from-memory", "deletionTimestamp", ("dying",)
    ),
    "two servers have different objects in memory": Situation(_differing, "other-object"),
    "a cache that is behind": Situation(_behind, "not-from-memory"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_request_is_sent_for(cluster: LostKeyCluster, case: str) -> None:
    situation = REFUSED[case]
    with ExitStack() as stack:
        named = situation.prepare(cluster, stack)
        says = named if isinstance(named, str) and named.startswith("https") else situation.says
        _refused(cluster, *situation.words, rule=situation.rule, says=says)


@on_both
def test_nothing_is_healed_before_it_is_saved(cluster: LostKeyCluster) -> None:
    given = ["--from", "memory", "--kubeconfig", str(cluster.kubeconfig), "--yes"]
    ran = cluster.run("fix", cluster.key("shop/one").decode(), *given, *cluster.common())
    assert (ran.code, cluster.patches()) == (4, [])  # nobody names an index
    assert "etcdfix rescue secrets " in ran.err
    assert cluster.fix("one").code == 0
    (cluster.saved / "index.jsonl").unlink()
    assert cluster.fix("two").code == 2  # there is no index at all
    assert len(cluster.patches()) == 1


@on_etcd
def test_nothing_names_the_cluster(cluster: LostKeyCluster) -> None:
    cluster.remove(cluster.key("kube-system", "namespaces"))
    cluster.etcd.compact()
    refusal = _refused(cluster, rule="unknown-cluster")
    assert "--main-endpoints" in refusal["next_step"]
    assert "--accept unknown-cluster" not in refusal["next_step"], "nothing accepts it here"


def test_no_server_at_all(cluster: LostKeyCluster) -> None:
    cluster.p1.die_after(0)
    with cluster.unwritten():
        assert cluster.told("one", code=5)["result"] == "failed"


@pytest.mark.parametrize(
    "answer", [OVERLOAD, SAYS_NOTHING, Answer(504), Answer(200, b"<html></html>", "text/html")]
)
def test_another_object_of_which_a_server_does_not_say_whether_it_has_it(
    cluster: LostKeyCluster, answer: Answer
) -> None:
    _unsaved(cluster, "two")
    cluster.p1.behaviour.instead[f"{SHOP}/two?resourceVersion=0"] = answer
    _refused(cluster, rule="not-rescued", says="shop/two")


@pytest.mark.parametrize(
    ("place", "status", "rule"),
    [("", 429, "unchecked-server"), ("", 504, "unchecked-server"), ("?resourceVersion=0", 429, "not-from-memory")],
)  # fmt: skip
def test_a_server_that_has_too_much_to_do(
    cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch, place: str, status: int, rule: str
) -> None:
    """It is asked again before anything is given up."""
    waited: list[float] = []
    instead = cluster.p1.behaviour.instead
    monkeypatch.setattr(api_client, "sleep", waited.append)
    instead[f"{SHOP}/one{place}"] = OVERLOAD if status == 429 else Answer(status)
    assert _refused(cluster, rule=rule)["next_step"].startswith("run the same again in a moment")
    assert waited

    monkeypatch.setattr(api_client, "sleep", lambda _seconds: instead.clear())
    assert cluster.fix("one", "--dry-run").code == 0


def test_a_server_of_another_etcd(cluster: LostKeyCluster) -> None:
    with StandIn(cluster.p1.authority, configuration=NEW) as p2:
        uid = {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": cluster.p1.uid}}
        p2.behaviour.instead["/api/v1/namespaces/kube-system"] = Answer(200, json.dumps(uid).encode())
        flags = ["--server", p2.url, "--accept", f"unchecked-server={p2.url}"]
        _refused(cluster, "one", *flags, rule="other-cluster", says=p2.url)


# -- which key servers write with


def test_a_server_without_the_write_key_ends_it_after_the_first(cluster: LostKeyCluster) -> None:
    """It reads neither the old value nor the new one: only the first object shows it, and no other is tried."""
    with beside(cluster, THIRD) as p2:
        _tell_nothing(p2)
        told = cluster.told("one", code=3)
        assert told["result"] == "fixed"
        assert any(p2.url in warning for warning in told["warnings"])
        with cluster.unwritten():
            told = cluster.told("two", code=4)
    assert (told["refusal"]["rule"], p2.url in told["refusal"]["message"]) == ("write-key", True)
    assert len(cluster.patches()) == 1


@pytest.mark.parametrize(
    ("ours", "result"),
    [((provider("aescbc", key3=KEY_3, key2=KEY_2), IDENTITY), "fixed"), ((provider("aescbc", key3=KEY_3),), "anomaly")],
    ids=["and we have it", "and we do not have it"],
)  # fmt: skip
def test_the_server_writes_with_another_key_than_ours(
    cluster: LostKeyCluster, ours: tuple[Any, ...], result: str
) -> None:
    _tell_nothing(cluster.p1)
    cluster.config.write_bytes(configuration_yaml(*ours, resources=RESOURCES))
    told = cluster.told("one", code=3)
    assert told["result"] == result
    assert bool(told["warnings"]) or result == "anomaly"
    assert len(cluster.patches()) == 1


@pytest.mark.parametrize("runs", [True, False])
def test_a_server_that_is_accepted_by_its_address(cluster: LostKeyCluster, *, runs: bool) -> None:
    """It has loaded another file, or does not answer; one that runs is the test of it, and shows it."""
    with ExitStack() as stack:
        url = _beside(cluster, stack, configuration=THIRD, runs=runs)
        accepted = f"--accept unchecked-server={url}"
        assert accepted in _refused(cluster, rule="unchecked-server", says=url)["next_step"]
        told = cluster.told("one", *accepted.split(), code=3 if runs else 0)
    assert told["result"] == "fixed"
    assert any(url in warning for warning in told["warnings"]) or not runs
    assert any(accepted in event.accepted for event in cluster.records())


def test_a_server_that_is_accepted_and_not_there_is_told(cluster: LostKeyCluster) -> None:
    nobody = "--accept unchecked-server=https://typo:6443"
    assert nobody in cluster.fix("one", *nobody.split(), "--dry-run").err


@pytest.mark.parametrize("rule", ["unchecked-server", "undeployed-write-key"])
def test_another_file_counts_once_the_server_writes_with_it(cluster: LostKeyCluster, rule: str) -> None:
    """A line more is another file, and one that etcdfix made may be nowhere yet."""
    if rule == "unchecked-server":
        cluster.config.write_bytes(NEW + b"\n")
    else:
        cluster.config.write_bytes(f"# merge.{NOT_DEPLOYED}\n".encode() + NEW)
        _tell_nothing(cluster.p1)
    _refused(cluster, rule=rule)
    cluster.p1.create("v1", "Secret", "canary", "shop", data={"password": DATA})
    assert cluster.told("one")["result"] == "fixed"


# -- while the request is on its way


def test_the_key_moves_before_the_request(cluster: LostKeyCluster) -> None:
    key, other = cluster.key("shop/one"), aescbc(secret("one"), KEY_3, "key3")

    def asked(request: Request) -> None:
        if "selfsubjectaccessreviews" in request.path and cluster.stored(key) != other:
            cluster.place(key, other)

    cluster.p1.behaviour.given_up_after = 60
    cluster.p1.before.append(asked)
    told = cluster.told("one", code=4)
    assert told["refusal"]["rule"] in {"moved", "not-from-memory"}
    assert (cluster.patches(), cluster.stored(key)) == ([], other)


def _place(value: bytes | None) -> Action:
    """Write the key at the PATCH, and have the server say that it did."""

    def act(one: LostKeyCluster, _: Request) -> None:
        key = one.key("shop/one")
        one.place(key, value) if value else one.remove(key)

    return act


def _answer(status: int, body: bytes = b"{}") -> Action:
    return lambda one, _: one.p1.behaviour.instead.update({PATCHED: Answer(status, body)})


def _both(*actions: Action) -> Action:
    def act(one: LostKeyCluster, request: Request) -> None:
        for action in actions:
            action(one, request)

    return act


def _unannotated(one: LostKeyCluster, _: Request) -> None:
    """The value opens, and nothing shows that this request wrote it."""
    metadata = {"name": "one", "namespace": "shop", "uid": one.uid("one")}
    one.place(
        one.key("shop/one"), aescbc(json_object("v1", "Secret", "one", metadata=metadata), KEY_2, "key2")
    )


Action = Callable[[LostKeyCluster, Request], object]
QUOTING = json.dumps({"kind": "Status", "message": f"the object: {DATA} never-to-be-shown"}).encode()
HEALED = aescbc(secret("one"), KEY_2, "key2")
AT_PATCH: dict[str, tuple[Action, str]] = {
    "the key is written, lost": (_place(aescbc(secret("one"), KEY_3, "key3")), "moved"),
    "the key is written, healed": (_place(HEALED), "moved"),
    "the key is deleted": (_place(None), "moved"),
    "the server is restarted": (lambda one, _: one.p1.restart(), "server-refused"),
    "admission forbids it": (lambda one, _: one.p1.behaviour.refuse.add("shop"), "server-refused"),
    **{f"answered {status}": (_answer(status, QUOTING), "server-refused") for status in (403, 404, 409, 422, 500)},
    # A server at its time-out, or a balancer before it, answers while the write is still on its way.
    **{f"answered {status}": (_answer(status, QUOTING), "unknown") for status in (408, 502, 503, 504)},
    "200, and nothing is written": (_answer(200), "anomaly"),
    "another object stands there": (_both(_place(HEALED), _answer(200)), "anomaly"),
    "the annotation is not there": (_both(_unannotated, _answer(200)), "applied-or-gone"),
    "the saved copies are gone": (lambda one, _: _spoil_saved(one, Path.unlink), "fixed"),
    "the server dies after it wrote": (lambda one, _: one.p1.die_after(1, answering=False), "fixed"),
}  # fmt: skip


@pytest.mark.parametrize("case", AT_PATCH)
def test_what_happens_while_the_request_is_on_its_way(cluster: LostKeyCluster, case: str) -> None:
    """The body of no answer is shown; what is refused has written nothing, and what is not known stays open."""
    action, expected = AT_PATCH[case]
    key = cluster.key("shop/one")
    before: list[bytes | None] = []

    def act(request: Request) -> None:
        action(cluster, request)
        before.append(cluster.stored(key))

    _at_patch(cluster, act)
    refused = expected in {"moved", "server-refused"}
    told = cluster.told("one", code=4 if refused else 3)
    assert (
        told["refusal"]["rule" if refused else "code"] == expected if refused else told["result"] == expected
    )
    assert cluster.outcomes() == ["refused" if refused else expected]
    assert len(cluster.patches()) == 1
    if expected != "fixed":
        assert cluster.stored(key) == before[0]
    if expected == "unknown":
        assert any("log settle" in step["command"] for step in told["follow_ups"])
        cluster.p1.behaviour.instead.clear()
        assert "not-applied" in _settled(cluster).out


def test_no_second_server_is_asked_for_what_the_first_refused(cluster: LostKeyCluster) -> None:
    with beside(cluster, OLD) as p2:
        p2.wait()
        p2.reload(NEW)
        for server in (cluster.p1, p2):
            server.behaviour.refuse.add("shop")
        with cluster.unwritten():
            assert cluster.told("one", code=4)["refusal"]["rule"] == "server-refused"
        assert len([*cluster.patches(), *cluster.patches(p2)]) == 1


def test_the_cache_ends_between_two_requests(cluster: LostKeyCluster) -> None:
    """The process still holds the objects: the second is written with the uid of its saved copy."""
    _at_patch(cluster, lambda _: cluster.p1.lose_cache("secrets"))
    assert [cluster.told(name)["result"] for name in ("one", "two", "three")] == ["fixed"] * 3
    assert cluster.p1.methods == {"GET", "PATCH"}
    assert all("dryRun" not in request.path for request in cluster.p1.requests)


def test_an_answer_without_an_end(cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the last one never does."""
    monkeypatch.setattr(patcher, "ANSWER_SECONDS", 0.3)

    def pieces() -> Iterator[bytes]:
        for _ in range(400):
            time.sleep(0.1)
            yield b" "

    cluster.p1.behaviour.instead[PATCHED] = Answer(200, lines=pieces())
    began = time.monotonic()
    assert cluster.told("one", code=3)["result"] == "unknown"
    assert time.monotonic() - began < 30


def test_an_answer_that_comes_too_late(cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown while nothing moved; what the server does afterwards is settled by what the value carries."""
    monkeypatch.setattr(patcher, "ANSWER_SECONDS", 0.2)
    _at_patch(cluster, lambda _: time.sleep(0.8))
    assert cluster.told("one", code=3)["result"] == "unknown"
    ends = time.monotonic() + 10
    while not (cluster.stored(cluster.key("shop/one")) or b"").startswith(b"k8s:enc:aescbc:v1:key2:"):
        assert time.monotonic() < ends
        time.sleep(0.02)
    assert "fixed" in _settled(cluster).out
    assert cluster.outcomes()[-1] == "fixed"


def test_a_key_that_moves_while_nothing_was_sent(
    cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreached(*_arguments: object, **_request: object) -> NoReply:
        cluster.place(cluster.key("shop/one"), aescbc(secret("one"), KEY_3, "key3"))
        return NoReply(RefusalReason.UNREACHABLE, "no connection comes about", sent=False)

    monkeypatch.setattr(patch_module, "patch_annotation", unreached)
    assert cluster.told("one", code=4)["refusal"]["rule"] == "moved"
    assert cluster.outcomes() == ["refused"]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another password": (lambda value: value["data"].update(password="bmV2ZXItc2hvd24tMQ=="), "data"),
    "one entry less": (lambda value: value["data"].pop("password"), ""),  # nothing is left that bears out the name
    "one entry more": (lambda value: value["data"].update({"never-named": "bmV2ZXItc2hvd24tMQ=="}), "data"),
    "another type": (lambda value: value.update(type="never-shown-1"), "type"),
}  # fmt: skip


def _saved_value(cluster: LostKeyCluster) -> dict[str, Any]:
    memory = cluster.p1.process.caches[GroupResource("", "secrets")].memory
    return copy.deepcopy(memory[cluster.key("shop/one")].value)


def _annotated(value: dict[str, Any], request: Request) -> dict[str, Any]:
    found = copy.deepcopy(value)
    found["metadata"].setdefault("annotations", {}).update(request.body["metadata"]["annotations"])
    return found


@pytest.mark.parametrize("what", CHANGES)
def test_other_data_than_was_saved_stands_there_afterwards(cluster: LostKeyCluster, what: str) -> None:
    """The right object with the right annotation, and the answer is what was saved; etcd holds something else."""
    change, place = CHANGES[what]
    saved = _saved_value(cluster)

    def write(request: Request) -> None:
        written = _annotated(saved, request)
        cluster.p1.behaviour.instead[PATCHED] = Answer(200, json.dumps(written).encode())
        change(written)
        cluster.place(cluster.key("shop/one"), aescbc(json.dumps(written).encode(), KEY_2, "key2"))

    _at_patch(cluster, write)
    told = cluster.told("one", code=3)
    assert (told["result"], cluster.outcomes()) == ("anomaly", ["anomaly"])
    assert place in told["detail"]
    record = json.dumps(told) + cluster.log.read_text()
    assert not [hidden for hidden in ("never-shown-1", "bmV2ZXItc2hvd24tMQ") if hidden in record]


@on_etcd
@pytest.mark.parametrize("what", ["good", "another password", "compacted", "an answer about another write"])
def test_a_controller_writes_right_after_the_patch(cluster: LostKeyCluster, what: str) -> None:
    """What etcd held at the revision of the PATCH is compared; where that is not told or kept, the newest."""
    key, saved = cluster.key("shop/one"), _saved_value(cluster)

    def write(request: Request) -> None:
        before, written = cluster.mod_revision(key), _annotated(saved, request)
        if what == "another password":
            CHANGES[what][0](written)
        cluster.place(key, aescbc(json.dumps(written).encode(), KEY_2, "key2"))
        revision = cluster.mod_revision(key) if what != "an answer about another write" else before + 9999
        written["metadata"]["resourceVersion"] = str(revision)
        cluster.p1.behaviour.instead[PATCHED] = Answer(200, json.dumps(written).encode())
        later = written | {"data": {"renewed": DATA}}
        cluster.place(key, aescbc(json.dumps(later).encode(), KEY_2, "key2"))
        if what == "compacted":
            cluster.etcd.etcdctl("compact", str(cluster.mod_revision(key)))

    _at_patch(cluster, write)
    told = cluster.told("one", code=0 if what == "good" else 3)
    assert told["result"] == ("fixed" if what == "good" else "anomaly")
    assert bool(told["warnings"]) == (what in {"good", "another password"}), told["warnings"]
    assert "never-shown-1" not in json.dumps(told) + cluster.log.read_text()


@on_etcd
def test_etcd_does_not_say_what_became_of_it(cluster: LostKeyCluster) -> None:
    with LossyProxy(cluster.etcd.endpoint) as proxy:
        cluster.endpoints = proxy.endpoint

        def lose(_: Request) -> None:
            proxy.before = lambda _path, _request: Refusal("UNAVAILABLE", "etcdserver: no leader")

        _at_patch(cluster, lose)
        assert cluster.told("one", code=3)["result"] == "unknown"
    cluster.endpoints = cluster.etcd.endpoint
    assert "fixed" in _settled(cluster).out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_outcome(cluster: LostKeyCluster, number: signal.Signals) -> None:
    _at_patch(cluster, lambda _: os.kill(os.getpid(), number))
    assert cluster.told("one")["result"] == "fixed"
    assert cluster.outcomes() == ["fixed"]


# -- intents that are left open


@pytest.mark.parametrize(
    ("died_at", "settled"),
    [("patch: compare", "not-applied"), ("patch: request", "not-applied"), ("patch: answer", "fixed")],
)
def test_an_open_intent_is_settled(
    cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch, died_at: str, settled: str
) -> None:
    class Died(Exception):
        pass

    original = patch_module.PatchSender.send

    def dying(self: patch_module.PatchSender, expected: object, *, step: object) -> object:
        def reached(name: str) -> None:
            if name == died_at:
                raise Died

        return original(self, expected, step=reached)  # type: ignore[arg-type]

    monkeypatch.setattr(patch_module.PatchSender, "send", dying)
    assert cluster.fix("one").code not in {0, 4}
    monkeypatch.undo()
    ran = _settled(cluster)
    assert (ran.code, settled in ran.out) == (0, True), ran


@on_both
def test_an_open_intent_and_the_write_of_somebody_else(cluster: LostKeyCluster) -> None:
    _unknown(cluster)
    cluster.place(cluster.key("shop/one"), HEALED)
    ran = _settled(cluster, configured=False)
    assert ran.code == 4, ran  # without a configuration nothing can be told, and it stays open
    assert "--encryption-config" in ran.out
    assert "applied-or-gone" in _settled(cluster).out


DENIED = PluginRefusal("PERMISSION_DENIED", "not you")


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", {"kek-1": b"1" * 32}) as plugin:
        yield plugin


def _under_kms(cluster: LostKeyCluster, plugin: KMSPlugin) -> None:
    kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "1s"}}
    cluster.config.write_bytes(configuration_yaml(kms, OURS, IDENTITY, resources=RESOURCES))


def _written_by(cluster: LostKeyCluster, plugin: KMSPlugin, at: str = "") -> bytes:
    metadata = {"name": "one", "namespace": "shop", "uid": cluster.uid("one")}
    at = at or cluster.patches()[-1]["metadata"]["annotations"]["etcdfix.io/fixed-at"]
    annotated = metadata | {"annotations": {"etcdfix.io/fixed-at": at}}
    value = json_object("v1", "Secret", "one", metadata=annotated, data={"password": DATA})
    return plugin.stored_v2(value, cluster.key("shop/one"))


@pytest.mark.parametrize("ours", [True, False])
def test_a_value_under_kms_settles_nothing_while_the_plugin_is_not_asked(
    cluster: LostKeyCluster, plugin: KMSPlugin, *, ours: bool
) -> None:
    _unknown(cluster)
    at = "" if ours else "2001-01-01T00:00:00Z"
    cluster.place(cluster.key("shop/one"), _written_by(cluster, plugin, at))
    _under_kms(cluster, plugin)
    plugin.refusal = DENIED
    for flags in (["--no-kms"], ["--no-kms", "--dry-run"], []):
        ran = _settled(cluster, *flags)
        assert (ran.code, "unknown" in ran.out, "applied-or-gone" in ran.out) == (3, True, False), ran
        cluster.shows_nothing(ran)
    plugin.refusal = None
    ran = _settled(cluster)
    assert (ran.code, "fixed" in ran.out, "applied-or-gone" in ran.out) == (0, ours, not ours), ran
    assert "no open intents" in _settled(cluster).out


def test_what_was_written_cannot_be_examined(cluster: LostKeyCluster, plugin: KMSPlugin) -> None:
    """The plugin fails just then: nothing is wrong with the value as far as anybody knows, and it stays open."""
    _tell_nothing(cluster.p1)
    _under_kms(cluster, plugin)
    cluster.p1.behaviour.instead[PATCHED] = Answer(200, b"{}")

    def write(_: Request) -> None:
        cluster.place(cluster.key("shop/one"), _written_by(cluster, plugin))
        plugin.refusal = DENIED

    _at_patch(cluster, write)
    assert cluster.told("one", code=3)["result"] == "unknown"
    plugin.refusal = None
    assert "fixed" in _settled(cluster).out


@on_etcd
def test_an_open_heal_is_not_settled_by_another_change(cluster: LostKeyCluster) -> None:
    """Whoever deletes the key looks at no annotation; only settling with the configuration does."""
    _unknown(cluster)
    key = cluster.key("shop/one")
    cluster.place(cluster.key("shop/good"), cluster.sealed("good", uid=OTHER))
    cluster.place(key, cluster.sealed("one", uid=OTHER)[:-21])
    ran = cluster.delete(key, "--accept", "no-api-server", "--accept", "ends-cached-reads")
    assert ran.code == 0, ran
    assert cluster.outcomes()[-2:] == ["unknown", "deleted"]
    assert "applied-or-gone" in _settled(cluster).out  # the key is gone: nothing will ever tell


@on_etcd
def test_the_unreadable_bytes_never_come_back_over_what_was_patched(cluster: LostKeyCluster) -> None:
    assert cluster.fix("one").code == 0
    (backup,) = cluster.kept()
    with cluster.unwritten():
        at = str(cluster.mod_revision(cluster.key("shop/one")))
        assert cluster.undo(backup.path, "--expect-mod-revision", at).code == 4


# -- where no server gives it any more: whose uid may be named


@pytest.fixture
def ended(lost: Lost) -> Iterator[LostKeyCluster]:
    with lost() as cluster:
        RescueStore.open(cluster.saved).close()
        yield cluster


def _made_anew(one: LostKeyCluster) -> None:
    one.remove(one.key("shop/one"))
    one.p1.wait()
    one.p1.reload(OLD)
    one.p1.create("v1", "Secret", "one", "shop", data={"password": DATA})
    one.p1.wait()
    one.p1.reload(NEW)


def _backup(
    one: LostKeyCluster, *, compacted: bool = True, cluster: str | None = None, **changes: Any
) -> Path:
    """Write the object twice, and keep its first value in a backup alone, but for these changes."""
    backup = one.back_up(msgspec.structs.replace(one.written_twice("one"), **changes), uid=cluster)
    if compacted:
        one.etcd.compact()
    return backup


def _of_another_generation(one: LostKeyCluster) -> None:
    first = one.written_twice("one")
    one.back_up(msgspec.structs.replace(first, create_revision=first.create_revision - 1))
    one.etcd.compact()


def _unlisted(one: LostKeyCluster) -> None:
    _backup(one)
    one.log.unlink()
    Path(f"{one.log}.head").unlink()


def _tampered(one: LostKeyCluster) -> None:
    backup = _backup(one)
    whole = backup.read_bytes()
    backup.write_bytes(whole.replace(b'"reason":"the', b'"reason":"The'))
    assert backup.read_bytes() != whole


def _of_another_log(one: LostKeyCluster) -> None:
    _backup(one)
    one.log = one.folder / "log" / "another.jsonl"


def _unreadable(one: LostKeyCluster) -> None:
    first = one.written_twice("one")
    one.back_up(msgspec.structs.replace(first, value=one.stored_value(first.key).value))
    one.etcd.compact()


def _two_backups(one: LostKeyCluster) -> None:
    first = one.written_twice("one")
    one.back_up(first)
    one.back_up(msgspec.structs.replace(first, value=one.sealed("one", uid=OTHER)))
    one.etcd.compact()


def _saved_and_backed_up(one: LostKeyCluster) -> None:
    first = one.written_twice("one")
    one.rescue("one")
    one.back_up(msgspec.structs.replace(first, value=one.sealed("one", uid=OTHER)))
    one.etcd.compact()


def _backed_up_and_made_anew(one: LostKeyCluster) -> None:
    first = one.written_twice("one")
    _made_anew(one)
    one.back_up(first)


def _saved_and_made_anew(one: LostKeyCluster) -> None:
    one.written_twice("one")
    one.rescue("one")
    _made_anew(one)


def _moved_there(one: LostKeyCluster) -> None:
    """A value that was moved there opens, and is of another object."""
    key = one.key("shop/one")
    one.place(key, one.sealed("two", uid=OTHER))
    one.place(key, aescbc(secret("one"), KEY_3, "key3"))
    one.p1.wait()


DYING = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"]}


def _backed_up_dying(one: LostKeyCluster) -> None:
    one.back_up(one.written_twice("one", **DYING))
    one.etcd.compact()


UNKNOWN_UID: dict[str, tuple[Callable[[LostKeyCluster], object], str, str]] = {
    "a backup of another generation": (_of_another_generation, "not-from-memory", ""),
    "a backup of another cluster": (lambda one: _backup(one, cluster=OTHER), "not-from-memory", ""),
    "a backup that the log does not list": (_unlisted, "not-from-memory", ""),
    "a backup that was tampered with": (_tampered, "not-from-memory", ""),
    "a backup of another log": (_of_another_log, "not-from-memory", ""),
    "a backup of another object": (
        lambda one: _backup(one, value=one.sealed("two", uid=OTHER)), "not-from-memory", "",
    ),
    "a backup that cannot be read": (_unreadable, "not-from-memory", ""),
    "a backup without a uid": (lambda one: _backup(one, value=one.sealed("one")), "not-from-memory", ""),
    "backups with two uids": (_two_backups, "other-object", OTHER),
    "a saved copy and a backup with two uids": (_saved_and_backed_up, "other-object", OTHER),
    "an object that was made anew, and a backup": (_backed_up_and_made_anew, "not-from-memory", ""),
    "a backup of an object that was being deleted": (_backed_up_dying, "not-from-memory", "deletionTimestamp"),
}  # fmt: skip
UNKNOWN_UID_ON_KINE: dict[str, tuple[Callable[[LostKeyCluster], object], str, str]] = {
    "a saved copy of an earlier object": (_saved_and_made_anew, "not-from-memory", ""),
    "an earlier revision of another object": (_moved_there, "not-from-memory", ""),
    "an earlier revision that was being deleted": (
        lambda one: one.written_twice("one", **DYING), "not-from-memory", "deletionTimestamp",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("lost", "case"),
    [*(("etcd", case) for case in UNKNOWN_UID), *(("kine", case) for case in UNKNOWN_UID_ON_KINE)],
    indirect=["lost"],
)
def test_what_says_no_uid(ended: LostKeyCluster, case: str) -> None:
    prepare, rule, says = (UNKNOWN_UID | UNKNOWN_UID_ON_KINE)[case]
    prepare(ended)
    ended.p1.lose_cache("secrets")
    _refused(ended, rule=rule, says=says)


@on_etcd
def test_a_backup_that_etcd_contradicts_says_no_uid(ended: LostKeyCluster) -> None:
    """etcd still has the revision of the backup, with other bytes: the backup is of another etcd."""
    _backup(ended, compacted=False, value=ended.sealed("one", uid=OTHER))
    ended.p1.lose_cache("secrets")
    assert ended.told("one")["result"] == "fixed"
    assert [patch["metadata"]["uid"] for patch in ended.patches()] == [ended.uid("one")]


def test_what_another_server_still_gives_of_the_kind_is_rescued_first(ended: LostKeyCluster) -> None:
    """Nobody gives the one any more; what is not saved of the others a change could end."""
    ended.written_twice("one")
    ended.p1.reload(OLD)
    ended.p1.create("v1", "Secret", "two", "shop", data={"password": DATA})
    ended.p1.wait()
    with beside(ended, OLD) as p2:
        p2.wait()
        for server in (ended.p1, p2):
            server.reload(NEW)
        ended.p1.lose_cache("secrets")
        p2.behaviour.instead[f"{SHOP}/one?resourceVersion=0"] = Answer(500, b'{"kind": "Status"}')
        _refused(ended, rule="not-rescued", says="shop/two")


@pytest.mark.parametrize("says", [True, False])
def test_a_server_that_gives_it_after_all_or_does_not_say(ended: LostKeyCluster, *, says: bool) -> None:
    """Then it can be saved, and has to be."""
    ended.written_twice("one")
    if says:
        _refused(ended, rule="not-rescued")
        return
    with beside(ended, NEW) as p2:
        ended.p1.lose_cache("secrets")
        p2.behaviour.instead[f"{SHOP}/one?resourceVersion=0"] = Answer(504)
        _refused(ended, rule="not-rescued", says=p2.url)


def _forge(one: LostKeyCluster) -> None:
    """File and index bear each other out, and no earlier revision contradicts them."""
    one.p1.reload(OLD)
    one.p1.create("v1", "Secret", "one", "shop", data={"password": DATA})
    one.p1.wait()
    one.p1.reload(NEW)
    one.rescue("one")

    def forged(line: dict[str, Any]) -> dict[str, Any]:
        raw = (one.saved / line["file"]).read_bytes().replace(line["uid"].encode(), OTHER.encode())
        sha256 = digest_of(raw)
        name = file_name(base64.b64decode(line["key_base64"]), line["resource_version"], sha256)
        (one.saved / name).write_bytes(raw)
        return line | {"uid": OTHER, "sha256": sha256, "file": name, "size": len(raw)}

    _index(one, forged)


WRONG_UID: dict[str, Callable[[LostKeyCluster], object]] = {
    "etcd": lambda one: _backup(one, value=one.sealed("one", uid=OTHER)),
    "kine": _forge,
}


@on_both
def test_a_wrong_uid_of_a_backup_or_a_forged_copy_writes_nothing(
    ended: LostKeyCluster, request: pytest.FixtureRequest
) -> None:
    """The server is told the uid, and refuses."""
    WRONG_UID[request.node.callspec.params["lost"]](ended)
    ended.p1.lose_cache("secrets")
    with ended.unwritten():
        told = ended.told("one", code=4)
    assert told["refusal"]["rule"] == "server-refused"
    assert [patch["metadata"]["uid"] for patch in ended.patches()] == [OTHER]


@pytest.mark.parametrize("saved", [True, False])
def test_a_server_that_was_restarted_holds_nothing(ended: LostKeyCluster, *, saved: bool) -> None:
    """The copies that are left are those of the command that is printed."""
    ended.written_twice("one")
    if saved:
        ended.rescue("one")
    ended.p1.restart()
    with ended.unwritten():
        told = ended.told("one", code=4)
    assert told["refusal"]["rule"] == "server-refused"
    step = told["refusal"]["next_step"]
    ran = ended.run(*shlex.split(step[step.index("etcdfix copies") :])[1:])
    assert ran.code in {0, 1}, ran  # what no audit log speaks for is doubtful
    ended.shows_nothing(ran)


def test_a_balancer_sends_the_change_to_another_server(cluster: LostKeyCluster) -> None:
    """Its address stands for one server now and for another later; the holder is asked by its own address."""
    with beside(cluster, NEW) as p2:  # started since: it has nothing

        def balanced(request: Request) -> Answer:
            # Who asks the balancer finds the holder; whoever changes something there finds the other.
            return (p2 if request.method == "PATCH" else cluster.p1).answer(request)

        balancer = Listener(cluster.p1.authority, balanced, hosts=("127.0.0.1",))
        try:
            cluster.kubeconfig = balancer.kubeconfig(cluster.folder)
            assert cluster.p1.url in cluster.told("one")["detail"]
        finally:
            balancer.stop()


def test_the_second_server_still_holds_it(cluster: LostKeyCluster) -> None:
    """The one of the kubeconfig was started since, and a dry run promises nothing."""
    with beside(cluster, NEW):
        cluster.p1.lose_cache("secrets")
        with cluster.unwritten():
            assert cluster.fix("one", "--dry-run").code == 0
        told = cluster.told("one")
    assert told["result"] == "fixed"
    assert cluster.p1.url in told["detail"]
