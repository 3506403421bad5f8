"""The file of a plan that is worked through: locked, and replaced by itself alone."""

from __future__ import annotations

import fcntl
import gc
import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from etcdfix.commands.plan import build_plan
from etcdfix.commands.planning.run_file import RunFile, RunLine
from etcdfix.errors import ConfigurationError, NotDurable, RefusedByRule, UnsafePlace
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.planfile import load_plan, sealed
from etcdfix.report.render.machine import JSONWriter
from etcdfix.text.commands import RunOptions
from tests.support.lost_key import LiveMemory, base, examiner_of, lose, request_for, scan_to

LOG = Path("/var/log/audit.jsonl")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The plan of three Secrets under a lost key, as a file."""
    tmp_path.chmod(0o700)
    cluster = base()
    lose(cluster, *[cluster.secret(f"web-{number}") for number in range(3)])
    source = LiveMemory(cluster.values)
    report = scan_to(tmp_path / "report.json", cluster, source=source)
    return write(
        tmp_path / "plan.json", build_plan(source, examiner_of(cluster, source), request_for(report))
    )


def write(path: Path, plan: DeletionPlan) -> Path:
    with path.open("wb") as stream:
        JSONWriter(stream, RunOptions()).end(plan)
    return path


def beside(path: Path) -> Path:
    return Path(f"{path}.run")


def outcomes(path: Path) -> list[str]:
    return [decision.outcome for decision in load_plan(path).decisions]


def deleted(order: int) -> RunLine:
    return RunLine(order=order, outcome="deleted", detail="as wanted", record=2 * order)


def test_what_was_noted_becomes_part_of_the_plan(path: Path) -> None:
    document = json.loads(path.read_bytes())
    document["decisions"][2]["decision"] = "delete"
    path.write_text(json.dumps(document))
    with RunFile.open(path) as run:
        run.begin(LOG)
        run.save()
        assert (load_plan(path).audit_log, outcomes(path)) == (str(LOG), ["", "", ""])
        run.note(deleted(2))
        assert [decision.outcome for decision in run.decisions()] == ["", "deleted", ""]
        run.note(RunLine(order=3, detail="unknown: no answer"))
        run.finish()
        run.note(deleted(1))
        run.finish()
    run.close()
    assert not beside(path).exists()
    plan = load_plan(path)
    assert outcomes(path) == ["deleted", "deleted", ""]
    assert [(each.decision, each.record, each.detail) for each in plan.decisions][1:] == [
        ("leave", 4, "as wanted"), ("delete", 0, "unknown: no answer"),
    ]  # fmt: skip


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_plan_of_which_nothing_was_done_stays_as_it_is(path: Path, dry_run: bool) -> None:
    before = path.read_bytes()
    with RunFile.open(path) as run:
        if dry_run:
            run.note(deleted(1))  # by an earlier run
        else:
            run.begin(LOG)
        run.finish()
    assert path.read_bytes() == before
    assert not beside(path).exists()


def test_one_run_at_a_time(path: Path) -> None:
    with RunFile.open(path), pytest.raises(RefusedByRule, match="another run works through"):
        RunFile.open(path)
    RunFile.open(path).close()
    assert not beside(path).exists()


def test_what_is_no_plan_gets_no_file_beside_it(path: Path) -> None:
    path.write_text("{}")
    with pytest.raises(ConfigurationError):
        RunFile.open(path)
    assert not beside(path).exists()


@pytest.mark.parametrize("what", ["link", "second name", "writable", "directory", "pipe"])
def test_a_file_beside_it_that_is_not_ours_alone(path: Path, what: str) -> None:
    place, other = beside(path), path.with_name("other")
    other.write_bytes(b"")
    other.chmod(0o600)
    if what == "link":
        place.symlink_to(other)
    elif what == "second name":
        os.link(other, place)
    elif what == "writable":
        place.touch()
        place.chmod(0o666)
    elif what == "directory":
        place.mkdir()
    else:
        os.mkfifo(place)
    with pytest.raises(NotDurable):
        RunFile.open(path)
    assert other.read_bytes() == b""


def test_a_directory_that_others_may_write_to(path: Path) -> None:
    path.parent.chmod(0o777)
    with pytest.raises(UnsafePlace):
        RunFile.open(path)
    assert not beside(path).exists()
    path.parent.chmod(0o700)


def as_often(times: int, monkeypatch: pytest.MonkeyPatch, path: Path, act: Callable[[], object]) -> None:
    """Do something right after the file was locked, so many times."""
    flock, left = fcntl.flock, times

    def locked(descriptor: int, operation: int) -> None:
        nonlocal left
        flock(descriptor, operation)
        if left:
            left -= 1
            act()

    monkeypatch.setattr(fcntl, "flock", locked)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_goes_just_as_it_is_locked(path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """As when the run that had it came to its end: a lock on what nobody else will open is none."""

    def go() -> None:
        beside(path).unlink()
        if how == "replaced":
            beside(path).touch(mode=0o600)

    as_often(2, monkeypatch, path, go)
    with RunFile.open(path) as run:
        assert os.path.samestat(beside(path).stat(), os.fstat(run._descriptor))
        with pytest.raises(RefusedByRule):
            RunFile.open(path)
    as_often(100, monkeypatch, path, go)
    with pytest.raises(NotDurable, match="it comes and goes"):
        RunFile.open(path)


def descriptors() -> int:
    gc.collect()  # the rows of a plan are read from its file, as long as anybody holds it
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_left_open_by_what_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    with RunFile.open(path), pytest.raises(RefusedByRule):
        RunFile.open(path)
    beside(path).touch()
    beside(path).chmod(0o666)
    with pytest.raises(UnsafePlace):
        RunFile.open(path)
    beside(path).unlink()
    as_often(100, monkeypatch, path, lambda: beside(path).unlink())
    with pytest.raises(NotDurable):
        RunFile.open(path)
    assert descriptors() == before


def test_another_plan_in_its_place(path: Path) -> None:
    """What was done stays beside it, and no outcome gets into a plan that knows nothing of it."""
    with RunFile.open(path) as run:
        run.begin(LOG)
        run.note(deleted(1))
        write(path, sealed(msgspec.structs.replace(load_plan(path), generated_at="2026-01-01T00:00:00Z")))
        other = path.read_bytes()
        with pytest.raises(RefusedByRule, match="was replaced by another plan"):
            run.finish()
    assert path.read_bytes() == other


def test_a_decision_that_is_edited_meanwhile_is_kept(path: Path) -> None:
    with RunFile.open(path) as run:
        run.begin(LOG)
        run.note(deleted(1))
        document = json.loads(path.read_bytes())
        document["decisions"][2]["decision"] = "delete"
        path.write_text(json.dumps(document))
        run.finish()
    assert [(each.decision, each.outcome) for each in load_plan(path).decisions] == [
        ("leave", "deleted"), ("leave", ""), ("delete", ""),
    ]  # fmt: skip
