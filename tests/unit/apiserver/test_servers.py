from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.apiserver import client as api_client
from etcdfix.apiserver import objects
from etcdfix.apiserver.client import AuthorizationRefused, RefusalReason
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.objects import Answer, APIObject, Foretold, ServerAnswer
from etcdfix.apiserver.reading import ask_servers
from etcdfix.apiserver.servers import ServerAnswers, parse_server_url
from etcdfix.model.errors import ConfigurationError, RefusedByRule
from etcdfix.model.model import ClusterIdentity, KnownBy
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.fixtures import Patch
from tests.support.kubernetes_api import (
    ACCESS_REVIEW,
    ENDPOINTS,
    KUBE_SYSTEM,
    TOKEN,
    UID,
    KubernetesAPI,
    object_answer,
    read_error,
    status_answer,
)
from tests.support.kubernetes_api import Answer as Played

Start = Callable[..., KubernetesAPI]
SECRET = "/api/v1/namespaces/shop/secrets/web"
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"
WIDGETS = "/apis/example.com"
NO_PAGE = Played(404, b"404 page not found\n")


@pytest.fixture
def start(authority: CertificateAuthority) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda **how: stack.enter_context(KubernetesAPI(authority, **{"holds": False, **how}))


@pytest.fixture
def api(start: Start) -> KubernetesAPI:
    return start()


def ask(kubeconfig: Path, *servers: str, **options: Any) -> ServerAnswers:
    thing = APIObject("", "v1", "secrets", "shop", "web")
    named = {name: options.pop(name) for name in APIObject.__struct_fields__ if name in options}
    wanted: dict[str, Any] = {"cluster": ClusterIdentity.by_uid(UID), "held": False, **options}
    return ask_servers(
        APIAccess(kubeconfig, servers=servers), msgspec.structs.replace(thing, **named), **wanted
    )


def one(found: ServerAnswers) -> tuple[Answer, str]:
    (said,) = found.answers
    assert TOKEN not in str(found)
    return said.answer, said.detail


def answers(found: ServerAnswers) -> list[tuple[str, Answer]]:
    return [(said.server, said.answer) for said in found.answers]


def refused_by(rule: str, kubeconfig: Path, *servers: str, **options: Any) -> RefusedByRule:
    with pytest.raises(RefusedByRule) as caught:
        ask(kubeconfig, *servers, **options)
    assert caught.value.rule == rule
    assert caught.value.exit_code == 4
    assert caught.value.hint
    return caught.value


def test_server_that_does_not_find_what_etcd_holds(api: KubernetesAPI, start: Start, tmp_path: Path) -> None:
    """It reads another etcd, so it cannot say whether its encryption configuration opens the value."""
    with pytest.raises(
        AuthorizationRefused, match="finds no secrets shop/web, though etcd holds it"
    ) as caught:
        ask(api.kubeconfig(tmp_path), held=True)
    assert (caught.value.reason, caught.value.exit_code) == (RefusalReason.OTHER_CLUSTER, 4)
    assert "--etcd-servers" in caught.value.hint
    other = start(holds=True)
    found = ask(api.kubeconfig(tmp_path), other.url, held=True)
    assert answers(found) == [(api.url, Answer.NOT_FOUND), (other.url, Answer.READ_ERROR)]
    assert found.authorization is not None
    assert found.authorization.server == other.url


def test_a_server_that_does_not_read_it_and_allows_it(api: KubernetesAPI, tmp_path: Path) -> None:
    found = ask(api.kubeconfig(tmp_path))
    assert found.answers == (ServerAnswer(server=api.url, answer=Answer.NOT_FOUND),)
    assert found.warnings == ()
    assert found.authorization is not None
    assert (found.authorization.server, found.authorization.user_name) == (api.url, "alice@example.org")
    (asked,) = [request for request in api.requests if request.path == SECRET]
    # Metadata only where the server knows how, the object where not; and from etcd, not from the server's memory.
    assert asked.accept == ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json")
    assert asked.method == "GET"


@pytest.mark.parametrize("metadata", [{"name": "web", "uid": "u-1"}, {"name": "x"}, {"uid": "u"}])
def test_a_server_that_reads_it(api: KubernetesAPI, tmp_path: Path, metadata: dict[str, str]) -> None:
    api.instead[SECRET] = object_answer(**metadata)
    error = refused_by("configuration-wrong", api.kubeconfig(tmp_path))
    assert str(error).startswith(
        f"the API server at {api.url} reads secrets shop/web: the configuration given"
    )
    assert "--encryption-provider-config" in error.hint
    assert api.asked(ACCESS_REVIEW) == []


