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
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

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

SECRETS = GroupResource("", "secrets")


Lost = Callable[..., AbstractContextManager[LostKeyCluster]]


@pytest.fixture(params=["etcd", "kine"])
def lost(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    authority: CertificateAuthority,
) -> Lost:
    if request.param == "kine":
        return lambda *names: lost_key_kine_cluster(tmp_path, capfd, authority, names)
    make: LoseKey = request.getfixturevalue("lose_key")
    return lambda *names: make(names)


@pytest.fixture
def cluster(lost: Lost) -> Iterator[LostKeyCluster]:
    with lost("one", "two", "three") as cluster:
        cluster.rescue()
        cluster.p1.requests.clear()
        yield cluster


on_etcd = pytest.mark.parametrize("lost", ["etcd"], indirect=True)
"""For what kine has not: an address that can fail, a command that writes; kine keeps the value before the last one."""


def _refused(cluster: LostKeyCluster, *arguments: str, rule: str | None, says: str = "") -> dict[str, object]:
    with cluster.unwritten():
        told = cluster.told(*(arguments or ("one",)), code=4)
    refusal = told["refusal"]
    assert refusal["rule"] == rule, refusal
    assert says in refusal["message"], refusal
    assert cluster.patches() == []
    return dict(refusal)


def _at_patch(cluster: LostKeyCluster, action: Callable[[], object]) -> None:
    done: list[Request] = []

    def arrived(request: Request) -> None:
        if request.method == "PATCH" and not done:
            done.append(request)
            action()

    cluster.p1.before.append(arrived)


def _tell_nothing(*servers: StandIn) -> None:
    for server in servers:
        server.behaviour.instead["/metrics"] = Answer(403, b'{"kind": "Status"}')


KEY_3 = b"abcdefghijklmnop"


def _configure(
    cluster: LostKeyCluster, *providers: dict[str, Any], resources: tuple[str, ...] = RESOURCES
) -> None:
    cluster.config.write_bytes(configuration_yaml(*providers, resources=resources))
    cluster.p1.reload(cluster.config.read_bytes())


def _edit_index(cluster: LostKeyCluster, field: str, value: str, *names: str) -> None:
    path = cluster.saved / "index.jsonl"
    lines = map(json.loads, path.read_text().splitlines())
    edited = [line | ({field: value} if not names or line["name"] in names else {}) for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in edited))


def _spoil_saved(cluster: LostKeyCluster, spoil: Callable[[Path], object], *names: str) -> None:
    for line in map(json.loads, (cluster.saved / "index.jsonl").read_text().splitlines()):
        if not names or line["name"] in names:
            spoil(cluster.saved / line["file"])


def _elsewhere(cluster: LostKeyCluster) -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "other"}}
    cluster.p1.behaviour.instead["/api/v1/namespaces/kube-system"] = Answer(
        200, json.dumps(namespace).encode()
    )


def _unserved(cluster: LostKeyCluster) -> None:
    cluster.place(cluster.key("shop/odd", "configmaps"), aescbc(config_map("odd"), KEY_3, "key3"))
    place = "/api/v1/namespaces/shop/configmaps/odd"
    cluster.p1.behaviour.instead[f"{place}?resourceVersion=0"] = Answer(404, b"404 page not found\n")


def _forgotten(cluster: LostKeyCluster) -> None:
    _edit_index(cluster, "uid", OTHER)
    cluster.p1.lose_cache("secrets")


