"""What a rescue says to do next: with everything that is known, and only what may help."""

from __future__ import annotations

import shlex

import pytest

from etcdfix.commands.rescuing.objects import next_steps
from etcdfix.report.rescue import Rescued, RescuedObject
from etcdfix.text.commands import RunOptions

ONE, TWO = b"/kubernetes.io/secrets/shop/one", b"/kubernetes.io/secrets/shop/two"
API = ("--kubeconfig", "/etc/kubernetes/admin.conf", "--server", "https://10.0.0.12:6443")
LAYOUT = ("--etcd-prefix", "/kubernetes.io")
READING = ("--encryption-config", "enc.yaml")
LOG = ("--audit-log", "/srv/audit.jsonl")
RUN = RunOptions(
    source=("--endpoints", "10.0.0.1:2379"), layout=LAYOUT, reading=READING, servers=API, log=LOG
)
OF_REPORT, OF_KIND, OF_KEYS = ("--from-report", "scan.json"), ("secrets",), (ONE.decode(), TWO.decode())
AGAIN = [*API, "--rescued", "/srv/saved", *LOG]


def rescued(state: Rescued, older: bool = False) -> RescuedObject:
    return RescuedObject(
        key="", key_base64=None, group="", resource="secrets", namespace="shop", name="", state=state,
        mod_revision=7, older=older,
    )  # fmt: skip


def commands(
    words: tuple[str, ...], *states: Rescued, older: bool = False, all_asked: bool = True
) -> list[list[str]]:
    objects = {key: rescued(state, older) for key, state in zip((ONE, TWO), states, strict=False)}
    return [
        shlex.split(step.command.line(RUN))[1:]
        for step in next_steps(words, objects, "/srv/saved", all_asked=all_asked)
    ]


@pytest.mark.parametrize("state", [Rescued.NOT_ASKED, Rescued.REFUSED])
def test_what_may_still_be_held_comes_first(state: Rescued) -> None:
    assert commands(OF_REPORT, Rescued.SAVED, state) == [["rescue", *OF_REPORT, *LAYOUT, *AGAIN]]
    assert commands(OF_KEYS, Rescued.SAVED, state) == [["rescue", *OF_KEYS, *LAYOUT, *AGAIN]]
    of_kind = ["rescue", "secrets", *RUN.source, *LAYOUT, *READING, *AGAIN]
    assert commands(OF_KIND, Rescued.SAVED, state) == [of_kind]


def test_an_older_state_is_asked_for_again() -> None:
    assert [words[0] for words in commands(OF_REPORT, Rescued.SAVED, older=True)] == ["rescue"]


@pytest.mark.parametrize("all_asked", [True, False])
def test_one_that_is_older_keeps_no_other_from_being_fixed(all_asked: bool) -> None:
    """Where no server has a newer state, asking again would give the same, for ever."""
    third = b"/registry/secrets/shop/three"
    objects = {
        ONE: rescued(Rescued.SAVED, older=True), TWO: rescued(Rescued.SAVED), third: rescued(Rescued.NOT_HELD)
    }  # fmt: skip
    again, fix, copies = next_steps(OF_KEYS, objects, "/srv/saved", all_asked=all_asked)
    assert "the same command again" in again.action
    assert (TWO.decode() in fix.command.line(RUN), ONE.decode() in fix.command.line(RUN)) == (True, False)
    assert copies.command.line(RUN).startswith("etcdfix copies")


def test_what_is_saved_is_fixed() -> None:
    (planned,) = commands(OF_REPORT, Rescued.SAVED, Rescued.SAVED)
    assert planned[:5] == ["plan", *OF_REPORT, "--rescued", "/srv/saved"]
    (fix,) = commands(OF_KIND, Rescued.SAVED, Rescued.SAVED)
    assert fix[:4] == ["fix", ONE.decode(), "--from", "memory"]
    assert fix[fix.index("--rescued") + 1] == "/srv/saved"


def test_what_no_server_holds_may_be_elsewhere() -> None:
    states = (Rescued.NOT_HELD, Rescued.NOT_HELD)
    (of_report,) = commands(OF_REPORT, *states)
    assert of_report[:3] == ["copies", *OF_REPORT]
    for words in (OF_KEYS, OF_KIND):
        (of_words,) = commands(words, *states)
        assert of_words[0] == "copies"
        assert {*OF_KEYS} <= {*of_words}
    assert [words[0] for words in commands(OF_REPORT, Rescued.SAVED, Rescued.NOT_HELD, all_asked=False)] == [
        "rescue", "plan", "copies",
    ]  # fmt: skip


def test_what_can_be_read_needs_nothing() -> None:
    assert commands(OF_REPORT, Rescued.READABLE) == []