def test_a_server_that_knows_no_partial_objects(api: KubernetesAPI, tmp_path: Path) -> None:
    """Nothing of what it sends is said, whatever is said of it."""
    whole = {
        "kind": "Secret", "metadata": {"name": "web"}, "data": {"password": "never-to-be-shown" * 100_000},
    }  # fmt: skip
    api.instead[SECRET] = Played(200, json.dumps(whole).encode())
    error = refused_by("configuration-wrong", api.kubeconfig(tmp_path))
    assert "never-to-be-shown" not in f"{error!r}{error.__cause__!r}{error.__context__!r}"


def test_where_the_change_does_not_rest_on_it(api: KubernetesAPI, tmp_path: Path) -> None:
    api.reads = True
    found = ask(api.kubeconfig(tmp_path), readable_is_fine=True)
    assert one(found) == (Answer.READS_IT, "")
    assert found.authorization is not None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"null", b'{"kind":"Secret"}',
        b'{"kind":"Secret","metadata":{"name":null}}',
        b'{"kind":"\xff","metadata":{}}', b"[" * 100_000, b"<html>",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)  # fmt: skip
def test_doubt_about_an_answer_at_200_is_no_proof_that_nothing_is_read(
    api: KubernetesAPI, tmp_path: Path, body: bytes
) -> None:
    """An API server of this cluster that puts together what cannot be parsed has read something."""
    api.instead[SECRET] = Played(200, body)
    error = refused_by("configuration-wrong", api.kubeconfig(tmp_path))
    assert "it answered 200, and the answer cannot be understood" in str(error)


