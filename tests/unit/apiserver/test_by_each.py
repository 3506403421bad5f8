"""All servers asked about one object: who reads it, who has it in memory, and who may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etcdfix.apiserver import memory, reading
from etcdfix.apiserver.client import AuthorizationRefused, Server
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.memory import Memory, remembered_by_each
from etcdfix.apiserver.objects import Answer, APIObject
from etcdfix.apiserver.reading import read_by_each
from etcdfix.apiserver.servers import Absent, AllServers, open_all_servers
from etcdfix.model.model import ClusterIdentity
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver import MemoryStore, StandIn
from tests.support.fixtures import Patch
from tests.support.healing import NEW, OLD

ONE = APIObject("", "v1", "secrets", "shop", "one")


@contextmanager
def asked(server: StandIn, folder: Path, *others: StandIn) -> Iterator[AllServers]:
    api = APIAccess(server.kubeconfig(folder), servers=tuple(other.url for other in others))
    with open_all_servers(api, ClusterIdentity.by_uid(server.uid)) as all_servers:
        yield all_servers


@pytest.fixture
def server(authority: CertificateAuthority) -> Iterator[StandIn]:
    with StandIn(authority, store=MemoryStore(), configuration=OLD, given_up_after=0.1) as server:
        server.create("v1", "Secret", "one", "shop", data={"p": "eA=="})
        server.wait()
        server.reload(NEW)
        yield server


def test_one_that_kept_its_memory_and_one_that_was_started_since(
    server: StandIn, authority: CertificateAuthority, tmp_path: Path
) -> None:
    with (
        StandIn(authority, store=server.store, configuration=NEW, furnished=False) as later,
        asked(server, tmp_path, later) as all_servers,
    ):
        assert [said.answer for said in read_by_each(all_servers, ONE)] == [Answer.READ_ERROR] * 2
        first, second = remembered_by_each(all_servers, ONE)
    assert (first.server.address, first.memory.word) == (server.url, Memory.HELD)
    assert first.memory.path == "/api/v1/namespaces/shop/secrets/one"
    assert first.memory.identity is not None
    assert not first.may_hold
    assert (second.server.address, second.memory.word, second.may_hold) == (
        later.url, Memory.READ_ERROR, True,
    )  # fmt: skip


def test_versions_are_tried_until_one_is_held(server: StandIn, tmp_path: Path) -> None:
    server.create("apps/v1", "Deployment", "web", "shop", spec={})
    server.wait()
    with asked(server, tmp_path) as all_servers:
        (found,) = remembered_by_each(all_servers, APIObject("apps", "v1beta1", "deployments", "shop", "web"))
        assert (found.memory.word, found.memory.path) == (
            Memory.HELD,
            "/apis/apps/v1/namespaces/shop/deployments/web",
        )
        (none,) = remembered_by_each(all_servers, APIObject("nobody.example", "", "things", "shop", "web"))
        assert none.memory.word is Memory.NOT_SERVED
        assert not none.may_hold


def test_those_that_cannot_be_asked_stand_among_the_answers(server: StandIn, tmp_path: Path) -> None:
    with asked(server, tmp_path) as all_servers:
        all_servers.absent = [Absent("https://a", "gone"), Absent("https://b", "no", denied=True)]
        answers = read_by_each(all_servers, ONE)
    assert [(said.server, said.answer) for said in answers[1:]] == [
        ("https://a", Answer.NO_ANSWER),
        ("https://b", Answer.DENIED),
    ]


def test_a_failure_that_nobody_foresaw_is_no_answer(
    server: StandIn, tmp_path: Path, monkeypatch: Patch
) -> None:
    def broken(_server: Server, thing: APIObject, **_more: object) -> None:
        raise ZeroDivisionError("never-to-be-shown")

    monkeypatch.setattr(reading, "read_object", broken)
    monkeypatch.setattr(memory, "remember", broken)
    with asked(server, tmp_path) as all_servers:
        (said,) = read_by_each(all_servers, ONE)
        assert (said.answer, said.detail) == (Answer.NO_ANSWER, "ZeroDivisionError")
        (held,) = remembered_by_each(all_servers, ONE)
        assert (held.memory.word, held.memory.detail) == (Memory.NO_ANSWER, "ZeroDivisionError")


def test_what_forbids_to_go_on_is_raised(server: StandIn, tmp_path: Path, monkeypatch: Patch) -> None:
    def forbids(_server: Server, thing: APIObject, **_more: object) -> None:
        raise AuthorizationRefused("no", reason="other-cluster")

    monkeypatch.setattr(reading, "read_object", forbids)
    with asked(server, tmp_path) as all_servers, pytest.raises(AuthorizationRefused, match="no"):
        read_by_each(all_servers, ONE)