OURS = provider("aescbc", key2=KEY_2)
OTHER = "99999999-2222-3333-4444-555555555555"
Prepare = Callable[[LostKeyCluster], object]
REFUSED: dict[str, tuple[Prepare, list[str], str | None, str]] = {
    "a server reads it": (lambda one: one.p1.reload(OLD), ["one"], "configuration-wrong", "https://127.0.0.1"),
    "ours is another file": (
        lambda one: one.config.write_bytes(THIRD), ["one"], "unchecked-server", "has loaded another",
    ),
    "nothing would be encrypted": (
        lambda one: _configure(one, IDENTITY, OURS), ["one"], "write-key", "without encryption",
    ),
    "a kind that the configuration does not cover": (
        lambda one: _configure(one, OURS, IDENTITY, resources=("configmaps",)), ["one"], "write-key",
        "without encryption",
    ),
    "a plugin that is not asked proves nothing": (
        lambda one: one.config.write_bytes(configuration_yaml(KMS_V2, OURS, resources=RESOURCES)),
        ["one", "--no-kms"], "write-key", "no plugin is asked",
    ),
    "another cluster": (_elsewhere, ["one"], None, "another cluster"),
    "a damaged value": (
        lambda one: one.place(one.key("shop/broken"), aescbc(secret("broken"), KEY_2, "key2")[:-21]), ["broken"],
        "not-from-memory", "value-truncated",
    ),
    "a value with a lease goes by itself": (
        lambda one: one.grant(one.key("shop/leased"), aescbc(secret("leased"), KEY_3, "key3")), ["leased"],
        "not-from-memory", "it has a lease",
    ),
    "a name that no request can carry": (
        lambda one: one.place(one.key("shop/a%2fb"), aescbc(secret("a%2fb"), KEY_3, "key3")), ["a%2fb"],
        "not-from-memory", "no request of the API can name it",
    ),
    "a kind that no server serves": (_unserved, ["configmaps shop/odd"], "not-from-memory", "serves configmaps"),
    "a saved copy that was changed": (
        lambda one: _spoil_saved(one, lambda path: path.write_bytes(path.read_bytes() + b" ")), ["one"],
        "not-rescued", "its digest is",
    ),
    "a saved copy of another object": (lambda one: _edit_index(one, "uid", OTHER), ["one"], "other-object", OTHER),
    "a saved copy of another cluster": (
        lambda one: _edit_index(one, "cluster_uid", OTHER), ["one"], "other-cluster", OTHER,
    ),
    "the copy of another object is of another cluster": (
        lambda one: _edit_index(one, "cluster_uid", OTHER, "two"), ["one"], "not-rescued", "shop/two",
    ),
    "the copy of another object is gone, and the index names it": (
        lambda one: _spoil_saved(one, Path.unlink, "two"), ["one"], "not-rescued", "shop/two",
    ),
    "the copy of another object is empty": (
        lambda one: _spoil_saved(one, lambda path: path.write_bytes(b""), "two"), ["one"], "not-rescued", "shop/two",
    ),
    "a wrong uid in the index, and no server gives it": (_forgotten, ["one"], "not-rescued", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_request_is_sent_for(cluster: LostKeyCluster, case: str) -> None:
    prepare, words, rule, says = REFUSED[case]
    prepare(cluster)
    kind, _, name = words[0].rpartition(" ")
    named = cluster.key(name, kind).decode() if kind else name
    _refused(cluster, named, *words[1:], rule=rule, says=says)


def test_one_of_two_servers_has_not_loaded_the_new_key(cluster: LostKeyCluster) -> None:
    with beside(cluster, OLD) as p2:
        _refused(cluster, "one", rule="configuration-wrong", says=p2.url)


def test_a_server_without_the_write_key_ends_it_after_the_first(cluster: LostKeyCluster) -> None:
    """It reads neither the old value nor the new one: only the first object shows it, and no other is tried."""
    with beside(cluster, THIRD) as p2:
        _tell_nothing(p2)
        told = cluster.told("one", code=3)
        assert told["result"] == "fixed"
        assert any(p2.url in warning and "write key" in warning for warning in told["warnings"])
        with cluster.unwritten():
            told = cluster.told("two", code=4)
    assert told["refusal"]["rule"] == "write-key"
    assert p2.url in told["refusal"]["message"]
    assert len(cluster.patches()) == 1


def test_the_server_writes_with_another_key_than_ours(cluster: LostKeyCluster) -> None:
    _tell_nothing(cluster.p1)
    cluster.config.write_bytes(
        configuration_yaml(
            provider("aescbc", key3=b"abcdefghijklmnop", key2=KEY_2), IDENTITY, resources=RESOURCES
        )
    )
    told = cluster.told("one", code=3)
    assert told["result"] == "fixed"
    assert any("not today's write key" in warning for warning in told["warnings"])


def test_the_server_writes_with_a_key_that_we_do_not_have(cluster: LostKeyCluster) -> None:
    _tell_nothing(cluster.p1)
    cluster.config.write_bytes(THIRD)
    told = cluster.told("one", code=3)
    assert told["result"] == "anomaly"
    assert "does not read what was written" in told["detail"]
    assert len(cluster.patches()) == 1


def test_a_server_that_has_loaded_another_file(cluster: LostKeyCluster) -> None:
    """Nothing is stored yet that would show whether it reads what is healed."""
    with beside(cluster, THIRD) as p2:
        refusal = _refused(cluster, rule="unchecked-server", says=f"{p2.url} has loaded another")
        assert f"--accept unchecked-server={p2.url}" in str(refusal["next_step"])
        told = cluster.told("one", "--accept", f"unchecked-server={p2.url}", code=3)
    assert told["result"] == "fixed"  # it is the test, and shows it
    assert any(p2.url in warning for warning in told["warnings"])


def test_another_file_that_reads_what_is_there(cluster: LostKeyCluster) -> None:
    """A line more is another file: what is stored under today's write key, and every server reads, counts first."""
    cluster.config.write_bytes(NEW + b"\n")
    _refused(cluster, rule="unchecked-server", says="has loaded another")
    cluster.p1.create("v1", "Secret", "canary", "shop", data={"password": DATA})
    assert cluster.told("one")["result"] == "fixed"


def test_a_file_that_etcdfix_made_counts_once_the_server_writes_with_it(cluster: LostKeyCluster) -> None:
    cluster.config.write_bytes(f"# merge.{NOT_DEPLOYED}\n".encode() + NEW)
    _tell_nothing(cluster.p1)
    _refused(cluster, rule="undeployed-write-key", says="encryption merge made the configuration")
    cluster.p1.create("v1", "Secret", "canary", "shop", data={"password": DATA})
    assert cluster.told("one")["result"] == "fixed"


def test_a_server_that_does_not_answer_has_to_be_accepted(cluster: LostKeyCluster) -> None:
    with beside(cluster, NEW) as p2:
        gone = p2.url
    refusal = _refused(cluster, rule="unchecked-server", says=gone)
    assert f"--accept unchecked-server={gone}" in str(refusal["next_step"])
    told = cluster.told("one", "--accept", f"unchecked-server={gone}")
    assert told["result"] == "fixed"
    assert any(f"--accept unchecked-server={gone}" in event.accepted for event in cluster.records())


def test_a_server_that_is_accepted_and_not_there_is_told(cluster: LostKeyCluster) -> None:
    nobody = "--accept unchecked-server=https://typo:6443"
    assert f"{nobody} fits no API server" in cluster.fix("one", *nobody.split(), "--dry-run").err


def test_no_server_at_all(cluster: LostKeyCluster) -> None:
    cluster.p1.die_after(0)
    with cluster.unwritten():
        told = cluster.told("one", code=5)
    assert "no API server of this cluster can be asked" in told["refusal"]["message"]


OVERLOAD = Answer(429, b"Too many requests, please try again later.\n", "text/plain")


@pytest.mark.parametrize("answer", [OVERLOAD, Answer(503), Answer(504, b'{"kind": "Status"}')])
def test_a_server_that_has_too_much_to_do(
    cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(api_client, "sleep", lambda _seconds: None)
    cluster.p1.behaviour.instead["/api/v1/namespaces/shop/secrets/one"] = answer
    refusal = _refused(cluster, rule="unchecked-server", says=f"it answered {answer.status}")
    assert "run the same again in a moment" in str(refusal["next_step"])
    assert "allowed" not in str(refusal["next_step"])


def test_a_server_that_had_too_much_to_do(cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again before anything is given up."""
    waited: list[float] = []
    instead, path = cluster.p1.behaviour.instead, "/api/v1/namespaces/shop/secrets/one"

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        instead.clear()

    monkeypatch.setattr(api_client, "sleep", sleep)
    for busy in (path, f"{path}?resourceVersion=0"):
        instead[busy] = OVERLOAD
        assert cluster.fix("one", "--dry-run").code == 0
    assert waited == [1, 1]


def test_no_server_says_what_it_has_in_memory_for_now(
    cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "sleep", lambda _seconds: None)
    cluster.p1.behaviour.instead["/api/v1/namespaces/shop/secrets/one?resourceVersion=0"] = OVERLOAD
    refusal = _refused(cluster, rule="not-from-memory", says="overloaded")
    assert refusal["next_step"] == "run the same again in a moment"


def test_a_server_of_another_etcd(cluster: LostKeyCluster) -> None:
    with StandIn(cluster.p1.authority, configuration=NEW) as p2:
        uid = {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": cluster.p1.uid}}
        p2.behaviour.instead["/api/v1/namespaces/kube-system"] = Answer(200, json.dumps(uid).encode())
        flags = ["--server", p2.url, "--accept", f"unchecked-server={p2.url}"]
        _refused(cluster, "one", *flags, rule="other-cluster", says=p2.url)


@pytest.mark.parametrize("verb", ["patch", "get"])
def test_without_the_right_no_request_is_sent(cluster: LostKeyCluster, verb: str) -> None:
    cluster.p1.behaviour.denied.add((verb, "secrets"))
    _refused(cluster, rule="unchecked-server" if verb == "get" else None)


def test_a_readable_value(cluster: LostKeyCluster) -> None:
    assert cluster.fix("one").code == 0
    cluster.p1.requests.clear()
    _refused(cluster, "one", rule="readable")


def test_an_object_that_is_being_deleted(lost: Lost) -> None:
    with lost() as cluster:
        cluster.p1.reload(OLD)
        when = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"]}
        cluster.p1.create("v1", "Secret", "dying", "shop", type="Opaque", data={"p": DATA}, metadata=when)
        cluster.p1.wait()
        cluster.p1.reload(NEW)
        cluster.rescue()
        _refused(cluster, "dying", rule="not-from-memory", says="deletionTimestamp")
        cluster.p1.lose_cache("secrets")
        _refused(cluster, "dying", rule="not-from-memory", says="deletionTimestamp")


def test_two_servers_have_different_objects_in_memory(cluster: LostKeyCluster) -> None:
    revision = cluster.mod_revision(cluster.key("shop/one"))
    metadata = {"name": "one", "namespace": "shop", "uid": "another", "resourceVersion": str(revision)}
    body = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}
    with beside(cluster, NEW) as p2:
        p2.behaviour.instead["/api/v1/namespaces/shop/secrets/one?resourceVersion=0"] = Answer(
            200, json.dumps(body).encode()
        )
        _refused(cluster, rule="other-object", says="different objects in memory")


def _copies_as_printed(cluster: LostKeyCluster, step: str) -> Ran:
    words = shlex.split(step[step.index("etcdfix copies") :])
    ran = cluster.run(*words[1:])
    assert ran.code in {0, 1}, ran  # what no audit log speaks for is doubtful
    cluster.shows_nothing(ran)
    return ran


def test_a_cache_that_is_behind(cluster: LostKeyCluster) -> None:
    """Another server wrote it since, under a key that nobody here has: the newest write is not in memory."""
    key = cluster.key("shop/one")
    cluster.p1.behaviour.given_up_after = 60
    cluster.place(key, aescbc(secret("one"), b"abcdefghijklmnop", "key3"))
    refusal = _refused(cluster, "one", rule="not-from-memory", says="another resourceVersion")
    step = str(refusal["next_step"])
    assert f"etcdfix rescue secrets {' '.join(cluster.where)} " in step
    _copies_as_printed(cluster, step)


@on_etcd
def test_nothing_names_the_cluster(cluster: LostKeyCluster) -> None:
    cluster.remove(cluster.key("kube-system", "namespaces"))
    cluster.etcd.compact()
    refusal = _refused(cluster, "one", rule="unknown-cluster", says="nothing in etcd names the cluster")
    assert "--main-endpoints" in str(refusal["next_step"])
    assert "--accept unknown-cluster" not in str(refusal["next_step"]), "nothing accepts it here"


def test_nothing_is_healed_before_it_is_rescued(lost: Lost) -> None:
    with lost("one", "two") as cluster:
        ran = cluster.fix("one")
        assert (ran.code, cluster.patches()) == (2, [])  # there is no index at all
        given = ["--from", "memory", "--kubeconfig", str(cluster.kubeconfig), "--yes"]
        ran = cluster.run("fix", cluster.key("shop/one").decode(), *given, *cluster.common())
        assert (ran.code, cluster.patches()) == (4, [])  # and here nobody names one
        assert "etcdfix rescue secrets " in ran.err
        cluster.rescue("two")
        _refused(cluster, "one", rule="not-rescued", says="shop/one")
        cluster.rescue("one")
        assert cluster.fix("one").code == 0


def test_another_object_of_the_kind_was_not_rescued(lost: Lost) -> None:
    with lost("one", "two") as cluster:
        cluster.rescue("one")
        _refused(cluster, "one", rule="not-rescued", says="shop/two")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(429, b"Too many requests, please try again later.\n", "text/plain"), "overloaded"),
        (Answer(403, b'{"kind": "Status"}'), "does not let"),
        (Answer(504, b'{"kind": "Status"}'), "504"),
        (Answer(200, b"<html></html>", "text/html"), "no object"),
    ],
)
def test_another_object_of_which_a_server_does_not_say_whether_it_has_it(
    lost: Lost, answer: Answer, says: str
) -> None:
    with lost("one", "two") as cluster:
        cluster.rescue("one")
        cluster.p1.behaviour.instead["/api/v1/namespaces/shop/secrets/two?resourceVersion=0"] = answer
        refusal = _refused(cluster, "one", rule="not-rescued", says=says)
        assert "shop/two" in str(refusal["message"])


def test_the_key_moves_before_the_request(cluster: LostKeyCluster) -> None:
    key, other = cluster.key("shop/one"), aescbc(secret("one"), b"abcdefghijklmnop", "key3")

    def asked(request: Request) -> None:
        if "selfsubjectaccessreviews" in request.path and cluster.stored(key) != other:
            cluster.place(key, other)

    cluster.p1.behaviour.given_up_after = 60
    cluster.p1.before.append(asked)
    told = cluster.told("one", code=4)
    assert told["refusal"]["rule"] in {"moved", "not-from-memory"}
    assert (cluster.patches(), cluster.stored(key)) == ([], other)


@pytest.mark.parametrize("under", [(KEY_3, "key3"), (KEY_2, "key2"), None], ids=["lost", "healed", "deleted"])
def test_the_key_moves_while_the_request_is_on_its_way(
    cluster: LostKeyCluster, under: tuple[bytes, str] | None
) -> None:
    key, other = cluster.key("shop/one"), aescbc(secret("one"), *under) if under else None
    _at_patch(cluster, lambda: cluster.place(key, other) if other else cluster.remove(key))
    told = cluster.told("one", code=4)
    assert told["refusal"]["rule"] == "moved"
    assert cluster.stored(key) == other
    assert cluster.outcomes() == ["refused"]


def test_the_cache_ends_between_two_requests(cluster: LostKeyCluster) -> None:
    """The process still holds the objects: the second is written with the uid of its saved copy."""
    _at_patch(cluster, lambda: cluster.p1.lose_cache("secrets"))
    assert [cluster.told(name)["result"] for name in ("one", "two", "three")] == ["fixed"] * 3


def test_the_server_is_restarted_while_the_request_is_on_its_way(cluster: LostKeyCluster) -> None:
    _at_patch(cluster, cluster.p1.restart)
    told = cluster.told("one", code=4)
    assert told["refusal"]["rule"] == "server-refused"
    assert cluster.outcomes() == ["refused"]


def test_admission_forbids_the_update(cluster: LostKeyCluster) -> None:
    cluster.p1.behaviour.refuse.add("shop")
    with cluster.unwritten():
        told = cluster.told("one", code=4)
    assert told["refusal"]["rule"] == "server-refused"
    assert "refused, reason not told" in told["refusal"]["message"]
    assert len(cluster.patches()) == 1
    assert cluster.outcomes() == ["refused"]


def test_no_second_server_is_asked_for_what_the_first_refused(cluster: LostKeyCluster) -> None:
    with beside(cluster, OLD) as p2:
        p2.wait()
        p2.reload(NEW)
        for server in (cluster.p1, p2):
            server.behaviour.refuse.add("shop")
        with cluster.unwritten():
            told = cluster.told("one", code=4)
        assert told["refusal"]["rule"] == "server-refused"
        assert len([*cluster.patches(), *cluster.patches(p2)]) == 1


@pytest.mark.parametrize("status", [422, 403, 404, 409, 429, 500])
def test_the_body_of_a_refusal_is_shown_nowhere(cluster: LostKeyCluster, status: int) -> None:
    quoting = json.dumps({"kind": "Status", "message": f"the object: {DATA} never-to-be-shown"}).encode()
    for name in ("one",):
        path = f"/api/v1/namespaces/shop/secrets/{name}?fieldManager=etcdfix"
        cluster.p1.behaviour.instead[path] = Answer(status, quoting)
    with cluster.unwritten():
        ran = cluster.fix("one")
    assert ran.code == 4
    assert str(status) in ran.err
    cluster.shows_nothing(ran)
    assert cluster.outcomes() == ["refused"]


@pytest.mark.parametrize("status", [408, 502, 503, 504])
def test_who_stopped_waiting_does_not_know_what_becomes_of_it(cluster: LostKeyCluster, status: int) -> None:
    """A server at its time-out, or a balancer before it, answers while the write is still on its way."""
    path = "/api/v1/namespaces/shop/secrets/one?fieldManager=etcdfix"
    cluster.p1.behaviour.instead[path] = Answer(status, DATA.encode())
    with cluster.unwritten():
        told = cluster.told("one", code=3)
    assert told["result"] == "unknown"
    assert "may still be on its way" in told["detail"]
    assert any("log settle" in step["command"] for step in told["follow_ups"])
    assert len(cluster.patches()) == 1
    cluster.p1.behaviour.instead.clear()
    ran = _reconciled(cluster)
    assert "not-applied" in ran.out
    assert "could arrive later" in ran.out


def test_an_answer_without_an_end(cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the last one never does."""
    monkeypatch.setattr(patcher, "ANSWER_SECONDS", 0.3)
    path = "/api/v1/namespaces/shop/secrets/one?fieldManager=etcdfix"

    def pieces() -> Iterator[bytes]:
        for _ in range(400):
            time.sleep(0.1)
            yield b" "

    cluster.p1.behaviour.instead[path] = Answer(200, lines=pieces())
    began = time.monotonic()
    told = cluster.told("one", code=3)
    assert time.monotonic() - began < 30
    assert told["result"] == "unknown"


def test_a_key_that_moves_while_nothing_was_sent(
    cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = aescbc(secret("one"), b"abcdefghijklmnop", "key3")

    def unreached(*_arguments: object, **_request: object) -> NoReply:
        cluster.place(cluster.key("shop/one"), value)
        return NoReply(RefusalReason.UNREACHABLE, "no connection comes about", sent=False)

    monkeypatch.setattr(patch_module, "patch_annotation", unreached)
    told = cluster.told("one", code=4)
    assert told["refusal"]["rule"] == "moved"
    assert cluster.outcomes() == ["refused"]


def test_a_server_that_says_200_and_writes_nothing(cluster: LostKeyCluster) -> None:
    path = "/api/v1/namespaces/shop/secrets/one?fieldManager=etcdfix"
    cluster.p1.behaviour.instead[path] = Answer(200, b"{}")
    with cluster.unwritten():
        told = cluster.told("one", code=3)
    assert told["result"] == "anomaly"


def _writes(cluster: LostKeyCluster, value: bytes, answer: Answer) -> None:
    path = "/api/v1/namespaces/shop/secrets/one?fieldManager=etcdfix"
    cluster.p1.behaviour.instead[path] = answer
    _at_patch(cluster, lambda: cluster.place(cluster.key("shop/one"), value))


def test_another_object_stands_there_afterwards(cluster: LostKeyCluster) -> None:
    _writes(cluster, aescbc(secret("one"), KEY_2, "key2"), Answer(200, b"{}"))
    told = cluster.told("one", code=3)
    assert told["result"] == "anomaly"
    assert "another uid" in told["detail"]


@pytest.mark.parametrize("what", ["another password", "one entry less", "one entry more", "another type"])
def test_other_data_than_was_saved_stands_there_afterwards(cluster: LostKeyCluster, what: str) -> None:
    """The right object with the right annotation, and the answer is what was saved; etcd holds something else."""
    entry = cluster.p1.process.caches[SECRETS].memory[cluster.key("shop/one")]
    saved = copy.deepcopy(entry.value)
    path = "/api/v1/namespaces/shop/secrets/one?fieldManager=etcdfix"

    def write(request: Request) -> None:
        if request.method != "PATCH":
            return
        written = copy.deepcopy(saved)
        written["metadata"].setdefault("annotations", {}).update(request.body["metadata"]["annotations"])
        answer = json.dumps(written).encode()
        if what == "another password":
            written["data"]["password"] = base64.b64encode(b"never-shown-1").decode()
        elif what == "one entry less":
            written["data"].pop("password")
        elif what == "one entry more":
            written["data"]["never-named"] = "bmV2ZXItc2hvd24tMQ=="
        else:
            written["type"] = "never/shown"
        cluster.p1.behaviour.instead[path] = Answer(200, answer)
        cluster.place(cluster.key("shop/one"), aescbc(json.dumps(written).encode(), KEY_2, "key2"))

    cluster.p1.before.append(write)
    told = cluster.told("one", code=3)
    assert told["result"] == "anomaly"
    assert cluster.outcomes() == ["anomaly"]
    if what != "one entry less":  # then nothing that is left bears out the name
        place = "type" if what == "another type" else "data"
        assert f"saved copy: {place}" in told["detail"]
    assert "differs from the saved copy" in told["detail"]
    record = json.dumps(told) + cluster.log.read_text()
    assert not [
        secret for secret in ("never-shown-1", "bmV2ZXItc2hvd24tMQ", "never/shown") if secret in record
    ]


@on_etcd
@pytest.mark.parametrize("what", ["good", "another password", "compacted", "an answer about another write"])
def test_a_controller_writes_right_after_the_patch(cluster: LostKeyCluster, what: str) -> None:
    """What etcd held at the revision of the PATCH is compared; where that is not told or kept, the newest."""
    key = cluster.key("shop/one")
    saved = copy.deepcopy(cluster.p1.process.caches[SECRETS].memory[key].value)
    path = "/api/v1/namespaces/shop/secrets/one?fieldManager=etcdfix"

    def write(request: Request) -> None:
        if request.method != "PATCH":
            return
        written = copy.deepcopy(saved)
        before = cluster.mod_revision(key)
        written["metadata"].setdefault("annotations", {}).update(request.body["metadata"]["annotations"])
        if what == "another password":
            written["data"]["password"] = base64.b64encode(b"never-shown-1").decode()
        cluster.place(key, aescbc(json.dumps(written).encode(), KEY_2, "key2"))
        revision = cluster.mod_revision(key) if what != "an answer about another write" else before + 9999
        written["metadata"]["resourceVersion"] = str(revision)
        cluster.p1.behaviour.instead[path] = Answer(200, json.dumps(written).encode())
        later = copy.deepcopy(written)
        later["data"] = {"renewed": DATA}
        cluster.place(key, aescbc(json.dumps(later).encode(), KEY_2, "key2"))
        if what == "compacted":
            cluster.etcd.etcdctl("compact", str(cluster.mod_revision(key)))

    cluster.p1.before.append(write)
    told = cluster.told("one", code=0 if what == "good" else 3)
    assert told["result"] == ("fixed" if what == "good" else "anomaly")
    assert any("written again" in warning for warning in told["warnings"]) == (
        what in {"good", "another password"}
    )
    assert "never-shown-1" not in json.dumps(told) + cluster.log.read_text()


def test_the_saved_copy_is_gone_afterwards(cluster: LostKeyCluster) -> None:
    """It is healed, and nothing shows that what etcd holds now is what was saved."""

    def lose() -> None:
        for path in cluster.saved.glob("*.json"):
            path.unlink()

    _at_patch(cluster, lose)
    told = cluster.told("one", code=3)
    assert told["result"] == "fixed"
    assert "could not be compared with the saved copy" in told["detail"]


def test_the_annotation_is_not_there_afterwards(cluster: LostKeyCluster) -> None:
    """The value opens, and nothing shows that this request wrote it."""
    uid = cluster.p1.process.caches[SECRETS].memory[cluster.key("shop/one")].value["metadata"]["uid"]
    metadata = {"name": "one", "namespace": "shop", "uid": uid}
    value = json_object("v1", "Secret", "one", metadata=metadata)
    _writes(cluster, aescbc(value, KEY_2, "key2"), Answer(200, b"{}"))
    told = cluster.told("one", code=3)
    assert told["result"] == "applied-or-gone"


@on_etcd
def test_etcd_does_not_say_what_became_of_it(cluster: LostKeyCluster) -> None:
    with LossyProxy(cluster.etcd.endpoint) as proxy:
        cluster.endpoints = proxy.endpoint

        def lose() -> None:
            proxy.before = lambda _path, _request: Refusal("UNAVAILABLE", "etcdserver: no leader")

        _at_patch(cluster, lose)
        told = cluster.told("one", code=3)
    assert told["result"] == "unknown"
    assert "reading the key again failed" in told["detail"]
    cluster.endpoints = cluster.etcd.endpoint
    assert "fixed" in _reconciled(cluster).out


def test_the_server_dies_after_it_wrote(cluster: LostKeyCluster) -> None:
    """The answer never comes; etcd shows that it was done. What the dead server reads now nobody knows: stop."""
    _at_patch(cluster, lambda: cluster.p1.die_after(1, answering=False))
    told = cluster.told("one", code=3)
    assert told["result"] == "fixed"
    assert any("gave no answer" in warning for warning in told["warnings"])
    assert cluster.outcomes() == ["fixed"]


def test_the_server_dies_before_it_wrote(cluster: LostKeyCluster) -> None:
    _at_patch(cluster, lambda: cluster.p1.die_after(0))
    with cluster.unwritten():
        told = cluster.told("one", code=3)
    assert told["result"] == "unknown"
    assert any("log settle" in step["command"] for step in told["follow_ups"])
    assert _reconciled(cluster).out.count("not-applied") == 1
    cluster.p1.restart()


def test_an_answer_that_comes_too_late(cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown while nothing moved; what the server does afterwards is settled by what the value carries."""
    monkeypatch.setattr(patcher, "ANSWER_SECONDS", 0.3)
    _at_patch(cluster, lambda: time.sleep(1.2))
    told = cluster.told("one", code=3)
    assert told["result"] == "unknown"
    ends = time.monotonic() + 10
    key = cluster.key("shop/one")
    while not (cluster.stored(key) or b"").startswith(b"k8s:enc:aescbc:v1:key2:"):
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert "fixed" in _reconciled(cluster).out
    assert cluster.outcomes()[-1] == "fixed"


@pytest.mark.parametrize(
    ("died_at", "settled"),
    [("patch: compare", "not-applied"), ("patch: answer", "fixed"), ("patch: request", "not-applied")],
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
    ran = cluster.fix("one")
    assert ran.code not in {0, 4}
    monkeypatch.undo()
    ran = _reconciled(cluster)
    assert ran.code == 0, ran
    assert settled in ran.out


def test_an_open_intent_and_the_write_of_somebody_else(cluster: LostKeyCluster) -> None:
    _at_patch(cluster, lambda: cluster.p1.die_after(0))
    cluster.told("one", code=3)
    reconcile = ["log", "settle", *cluster.where, "--etcd-prefix", cluster.prefix]
    cluster.place(cluster.key("shop/one"), aescbc(secret("one"), KEY_2, "key2"))
    ran = cluster.run(*reconcile, str(cluster.log))
    assert ran.code == 4, ran  # without a configuration nothing can be told, and it stays open
    assert "--encryption-config" in ran.out
    assert "applied-or-gone" in _reconciled(cluster).out


DENIED = PluginRefusal("PERMISSION_DENIED", "not you")


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", {"kek-1": b"1" * 32}) as plugin:
        yield plugin


def _under_kms(cluster: LostKeyCluster, plugin: KMSPlugin) -> None:
    kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "1s"}}
    cluster.config.write_bytes(
        configuration_yaml(kms, provider("aescbc", key2=KEY_2), IDENTITY, resources=RESOURCES)
    )


def _written_by(cluster: LostKeyCluster, plugin: KMSPlugin, at: str) -> bytes:
    metadata = {"name": "one", "namespace": "shop", "uid": cluster.uid("one")}
    annotated = metadata | {"annotations": {"etcdfix.io/fixed-at": at}}
    value = json_object("v1", "Secret", "one", metadata=annotated, data={"password": DATA})
    return plugin.stored_v2(value, cluster.key("shop/one"))


@pytest.mark.parametrize("ours", [True, False])
def test_a_value_under_kms_settles_nothing_while_the_plugin_is_not_asked(
    cluster: LostKeyCluster, plugin: KMSPlugin, *, ours: bool
) -> None:
    _at_patch(cluster, lambda: cluster.p1.die_after(0))
    cluster.told("one", code=3)
    (patch,) = cluster.patches()
    at = patch["metadata"]["annotations"]["etcdfix.io/fixed-at"] if ours else "2001-01-01T00:00:00Z"
    cluster.place(cluster.key("shop/one"), _written_by(cluster, plugin, at))
    _under_kms(cluster, plugin)
    plugin.refusal = DENIED
    for flags, says in ((["--no-kms"], "--no-kms"), (["--no-kms", "--dry-run"], "--no-kms"), ([], "explain")):
        ran = _reconciled(cluster, *flags)
        assert ran.code == 3, ran
        assert "unknown" in ran.out
        assert "The intent stays open" in ran.out
        assert "when etcd answers" not in ran.out
        assert says in ran.out
        assert "applied-or-gone" not in ran.out
        cluster.shows_nothing(ran)
    plugin.refusal = None
    ran = _reconciled(cluster)
    assert (ran.code, "fixed" in ran.out, "applied-or-gone" in ran.out) == (0, ours, not ours), ran
    assert "no open intents" in _reconciled(cluster).out


def test_what_was_written_cannot_be_examined(cluster: LostKeyCluster, plugin: KMSPlugin) -> None:
    """The plugin fails just then: nothing is wrong with the value as far as anybody knows, and it stays open."""
    _tell_nothing(cluster.p1)
    _under_kms(cluster, plugin)
    path = "/api/v1/namespaces/shop/secrets/one?fieldManager=etcdfix"
    cluster.p1.behaviour.instead[path] = Answer(200, b"{}")

    def write() -> None:
        at = cluster.patches()[-1]["metadata"]["annotations"]["etcdfix.io/fixed-at"]
        cluster.place(cluster.key("shop/one"), _written_by(cluster, plugin, at))
        plugin.refusal = DENIED

    _at_patch(cluster, write)
    told = cluster.told("one", code=3)
    assert told["result"] == "unknown"
    assert "cannot be examined" in told["detail"]
    assert any("log settle" in step["command"] for step in told["follow_ups"])
    plugin.refusal = None
    assert "fixed" in _reconciled(cluster).out


@on_etcd
def test_an_open_heal_is_not_settled_by_another_change(cluster: LostKeyCluster) -> None:
    """Whoever deletes the key looks at no annotation; only reconciling with the configuration does."""
    _at_patch(cluster, lambda: cluster.p1.die_after(0))
    cluster.told("one", code=3)
    key = cluster.key("shop/one")
    cluster.place(cluster.key("shop/good"), cluster.sealed("good", uid=OTHER))
    cluster.place(key, cluster.sealed("one", uid=OTHER)[:-21])
    ran = cluster.delete(key, "--accept", "no-api-server", "--accept", "ends-cached-reads", "--dry-run")
    assert ran.code == 0, ran
    assert "stays open" in ran.err + ran.out
    ran = cluster.delete(key, "--accept", "no-api-server", "--accept", "ends-cached-reads")
    assert ran.code == 0, ran
    assert cluster.outcomes()[-2:] == ["unknown", "deleted"]
    assert "applied-or-gone" in _reconciled(cluster).out  # the key is gone: nothing will ever tell


def _reconciled(cluster: LostKeyCluster, *arguments: str) -> Ran:
    common = [*cluster.where, "--etcd-prefix", cluster.prefix]
    config = ["--encryption-config", str(cluster.config)]
    return cluster.run("log", "settle", *common, *config, *arguments, str(cluster.log))


@on_etcd
def test_the_unreadable_bytes_never_come_back_over_what_was_patched(cluster: LostKeyCluster) -> None:
    assert cluster.fix("one").code == 0
    (backup,) = cluster.kept()
    key = cluster.key("shop/one")
    with cluster.unwritten():
        ran = cluster.undo(backup.path, "--expect-mod-revision", str(cluster.mod_revision(key)))
    assert ran.code == 4, ran
    assert "cannot be undone" in ran.err


def test_no_copy_says_the_uid(lost: Lost) -> None:
    with lost("one", "two") as cluster:
        cluster.rescue("two")
        cluster.p1.lose_cache("secrets")
        _refused(cluster, "one", rule="not-from-memory", says="no saved copy says its uid")


@pytest.fixture
def ended(lost: Lost) -> Iterator[LostKeyCluster]:
    with lost() as cluster:
        RescueStore.open(cluster.saved).close()
        yield cluster


NO_UID = "no saved copy says its uid"


@on_etcd
@pytest.mark.parametrize(
    "spoil", ["generation", "cluster", "unlisted", "tampered", "identity", "unreadable", "no uid", "log"]
)
def test_a_backup_that_says_nothing(ended: LostKeyCluster, spoil: str) -> None:
    """Each differs in one thing from the backup that does say the uid."""
    first = ended.written_twice("one")
    uid, elsewhere = ended.uid("one"), None
    match spoil:
        case "generation":
            first = msgspec.structs.replace(first, create_revision=first.create_revision - 1)
        case "cluster":
            elsewhere = OTHER
        case "identity":
            first = msgspec.structs.replace(first, value=ended.sealed("two", uid=uid))
        case "unreadable":
            first = msgspec.structs.replace(first, value=ended.stored_value(first.key).value)
        case "no uid":
            first = msgspec.structs.replace(first, value=ended.sealed("one"))
    backup = ended.back_up(first, uid=elsewhere)
    match spoil:
        case "unlisted":
            ended.log.unlink()
            Path(f"{ended.log}.head").unlink()
        case "tampered":
            whole = backup.read_bytes()
            backup.write_bytes(whole.replace(b'"reason":"the', b'"reason":"The'))
            assert backup.read_bytes() != whole
        case "log":
            ended.log = ended.folder / "log" / "another.jsonl"
    ended.etcd.compact()
    ended.p1.lose_cache("secrets")
    refusal = _refused(ended, "one", rule="not-from-memory", says=NO_UID)
    assert "--backup-dir" in str(refusal["next_step"])


@on_etcd
def test_two_backups_say_different_uids(ended: LostKeyCluster) -> None:
    first = ended.written_twice("one")
    ended.back_up(first)
    ended.back_up(msgspec.structs.replace(first, value=ended.sealed("one", uid=OTHER)))
    ended.etcd.compact()
    ended.p1.lose_cache("secrets")
    _refused(ended, "one", rule="other-object", says=OTHER)


@on_etcd
def test_a_backup_that_etcd_contradicts_says_no_uid(ended: LostKeyCluster) -> None:
    """etcd still has the revision of the backup, with other bytes: the backup is of another etcd."""
    first = ended.written_twice("one")
    ended.back_up(msgspec.structs.replace(first, value=ended.sealed("one", uid=OTHER)))
    ended.p1.lose_cache("secrets")
    told = ended.told("one")
    assert told["result"] == "fixed"
    assert [patch["metadata"]["uid"] for patch in ended.patches()] == [ended.uid("one")]


@on_etcd
def test_a_saved_copy_and_a_backup_say_different_uids(ended: LostKeyCluster) -> None:
    first = ended.written_twice("one")
    ended.rescue("one")
    ended.back_up(msgspec.structs.replace(first, value=ended.sealed("one", uid=OTHER)))
    ended.etcd.compact()
    ended.p1.lose_cache("secrets")
    _refused(ended, "one", rule="other-object", says=f"{ended.uid('one')} by saved copy")


def test_a_saved_copy_of_an_earlier_object_says_nothing(ended: LostKeyCluster) -> None:
    """It was saved, deleted, and made anew under the same name."""
    ended.written_twice("one")
    ended.rescue("one")
    _made_anew(ended)
    ended.p1.lose_cache("secrets")
    _refused(ended, "one", rule="not-from-memory", says=NO_UID)


@on_etcd
def test_an_earlier_revision_of_an_object_that_was_made_anew(ended: LostKeyCluster) -> None:
    first = ended.written_twice("one")
    _made_anew(ended)
    ended.back_up(first)
    ended.p1.lose_cache("secrets")
    _refused(ended, "one", rule="not-from-memory", says=NO_UID)


def _made_anew(cluster: LostKeyCluster) -> None:
    cluster.remove(cluster.key("shop/one"))
    cluster.p1.wait()
    cluster.p1.reload(OLD)
    cluster.p1.create("v1", "Secret", "one", "shop", data={"password": DATA})
    cluster.p1.wait()
    cluster.p1.reload(NEW)


def test_an_earlier_revision_of_another_object_by_its_own_word(ended: LostKeyCluster) -> None:
    """A value that was moved there opens, and is of another object."""
    key = ended.key("shop/one")
    ended.place(key, ended.sealed("two", uid=OTHER))
    ended.place(key, aescbc(secret("one"), b"abcdefghijklmnop", "key3"))
    ended.p1.wait()
    ended.p1.lose_cache("secrets")
    _refused(ended, "one", rule="not-from-memory", says=NO_UID)


@on_etcd
@pytest.mark.parametrize("kept_in", ["etcd", "backup"])
def test_an_earlier_value_that_was_being_deleted(ended: LostKeyCluster, kept_in: str) -> None:
    when = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"]}
    first = ended.written_twice("one", **when)
    if kept_in == "backup":
        ended.back_up(first)
        ended.etcd.compact()
    ended.p1.lose_cache("secrets")
    _refused(
        ended, "one", rule="not-from-memory", says="it was being deleted (deletionTimestamp) already, by"
    )


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
        lost = Answer(500, b'{"kind": "Status"}')
        p2.behaviour.instead["/api/v1/namespaces/shop/secrets/one?resourceVersion=0"] = lost
        _refused(ended, "one", rule="not-rescued", says="shop/two")


def test_a_server_that_gives_it_after_all(ended: LostKeyCluster) -> None:
    """Then it can be saved, and has to be."""
    ended.written_twice("one")
    _refused(ended, "one", rule="not-rescued", says="was not saved yet")


def test_a_server_that_may_give_it_and_does_not_say(ended: LostKeyCluster) -> None:
    ended.written_twice("one")
    with beside(ended, NEW) as p2:
        ended.p1.lose_cache("secrets")
        p2.behaviour.instead["/api/v1/namespaces/shop/secrets/one?resourceVersion=0"] = Answer(504)
        _refused(ended, "one", rule="not-rescued", says=p2.url)


def test_the_uid_of_a_backup_and_no_server_that_holds_it(ended: LostKeyCluster) -> None:
    ended.written_twice("one")
    ended.p1.restart()
    with ended.unwritten():
        told = ended.told("one", code=4)
    assert told["refusal"]["rule"] == "server-refused"
    _copies_as_printed(ended, told["refusal"]["next_step"])


@on_etcd
def test_a_wrong_uid_of_a_backup_writes_nothing(ended: LostKeyCluster) -> None:
    """The server is told the uid, and refuses."""
    first = ended.written_twice("one")
    ended.back_up(msgspec.structs.replace(first, value=ended.sealed("one", uid=OTHER)))
    ended.etcd.compact()
    ended.p1.lose_cache("secrets")
    with ended.unwritten():
        told = ended.told("one", code=4)
    assert told["refusal"]["rule"] == "server-refused"
    assert [patch["metadata"]["uid"] for patch in ended.patches()] == [OTHER]


def test_a_saved_copy_that_is_gone_cannot_be_saved_again(cluster: LostKeyCluster) -> None:
    for path in cluster.saved.glob("*.json"):
        path.unlink()
    cluster.p1.lose_cache("secrets")
    refusal = _refused(cluster, rule="not-rescued")
    assert "no API server gives it any more" in str(refusal["next_step"])


def test_a_wrong_uid_from_a_forged_copy_writes_nothing(cluster: LostKeyCluster) -> None:
    """File and index bear each other out; the server is told the uid, and refuses."""
    forged, lines = "00000000-0000-0000-0000-000000000000", []
    index = cluster.saved / "index.jsonl"
    for line in map(json.loads, index.read_text().splitlines()):
        raw = (cluster.saved / line["file"]).read_bytes().replace(line["uid"].encode(), forged.encode())
        sha256 = digest_of(raw)
        name = file_name(base64.b64decode(line["key_base64"]), line["resource_version"], sha256)
        (cluster.saved / name).write_bytes(raw)
        lines.append(line | {"uid": forged, "sha256": sha256, "file": name, "size": len(raw)})
    index.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cluster.p1.lose_cache("secrets")
    with cluster.unwritten():
        told = cluster.told("one", code=4)
    assert told["refusal"]["rule"] == "server-refused"
    assert [patch["metadata"]["uid"] for patch in cluster.patches()] == [forged]


def test_a_server_that_was_restarted_holds_nothing(cluster: LostKeyCluster) -> None:
    cluster.p1.restart()
    with cluster.unwritten():
        told = cluster.told("one", code=4)
    assert told["refusal"]["rule"] == "server-refused"
    assert "still holds it" in told["refusal"]["message"]
    left = _copies_as_printed(cluster, told["refusal"]["next_step"])
    assert "doubtful copy" in left.out


def test_a_balancer_sends_the_change_to_another_server(cluster: LostKeyCluster) -> None:
    """Its address stands for one server now and for another later; the holder is asked by its own address."""
    with beside(cluster, NEW) as p2:  # started since: it has nothing

        def balanced(request: Request) -> Answer:
            # Who asks the balancer finds the holder; whoever changes something there finds the other.
            return (p2 if request.method == "PATCH" else cluster.p1).answer(request)

        balancer = Listener(cluster.p1.authority, balanced, hosts=("127.0.0.1",))
        try:
            cluster.kubeconfig = balancer.kubeconfig(cluster.folder)
            assert f"by {cluster.p1.url}, with" in cluster.told("one")["detail"]
        finally:
            balancer.stop()


def test_a_dry_run_promises_nothing(cluster: LostKeyCluster) -> None:
    cluster.p1.lose_cache("secrets")
    with cluster.unwritten():
        ran = cluster.fix("one", "--dry-run")
    assert ran.code == 0, ran
    assert "Whether a server still holds it is known only" in ran.err


def test_the_second_server_still_holds_it(cluster: LostKeyCluster) -> None:
    with beside(cluster, NEW):  # started since: it holds nothing, and the first one's cached reads have ended
        cluster.p1.lose_cache("secrets")
        told = cluster.told("one")
    assert told["result"] == "fixed"
    assert f"by {cluster.p1.url}, with" in told["detail"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_outcome(cluster: LostKeyCluster, number: signal.Signals) -> None:
    _at_patch(cluster, lambda: os.kill(os.getpid(), number))
    assert cluster.told("one")["result"] == "fixed"
    assert cluster.outcomes() == ["fixed"]


def test_only_patches_and_reads_reach_the_servers(cluster: LostKeyCluster) -> None:
    for name in ("one", "two", "three"):
        assert cluster.fix(name).code == 0
    assert cluster.p1.methods == {"GET", "PATCH"}
    assert all("dryRun" not in request.path for request in cluster.p1.requests)