def test_an_answer_that_is_too_long(api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(objects, "_LONGEST_OBJECT", 100)
    api.instead[SECRET] = Played(200, b'{"kind":"Secret","metadata":{}}' + b" " * 100)
    refused_by("configuration-wrong", api.kubeconfig(tmp_path))


@pytest.mark.parametrize(
    "instead",
    [
        status_answer(404, name="other"),
        status_answer(500, "etcdserver: request timed out"),
        Played(500, b"\xff" * (9 << 20)),
        read_error("failed calling webhook: unexpected EOF"),
        object_answer(),
    ],
)
def test_what_counts_as_none(api: KubernetesAPI, tmp_path: Path, instead: Played) -> None:
    """It is neither a read error of the value at hand nor the Status of this object."""
    foretold = Foretold("unexpected EOF")
    api.instead[SECRET] = instead
    found = ask(api.kubeconfig(tmp_path), foretold=foretold)
    assert (one(found)[0], found.authorization) == (Answer.NO_ANSWER, None)
    for fails in (read_error(), read_error("unexpected EOF", reason=None)):
        api.instead[SECRET] = fails
        found = ask(api.kubeconfig(tmp_path), foretold=foretold)
        assert one(found) == (Answer.READ_ERROR, "")
        assert found.authorization is not None
    api.instead[SECRET] = object_answer()
    assert one(ask(api.kubeconfig(tmp_path), foretold=Foretold("", empty=True))) == (Answer.EMPTY, "")


def test_a_version_whose_webhook_fails_is_not_the_last_word(api: KubernetesAPI, tmp_path: Path) -> None:
    api.versions["example.com"] = ["v2", "v1"]
    api.instead[widget("v2")] = read_error("conversion webhook for widgets failed: EOF")
    api.instead[widget("v1")] = read_error()
    foretold = Foretold("unexpected EOF")
    assert one(ask(api.kubeconfig(tmp_path), foretold=foretold, **CUSTOM)) == (Answer.READ_ERROR, "")
    api.instead[widget("v1")] = NO_PAGE
    assert one(ask(api.kubeconfig(tmp_path), foretold=foretold, **CUSTOM))[0] is Answer.NO_ANSWER
    api.instead[widget("v1")] = object_answer(name="one")
    refused_by("configuration-wrong", api.kubeconfig(tmp_path), foretold=foretold, **CUSTOM)


@pytest.mark.parametrize(
    ("instead", "answer", "detail"),
    [
        (status_answer(401), Answer.DENIED, "it does not know the kubeconfig's user (401)"),
        (Played(429, b"busy"), Answer.NO_ANSWER, "it answered 429: it has too much to do"),
        (Played(302, headers=(("Location", "/elsewhere"),)), Answer.NO_ANSWER, "it answered 302"),
    ],
)
def test_what_does_not(
    api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch, instead: Played, answer: Answer, detail: str
) -> None:
    """Then nobody is asked for permission either; one that has too much to do is asked again."""
    monkeypatch.setattr(api_client, "sleep", lambda _seconds: None)
    api.instead[SECRET] = instead
    found = ask(api.kubeconfig(tmp_path))
    assert one(found) == (answer, detail)
    assert found.authorization is None
    assert api.asked(SECRET) == [SECRET] * (6 if found.answers[0].passing else 1)
    assert api.asked(ACCESS_REVIEW, "/elsewhere") == []


def test_a_connection_that_breaks_off(api: KubernetesAPI, tmp_path: Path) -> None:
    api.hang_up = {SECRET}
    found = ask(api.kubeconfig(tmp_path))
    assert one(found) == (Answer.NO_ANSWER, "the connection failed (ProtocolError)")
    assert found.authorization is None
    api.hang_up = {KUBE_SYSTEM}
    found = ask(api.kubeconfig(tmp_path))
    assert one(found) == (Answer.NO_ANSWER, "no connection comes about, or it breaks off")
    assert api.asked(SECRET) == [SECRET]


@pytest.mark.parametrize(("how", "path"), [("stall", KUBE_SYSTEM), ("stall", SECRET), ("drip", SECRET)])
def test_a_server_that_takes_for_ever(
    api: KubernetesAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, path: str
) -> None:
    monkeypatch.setattr(api_client, "REQUEST_SECONDS", 0.1)
    setattr(api, how, {path})
    found = ask(api.kubeconfig(tmp_path))
    answer, detail = one(found)
    assert answer is Answer.NO_ANSWER
    assert "answer" in detail
    assert found.authorization is None


def test_a_name_that_no_request_can_carry(api: KubernetesAPI, tmp_path: Path) -> None:
    """Such a path would name something else: ``..`` the namespace, ``.`` the list of all."""
    api.reads = True
    for name in (".", "..", "a/b", "a%2fb"):
        found = ask(api.kubeconfig(tmp_path), name=name)
        assert one(found) == (Answer.NOT_FOUND, "no request can name it")
        assert found.authorization is not None
    assert one(ask(api.kubeconfig(tmp_path), version="..")) == (Answer.NOT_FOUND, "no request can name it")
    assert api.asked("/api/v1/namespaces/shop") == []


def test_an_unknown_uid_in_etcd_cannot_be_the_same(api: KubernetesAPI, tmp_path: Path) -> None:
    api.uid = ""
    with pytest.raises(AuthorizationRefused, match="nothing in etcd names the cluster") as caught:
        ask(api.kubeconfig(tmp_path), cluster=ClusterIdentity())
    assert caught.value.reason == RefusalReason.OTHER_CLUSTER
    assert api.requests == []


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        (status_answer(403), RefusalReason.FORBIDDEN),
        (status_answer(500), RefusalReason.SERVER_ERROR),
        (Played(200, b"<html>"), RefusalReason.MALFORMED_ANSWER),
    ],
)
@pytest.mark.parametrize("held", [True, False])
def test_a_server_that_does_not_show_whose_it_is(
    api: KubernetesAPI, tmp_path: Path, instead: Played, reason: RefusalReason, *, held: bool
) -> None:
    """What it does not find proves nothing; what it reads still speaks against the configuration."""
    api.instead[KUBE_SYSTEM] = instead
    with pytest.raises(AuthorizationRefused) as caught:
        ask(api.kubeconfig(tmp_path), held=held)
    assert caught.value.reason == reason
    assert api.asked(ENDPOINTS, ACCESS_REVIEW) == []
    api.reads = True
    refused_by("configuration-wrong", api.kubeconfig(tmp_path))
    api.instead[SECRET] = Played(200, b"<html>")
    assert one(ask(api.kubeconfig(tmp_path))) == (
        Answer.NO_ANSWER,
        "it answered 200, and the answer cannot be understood",
    )


def test_one_that_was_compared_gives_the_permission(api: KubernetesAPI, start: Start, tmp_path: Path) -> None:
    """The first cannot read its kube-system, and nothing in etcd can be held against that."""
    api.instead[KUBE_SYSTEM] = status_answer(500)
    other = start()
    cluster = ClusterIdentity(known_by=KnownBy.CREATE_REVISION, created=3, changed=4, cluster_id="1")
    found = ask(api.kubeconfig(tmp_path), other.url, cluster=cluster)
    assert answers(found) == [(api.url, Answer.NOT_FOUND), (other.url, Answer.NOT_FOUND)]
    assert "it was not compared which cluster it is of" in found.answers[0].detail
    assert found.authorization is not None
    assert found.authorization.server == other.url


