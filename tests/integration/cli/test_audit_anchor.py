"""Changes whose record is told to an anchor outside, and the log compared with what that has kept."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.remediation.audit.outside import OutsideAnchor, parse_line
from etcdfix.remediation.audit.verify import ChainState, verify
from tests.support.anchors import PlayedAnchor
from tests.support.change_runs import Registry

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


@pytest.fixture
def anchor(tmp_path: Path) -> Iterator[PlayedAnchor]:
    with PlayedAnchor(tmp_path / "socket") as played:
        yield played


def close_after(monkeypatch: pytest.MonkeyPatch, anchor: PlayedAnchor, lines: int) -> None:
    """Let the anchor go away once it was told so many lines."""
    real, told = OutsideAnchor.send, []

    def send(self: OutsideAnchor, line: str) -> None:
        told.append(line)
        if len(told) > lines:
            anchor.close()
        real(self, line)

    monkeypatch.setattr(OutsideAnchor, "send", send)


def test_a_deletion_and_its_undo_are_told(registry: Registry, anchor: PlayedAnchor) -> None:
    key = registry.key("shop/broken")
    ran = registry.delete(key, "--audit-anchor", anchor.target)
    assert ran.code == 0
    lines = anchor.lines()
    assert [line.split()[4] for line in lines] == ["type=head", "type=intent", "type=outcome"]
    read = parse_line(lines[-1])
    assert read is not None
    assert read.link == verify(registry.log).head
    assert not any("broken" in line for line in lines)
    (undo,) = re.findall(r"Undo: (etcdfix restore .*)", ran.out)
    assert f"--audit-anchor {anchor.target}" in undo
    again = registry.run(*shlex.split(undo)[1:], "--yes")
    assert again.code == 0
    assert [line.split()[4] for line in anchor.lines()] == ["type=head", "type=intent", "type=outcome"]
    assert registry.stored(key) is not None


def test_a_dry_run_is_told(registry: Registry, anchor: PlayedAnchor) -> None:
    ran = registry.delete(
        registry.key("shop/broken"), "--audit-anchor", anchor.target, "--dry-run", "-o", "json"
    )
    assert (ran.code, json.loads(ran.out)["anchored"]) == (0, True)
    assert [line.split()[4] for line in anchor.lines()] == ["type=head", "type=dry-run"]


def test_nothing_is_done_without_the_anchor(registry: Registry, anchor: PlayedAnchor) -> None:
    anchor.close()
    for more in ([], ["--dry-run"]):
        with registry.untouched():
            ran = registry.delete(
                registry.key("shop/broken"), "--audit-anchor", anchor.target, *more, "-o", "json"
            )
        assert ran.code == 4
        assert json.loads(ran.out)["refusal"]["code"] == "anchor-unreachable"
    assert registry.log.read_bytes() == b""


def test_an_anchor_that_goes_before_the_intent_is_told(
    registry: Registry, anchor: PlayedAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_after(monkeypatch, anchor, 1)
    key, revision = registry.key("shop/broken"), registry.etcd.revision()
    ran = registry.delete(key, "--audit-anchor", anchor.target)
    assert (ran.code, registry.etcd.revision()) == (4, revision)
    assert "does not take the head of the audit log" in ran.err
    assert [event.annotations.outcome for event in registry.events()] == ["", "refused"]
    assert verify(registry.log).state is ChainState.WHOLE


def test_an_anchor_that_goes_before_the_outcome_is_told(
    registry: Registry, anchor: PlayedAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_after(monkeypatch, anchor, 2)
    key = registry.key("shop/broken")
    ran = registry.delete(key, "--audit-anchor", anchor.target)
    assert ran.code == 3
    assert ran.out.startswith("DELETED ")
    assert "does not take the head" in ran.out
    assert f"write its head down: {verify(registry.log).head}" in ran.out
    assert registry.stored(key) is None
    assert registry.events()[-1].annotations.outcome == "deleted"
