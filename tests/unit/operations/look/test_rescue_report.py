"""What a rescue says to do next: with everything that is known, and only what may help."""

from __future__ import annotations

import shlex

import pytest

from etcdfix.operations.look.rescue_report import Afterwards, next_steps
from etcdfix.report.rescue import Rescued, RescuedObject
from etcdfix.rescued import Fit
from etcdfix.text.commands import RunOptions

ONE, TWO = b"/kubernetes.io/secrets/shop/one", b"/kubernetes.io/secrets/shop/two"
API = (
    "--kubeconfig",
    "/etc/kubernetes/admin.conf",
    "--context",
    "prod",
    "--server",
    "https://10.0.0.12:6443",
)
LAYOUT = ("--etcd-prefix", "/kubernetes.io")
READING = ("--encryption-config", "enc.yaml")
LOG = ("--audit-log", "/srv/audit.jsonl")
LIVE = RunOptions(
    source=("--endpoints", "10.0.0.1:2379"), layout=LAYOUT, reading=READING, servers=API, log=LOG
)
RECORD = LOG
OF_REPORT = Afterwards(run=LIVE, report="scan.json")
OF_KEYS = Afterwards(run=RunOptions(layout=LAYOUT, servers=API, log=LOG), keys=(ONE.decode(), TWO.decode()))
"""Of etcd, nothing but the prefix is known."""


def rescued(state: Rescued, fit: Fit = Fit.EQUAL) -> RescuedObject:
    return RescuedObject(
        key="", key_base64=None, group="", resource="secrets", namespace="shop", name="", state=state,
        mod_revision=7, fit=fit,
    )  # fmt: skip


def commands(
    afterwards: Afterwards, *states: Rescued, fit: Fit = Fit.EQUAL, all_asked: bool = True
) -> list[list[str]]:
    objects = {key: rescued(state, fit) for key, state in zip((ONE, TWO), states, strict=False)}
    return [
        shlex.split(step.command.line(afterwards.run))[1:]
        for step in next_steps(afterwards, objects, "/srv/saved", all_asked=all_asked)
    ]


AGAIN = [*LAYOUT, *API, "--save-dir", "/srv/saved", "--reveal", *RECORD]


@pytest.mark.parametrize("state", [Rescued.NOT_ASKED, Rescued.REFUSED])
def test_what_may_still_be_held_comes_first(state: Rescued) -> None:
    assert commands(OF_REPORT, Rescued.SAVED, state) == [["rescue", "--from-report", "scan.json", *AGAIN]]
    assert commands(OF_KEYS, Rescued.SAVED, state) == [["rescue", ONE.decode(), TWO.decode(), *AGAIN]]


def test_an_older_state_is_asked_for_again() -> None:
    assert [words[0] for words in commands(OF_REPORT, Rescued.SAVED, fit=Fit.OLDER)] == ["rescue"]


@pytest.mark.parametrize("all_asked", [True, False])
def test_one_that_is_older_keeps_no_other_from_being_healed(all_asked: bool) -> None:
    """Where no server has a newer state, asking again would give the same, for ever."""
    third = b"/registry/secrets/shop/three"
    objects = {
        ONE: rescued(Rescued.SAVED, Fit.OLDER), TWO: rescued(Rescued.SAVED), third: rescued(Rescued.NOT_HELD)
    }  # fmt: skip
    again, heal, copies = next_steps(OF_KEYS, objects, "/srv/saved", all_asked=all_asked)
    assert "the same command again" in again.action
    assert (
        TWO.decode() in heal.command.line(OF_KEYS.run),
        ONE.decode() in heal.command.line(OF_KEYS.run),
    ) == (True, False)
    assert copies.command.line(OF_KEYS.run).startswith("etcdfix copies")


def test_what_is_saved_is_healed() -> None:
    (planned,) = commands(OF_REPORT, Rescued.SAVED, Rescued.ALREADY_SAVED)
    assert planned[:3] == ["plan", "--from-report", "scan.json"]
    (heal,) = commands(OF_KEYS, Rescued.SAVED, Rescued.SAVED)
    assert heal[:4] == ["fix", ONE.decode(), "--from", "memory"]
    assert heal[heal.index("--encryption-config") + 1] == "FILE"
    (one, two) = (
        next(next_steps(OF_KEYS, dict.fromkeys(keys, rescued(Rescued.SAVED)), "/srv/saved", all_asked=True))
        for keys in ((ONE,), (ONE, TWO))
    )
    assert "one after the other" not in one.action
    assert "one after the other" in two.action


def test_what_no_server_holds_may_be_elsewhere() -> None:
    states = (Rescued.NOT_HELD, Rescued.NOT_HELD)
    assert commands(OF_REPORT, *states) == [
        ["copies", "--from-report", "scan.json", *LIVE.source, *LAYOUT, *READING, *RECORD, *API]
    ]
    assert commands(OF_KEYS, *states) == [["copies", *LAYOUT, *RECORD, ONE.decode(), TWO.decode(), *API]]
    assert [words[0] for words in commands(OF_REPORT, Rescued.SAVED, Rescued.NOT_HELD, all_asked=False)] == [
        "plan", "rescue", "copies",
    ]  # fmt: skip


def test_kine_is_healed_where_it_is() -> None:
    kine = RunOptions(source=("--kine", "/srv/state.db"), reading=READING, servers=API, log=LOG)
    objects = {ONE: rescued(Rescued.SAVED)}
    (step,) = next_steps(Afterwards(run=kine, report="scan.json"), objects, "/srv/saved", all_asked=True)
    assert "--kine /srv/state.db" in step.command.line(kine)
    assert step.note == ""


def test_what_can_be_read_needs_nothing() -> None:
    assert commands(OF_REPORT, Rescued.READABLE) == []