def test_what_stranger_reads_is_no_word_for_cluster(api: KubernetesAPI, start: Start, tmp_path: Path) -> None:
    """Where the object may be read, permission is asked of a server of this cluster only."""
    api.instead[KUBE_SYSTEM] = status_answer(403)
    api.reads = True
    kubeconfig = api.kubeconfig(tmp_path)
    assert ask(kubeconfig, readable_is_fine=True).authorization is None
    other = start()
    found = ask(kubeconfig, other.url, readable_is_fine=True)
    assert answers(found) == [(other.url, Answer.NOT_FOUND), (api.url, Answer.READS_IT)]
    assert found.authorization is not None
    assert found.authorization.server == other.url
    assert api.asked(ACCESS_REVIEW) == []


def test_one_of_another_cluster_among_them(api: KubernetesAPI, start: Start, tmp_path: Path) -> None:
    """It finds no such object, and would be taken for an answer."""
    other = start(uid="another")
    for servers, listed in (((other.url,), []), ((), [("127.0.0.1", other.port)])):
        api.listed = listed
        with pytest.raises(AuthorizationRefused) as caught:
            ask(api.kubeconfig(tmp_path), *servers)
        assert caught.value.reason == RefusalReason.OTHER_CLUSTER
        assert other.url in str(caught.value)
    assert other.asked(SECRET) == []


def test_the_kubeconfigs_own_server_is_gone(api: KubernetesAPI, start: Start, tmp_path: Path) -> None:
    other, listed = start(), start()
    other.listed = [("127.0.0.1", listed.port)]
    kubeconfig = api.kubeconfig(tmp_path)
    api.stop()
    found = ask(kubeconfig, other.url)
    assert answers(found) == [
        (other.url, Answer.NOT_FOUND), (listed.url, Answer.NOT_FOUND), (api.url, Answer.NO_ANSWER),
    ]  # fmt: skip
    assert found.authorization is not None
    assert found.authorization.server == other.url
    nobody = ask(kubeconfig)
    assert one(nobody) == (Answer.NO_ANSWER, "no connection comes about, or it breaks off")
    assert nobody.authorization is None
    assert nobody.warnings == ()


def test_a_server_that_cannot_be_verified_is_told_nothing(
    api: KubernetesAPI, start: Start, tmp_path: Path
) -> None:
    stranger = CertificateAuthority(tmp_path / "other", name="somebody else")
    with KubernetesAPI(stranger, reads=True) as somebody:
        elsewhere = start(hosts=("elsewhere.example",), reads=True)
        api.listed = [("127.0.0.1", somebody.port)]
        found = ask(api.kubeconfig(tmp_path), elsewhere.url)
        assert answers(found) == [
            (api.url, Answer.NOT_FOUND), (elsewhere.url, Answer.NO_ANSWER), (somebody.url, Answer.NO_ANSWER),
        ]  # fmt: skip
        assert "nothing proves who answers" in found.answers[1].detail
        assert somebody.requests == elsewhere.requests == []


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        (status_answer(403), "the answer to that was 403"),
        (Played(500, b'{"kind":"Endpoints"}'), "the answer to that was 500"),
        (Played(200, b"x" * (2 << 20)), "that answer could not be understood"),
        (
            Played(
                200,
                b'{"kind":"Endpoints","subsets":[{"addresses":[{"ip":"evil.example/"}],"ports":[{"port":1}]}]}',
            ),
            "that answer could not be understood",
        ),
    ],
)
def test_a_list_of_servers_that_is_not_there_is_said(
    api: KubernetesAPI, tmp_path: Path, instead: Played, why: str
) -> None:
    api.instead[ENDPOINTS] = instead
    found = ask(api.kubeconfig(tmp_path))
    assert found.warnings == (f"which API servers service default/kubernetes lists is not known: {why}",)
    assert found.authorization is not None


DEPLOYMENTS = {"group": "apps", "version": "v1beta1", "resource": "deployments"}
CUSTOM = {"group": "example.com", "version": "", "resource": "widgets"}


def widget(version: str) -> str:
    return f"{WIDGETS}/{version}/namespaces/shop/widgets/web"


