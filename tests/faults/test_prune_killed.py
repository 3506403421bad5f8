"""A pruning killed at every step: no file is gone without a record of it, and the next one goes on."""

from __future__ import annotations

from pathlib import Path

from etcdfix.commands.log import list_backups
from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.remediation.places import RecordPaths
from tests.faults.dying_delete import killed_at_every_step
from tests.support.audit_logs import delete_with
from tests.support.backups import prune_all
from tests.support.durable_steps import APPEND_STEPS, REMOVE_ACTIONS, step_names


def test_killed_at_every_step_of_a_pruning(tmp_path: Path) -> None:
    names = []
    for name, folder in killed_at_every_step("files: prune", tmp_path, delete_with):
        names.append(name)
        check_what_is_left(folder, name)
        go_on(folder, name)
    removed = [*step_names("backup pruned", REMOVE_ACTIONS)] * 2
    assert names == [*APPEND_STEPS, *removed, ""]


def files(folder: Path) -> list[Path]:
    return [*(folder / "one").iterdir(), *(folder / "two").iterdir()]


def places(folder: Path) -> RecordPaths:
    return RecordPaths((folder / "one", folder / "two"), folder / "audit.jsonl")


def check_what_is_left(folder: Path, name: str) -> None:
    """A file may be gone once the log says so; none is gone before, and none is called missing."""
    found = verify(folder / "audit.jsonl")
    assert found.state is not ChainState.TAMPERED, (name, found)
    there = files(folder)
    reasons = [one.reason for one in list_backups(places(folder)).findings if one.reason != "log"]
    assert reasons == ["pruned"] * (len(there) if found.records == 3 else 0), name
    assert found.records == 3 or len(there) == 2, name


def go_on(folder: Path, name: str) -> None:
    prune_all(folder)
    assert files(folder) == [], name
    verified = list_backups(places(folder))
    assert (verified.findings, verified.pruned) == ([], 2), name
    assert verify(folder / "audit.jsonl").state is ChainState.WHOLE, name
