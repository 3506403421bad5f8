"""Which objects a rescue asks for, and what it says to do next."""

from __future__ import annotations

import shlex
from typing import cast

import pytest

from etcdfix.commands.rescuing.objects import next_steps, targets_of_keys, targets_of_report
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.model import ScanHeader, Scope
from etcdfix.report.origin import TOOL
from etcdfix.report.rescue import Rescued, RescuedObject
from etcdfix.report.saved_report import ReportedFinding, SavedFindings, SavedReport
from etcdfix.text.commands import RunOptions
from tests.support.reports import source

DEFAULT, OTHER = StorageLayout("/registry"), StorageLayout("kubernetes.io")


def reported(
    mod_revision: int, digest: str, outcome: str, cause: str, transformer: str = "", rule: str = ""
) -> ReportedFinding:
    return ReportedFinding("", outcome, mod_revision, digest, None, cause, transformer, rule)


LOST = reported(17, "sha256:0", "decrypt-failure", "wrong-key", "aescbc/v1/key1", "secrets")
ONE, TWO = b"/registry/secrets/shop/one", b"/registry/secrets/shop/two"
WIDGET, MAP = b"/registry/example.com/widgets/shop/w", b"/registry/configmaps/shop/m"


def report(findings: dict[bytes, ReportedFinding], prefix: str = "/registry") -> SavedReport:
    header = ScanHeader(
        tool=TOOL,
        generated_at="",
        source=source(),
        encryption_config=None,
        scope=Scope(prefix, [], [], [], None),
    )
    return SavedReport(
        path="report.json", sha256="sha256:1", header=header, findings=cast("SavedFindings", findings), problems=(),
    )  # fmt: skip


def test_all_that_cannot_be_read_by_etcd_key() -> None:
    found = targets_of_report(report({TWO: LOST, WIDGET: LOST, ONE: LOST}))
    assert [target.key for target in found] == [WIDGET, ONE, TWO]
    widget, one, _two = found
    assert (widget.thing.version, widget.kind, widget.thing.group) == ("", "", "example.com")
    assert (one.thing.version, one.kind, one.mod_revision) == ("v1", "Secret", 17)


def test_what_is_no_matter_for_a_rescue_is_left_out() -> None:
    values = {
        ONE: reported(3, "", "undetermined", "kms-key-unknown"), TWO: reported(3, "", "inconsistent", "invalid-utf8"),
        MAP: reported(3, "", "undetermined", "owner-unknown"),
        b"/registry/configmaps/shop/n": reported(3, "", "a-newer-word", ""),
        b"/registry/ranges/serviceips": LOST, b"/registry/secrets/shop/a/b": LOST, b"/registry/secrets/shop/..": LOST,
        b"/registry/secrets/shop/": LOST,
    }  # fmt: skip
    assert [target.key for target in targets_of_report(report(values))] == [ONE]
    del values[ONE]
    with pytest.raises(ConfigurationError, match="no object is unreadable"):
        targets_of_report(report(values))


def test_another_storage_prefix() -> None:
    key = b"/kubernetes.io/secrets/shop/one"
    (target,) = targets_of_report(report({key: LOST}, "/kubernetes.io"))
    assert target.thing.name == "one"
    assert targets_of_keys([key], OTHER)[0].thing == target.thing


@pytest.mark.parametrize(
    "key", [b"/registry/ranges/serviceips", b"/other/x", b"compact_rev_key", b"/registry/secrets/a/b/c"]
)
def test_keys_of_no_object(key: bytes) -> None:
    with pytest.raises(ConfigurationError, match="holds no object"):
        targets_of_keys([key], DEFAULT)


FIRST, SECOND = b"/kubernetes.io/secrets/shop/one", b"/kubernetes.io/secrets/shop/two"
API = ("--kubeconfig", "/etc/kubernetes/admin.conf", "--server", "https://10.0.0.12:6443")
LAYOUT = ("--etcd-prefix", "/kubernetes.io")
READING = ("--encryption-config", "enc.yaml")
LOG = ("--audit-log", "/srv/audit.jsonl")
RUN = RunOptions(
    source=("--endpoints", "10.0.0.1:2379"), layout=LAYOUT, reading=READING, servers=API, log=LOG
)
OF_REPORT, OF_KIND, OF_KEYS = ("--from-report", "scan.json"), ("secrets",), (FIRST.decode(), SECOND.decode())
AGAIN = [*API, "--rescued", "/srv/saved", *LOG]


def rescued(state: Rescued, older: bool = False) -> RescuedObject:
    return RescuedObject(
        key="", key_base64=None, group="", resource="secrets", namespace="shop", name="", state=state,
        mod_revision=7, older=older,
    )  # fmt: skip


def commands(
    words: tuple[str, ...], *states: Rescued, older: bool = False, all_asked: bool = True
) -> list[list[str]]:
    objects = {key: rescued(state, older) for key, state in zip((FIRST, SECOND), states, strict=False)}
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
        FIRST: rescued(Rescued.SAVED, older=True), SECOND: rescued(Rescued.SAVED), third: rescued(Rescued.NOT_HELD)
    }  # fmt: skip
    again, fix, copies = next_steps(OF_KEYS, objects, "/srv/saved", all_asked=all_asked)
    assert "the same command again" in again.action
    assert (SECOND.decode() in fix.command.line(RUN), FIRST.decode() in fix.command.line(RUN)) == (
        True,
        False,
    )
    assert copies.command.line(RUN).startswith("etcdfix copies")


def test_what_is_saved_is_fixed() -> None:
    (planned,) = commands(OF_REPORT, Rescued.SAVED, Rescued.SAVED)
    assert planned[:5] == ["plan", *OF_REPORT, "--rescued", "/srv/saved"]
    (fix,) = commands(OF_KIND, Rescued.SAVED, Rescued.SAVED)
    assert fix[:4] == ["fix", FIRST.decode(), "--from", "memory"]
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