def test_a_version_that_is_not_served(api: KubernetesAPI, tmp_path: Path) -> None:
    """That it does not find the object in a version that it does not have, says nothing of the object."""
    found = ask(api.kubeconfig(tmp_path), **DEPLOYMENTS)
    assert one(found) == (Answer.NOT_FOUND, "")
    assert api.asked(DEPLOYMENT) == [DEPLOYMENT]
    api.reads = True
    refused_by("configuration-wrong", api.kubeconfig(tmp_path), **DEPLOYMENTS)


def test_a_version_that_cannot_be_converted_to(
    api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Its webhook is down, and the object is read in the version in which it is stored."""
    monkeypatch.setattr(api_client, "sleep", lambda _seconds: None)
    api.versions["example.com"] = ["v2", "v1"]
    api.instead[widget("v2")] = status_answer(500)
    api.reads = True
    refused_by("configuration-wrong", api.kubeconfig(tmp_path), **CUSTOM)
    api.instead[widget("v1")] = status_answer(500)
    assert one(ask(api.kubeconfig(tmp_path), **CUSTOM)) == (Answer.READ_ERROR, "")
    api.instead[widget("v1")] = NO_PAGE
    assert one(ask(api.kubeconfig(tmp_path), **CUSTOM)) == (Answer.READ_ERROR, "")
    api.instead[widget("v1")] = status_answer(503)
    assert one(ask(api.kubeconfig(tmp_path), **CUSTOM)) == (Answer.NO_ANSWER, "it answered 503")


@pytest.mark.parametrize(
    ("group", "resource"),
    [("example.com", "widgets"), ("apps", "deployments")],
)
@pytest.mark.parametrize("served", [(), ("v1", "v2")])
@pytest.mark.parametrize("page", [NO_PAGE, status_answer(404), status_answer(404, name="other")])
def test_a_404_that_does_not_name_the_object_is_no_answer(
    api: KubernetesAPI, tmp_path: Path, group: str, resource: str, served: tuple[str, ...], page: Played
) -> None:
    """A load balancer answers so as well as a server that does not serve the resource."""
    api.versions.clear()
    if served:
        api.versions[group] = list(served)
    for version in ("v1", "v2"):
        api.instead[f"/apis/{group}/{version}/namespaces/shop/{resource}/web"] = page
    for version in ("", "v1"):
        found = ask(api.kubeconfig(tmp_path), group=group, version=version, resource=resource)
        assert (one(found)[0], found.authorization) == (Answer.NO_ANSWER, None)


@pytest.mark.parametrize(
    ("instead", "detail"),
    [
        (status_answer(403), "asked which versions it serves, it answered 403"),
        (Played(200, b"x"), "which versions it serves could not be understood"),
        (Played(200, b" " * (2 << 20)), "which versions it serves could not be understood"),
    ],
)
def test_versions_that_are_not_told(api: KubernetesAPI, tmp_path: Path, instead: Played, detail: str) -> None:
    api.instead[WIDGETS] = instead
    found = ask(api.kubeconfig(tmp_path), **CUSTOM)
    assert one(found) == (Answer.NO_ANSWER, detail)
    assert found.authorization is None
    api.instead.clear()
    api.hang_up = {WIDGETS}
    assert one(ask(api.kubeconfig(tmp_path), **CUSTOM)) == (
        Answer.NO_ANSWER,
        "the connection failed (ProtocolError)",
    )


def test_versions_that_lead_elsewhere(api: KubernetesAPI, tmp_path: Path) -> None:
    api.versions["example.com"] = ["..", "", "v1/namespaces/x", "v1"]
    assert one(ask(api.kubeconfig(tmp_path), **CUSTOM)) == (Answer.NOT_FOUND, "")
    assert api.asked(WIDGETS) == [WIDGETS, widget("v1")]
    api.instead[WIDGETS] = Played(200, b'{"kind":"APIGroup","versions":[{"version":"v1"}]}')
    assert one(ask(api.kubeconfig(tmp_path), **CUSTOM)) == (Answer.NOT_FOUND, "")


@pytest.mark.parametrize("url", ["https://a", "https://10.0.0.1:6443", "https://[fd00::1]:6443/x/y"])
def test_addresses(url: str) -> None:
    assert parse_server_url(url) == parse_server_url(f"{url}/") == url


@pytest.mark.parametrize(
    "url",
    ["", "a", "http://a", "https://", "https:///x", "https://a:x", "https://a:0", "https://a:99999", "https://[::1",
     "https://a?b", "https://a#b", "https://a b", "https://a\n", "https://u:secret@a", "HTTPS//a"],
)  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_server_url(url)
    assert "secret" not in f"{caught.value}{caught.value.hint}"
