"""After a deletion: what API servers show of their recovery, against a stand-in over real TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.apiserver import recovery
from etcdfix.apiserver.client import AuthorizationRefused
from etcdfix.apiserver.kubeconfig import APIAccess, KubeconfigInvalid
from etcdfix.apiserver.recovery import Sign, watch_recovery
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.fixtures import Patch
from tests.support.kubernetes_api import TOKEN, Answer, KubernetesAPI, status_answer

SECRETS = "/api/v1/secrets"
CACHED = f"{SECRETS}?resourceVersion=0"
NOT_READY = Answer(
    500,
    b"[+]ping ok\n[-]informer-sync failed: reason withheld\n[-]poststarthook/x failed: y\nreadyz check failed\n",
)
WELL = ["LIST works", "resourceVersion=0 works", "/readyz works"]


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority) as server:
        yield server


@pytest.fixture(autouse=True)
def _quick(monkeypatch: Patch) -> None:
    monkeypatch.setattr(recovery, "_REQUEST_SECONDS", 2.0)


def texts(signs: list[Sign]) -> list[str]:
    return [f"{sign.request} {sign.text}" for sign in signs]


class Clock:
    """Takes the place of waiting: time passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1


@pytest.fixture(autouse=True)
def clock(monkeypatch: Patch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(recovery, "time", clock)
    return clock


def look(
    api: KubernetesAPI, folder: Path, *servers: str, collection: str = SECRETS, seconds: float = 60
) -> list[Sign]:
    access = APIAccess(api.kubeconfig(folder))
    return watch_recovery(access, servers or [api.url], collection, seconds=seconds)[0]


def test_well_after_a_while(api: KubernetesAPI, tmp_path: Path, clock: Clock) -> None:
    good = Answer(200, b"{}")
    api.before = {CACHED: [status_answer(429), status_answer(429), good], "/readyz": [NOT_READY, good]}
    assert texts(look(api, tmp_path)) == WELL
    assert clock.pauses == 2
    # What is well is not asked for again: a list of everything is dear.
    asked = [request.path for request in api.requests]
    assert {path: asked.count(path) for path in asked} == {SECRETS: 1, CACHED: 3, "/readyz": 2}


def test_what_stays_bad_is_named(api: KubernetesAPI, tmp_path: Path, clock: Clock) -> None:
    api.instead = {
        SECRETS: status_answer(500, "secret words"), CACHED: status_answer(429), "/readyz": NOT_READY,
    }  # fmt: skip
    found = look(api, tmp_path, seconds=0)
    assert clock.pauses == 0
    assert all(sign.failing for sign in found)
    assert texts(found) == [
        "LIST answers 500", "resourceVersion=0 answers 429", "/readyz fails: informer-sync, poststarthook/x",
    ]  # fmt: skip


def test_what_may_not_be_seen_is_not_waited_for(api: KubernetesAPI, tmp_path: Path, clock: Clock) -> None:
    api.instead = {
        SECRETS: status_answer(403),
        CACHED: status_answer(401),
        "/readyz": Answer(404, b"404 page not found\n"),
    }
    found = look(api, tmp_path)
    assert clock.pauses == 0
    assert not any(sign.failing for sign in found)
    assert [sign.text for sign in found] == [
        "may not be looked at by this user (403)",
        "may not be looked at by this user (401)",
        "is not served (404)",
    ]


def test_servers_are_looked_at_side_by_side_and_only_as_long_as_needed(
    api: KubernetesAPI, authority: CertificateAuthority, tmp_path: Path, clock: Clock
) -> None:
    with KubernetesAPI(authority) as other:
        other.before = {"/readyz": [NOT_READY, Answer(200, b"ok")]}
        found = look(api, tmp_path, api.url, other.url)
    assert [sign.server for sign in found] == [api.url] * 3 + [other.url] * 3
    assert not any(sign.failing for sign in found)
    assert clock.pauses == 1
    assert len(api.asked("/readyz")) == 1


@pytest.mark.parametrize("switch", ["stall", "drip", "hang_up"])
def test_a_server_that_does_not_answer(api: KubernetesAPI, tmp_path: Path, switch: str) -> None:
    getattr(api, switch).add(SECRETS)
    found = look(api, tmp_path, seconds=0)
    assert any(sign.failing for sign in found) is (
        switch != "drip"
    )  # its status came, and that is all that is wanted


def test_a_server_that_does_not_stop_talking(api: KubernetesAPI, tmp_path: Path) -> None:
    api.drip.add("/readyz")
    found = look(api, tmp_path, seconds=0)
    assert [sign.text for sign in found] == ["works", "works", "no answer within 2 s"]


def test_checks_with_hostile_names_are_not_repeated(api: KubernetesAPI, tmp_path: Path) -> None:
    api.instead["/readyz"] = Answer(500, b"[-]\x1b[31mred failed\n[-]etcd\x1b[0m failed\n")
    found = look(api, tmp_path, seconds=0)
    assert found[-1].text == "fails: etcd"


def test_a_server_that_nothing_vouches_for(api: KubernetesAPI, tmp_path: Path) -> None:
    found = look(api, tmp_path, "http://127.0.0.1:1", seconds=0)
    assert {sign.text for sign in found} == {
        "nothing proves that http://127.0.0.1:1 is the API server: the kubeconfig asks for no verified TLS"
    }


def test_a_server_whose_certificate_has_another_name(
    api: KubernetesAPI, authority: CertificateAuthority, tmp_path: Path
) -> None:
    """It proves itself under the host of the kubeconfig's server, as it did before the deletion."""
    with KubernetesAPI(authority, hosts=("localhost",)) as other:

        def by_name(config: dict[str, Any]) -> None:
            config["clusters"][0]["cluster"]["server"] = f"https://localhost:{api.port}"

        access = APIAccess(api.kubeconfig(tmp_path, change=by_name))
        found, _ = watch_recovery(access, [other.url], SECRETS, seconds=0)
    assert texts(found) == WELL


def test_another_name_is_not_tried_where_the_certificate_is_not_the_trouble(
    api: KubernetesAPI, authority: CertificateAuthority, tmp_path: Path
) -> None:
    with KubernetesAPI(authority, hosts=("localhost", "127.0.0.1")) as other:
        other.hang_up.add("/readyz")

        def by_name(config: dict[str, Any]) -> None:
            config["clusters"][0]["cluster"]["server"] = f"https://localhost:{api.port}"

        access = APIAccess(api.kubeconfig(tmp_path, change=by_name))
        found, _ = watch_recovery(access, [other.url], SECRETS, seconds=0)
        assert [sign.failing for sign in found] == [False, False, True]
        assert len(other.asked("/readyz")) == 1


def test_credentials_that_cannot_be_had(api: KubernetesAPI, tmp_path: Path) -> None:
    access = APIAccess(api.kubeconfig(tmp_path), "no-such-context")
    with pytest.raises((AuthorizationRefused, KubeconfigInvalid)) as caught:
        watch_recovery(access, [api.url], SECRETS)
    assert TOKEN not in str(caught.value)
