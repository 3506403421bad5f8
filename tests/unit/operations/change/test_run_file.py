"""The file beside a plan that is worked through: locked, of that plan, and never less than what was done."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from etcdfix.commands.plan import build_plan
from etcdfix.commands.planning import run_file
from etcdfix.commands.planning.run_file import RunFile, RunLine
from etcdfix.errors import ConfigurationError, NotDurable, RefusedByRule, UnsafePlace
from etcdfix.remediation.durable import SafeDirectory
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


def put_beside(path: Path, *lines: object, torn: bytes = b"") -> None:
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    beside(path).write_bytes(text + torn)
    beside(path).chmod(0o600)


def head(path: Path) -> dict[str, str]:
    return {"plan": load_plan(path).content_sha256, "audit_log": str(LOG)}


def outcomes(path: Path) -> list[str]:
    return [decision.outcome for decision in load_plan(path).decisions]


def deleted(order: int) -> RunLine:
    return RunLine(order=order, outcome="deleted", detail="as wanted", record=2 * order)


def test_what_was_done_is_on_disk_before_the_next_key_and_becomes_part_of_the_plan(path: Path) -> None:
    document = json.loads(path.read_bytes())
    document["decisions"][2]["decision"] = "delete"
    path.write_text(json.dumps(document))
    before = path.read_bytes()
    with RunFile.open(path) as run:
        assert (run.audit_log, beside(path).read_bytes()) == ("", b"")
        run.begin(LOG)
        run.note(deleted(2))
        lines = [json.loads(line) for line in beside(path).read_bytes().splitlines()]
        assert lines[0] == head(path)
        assert [line["order"] for line in lines[1:]] == [2]
        assert (run.audit_log, path.read_bytes()) == (str(LOG), before)
        assert [decision.outcome for decision in run.decisions()] == ["", "deleted", ""]
        run.note(RunLine(order=3, detail="unknown: no answer"))
        run.finish()
        assert beside(path).read_bytes() == b""
        assert run.audit_log == str(LOG)
        run.note(deleted(1))
        run.finish()
    assert not beside(path).exists()
    plan = load_plan(path)
    assert outcomes(path) == ["deleted", "deleted", ""]
    assert [(each.decision, each.record, each.detail) for each in plan.decisions][1:] == [
        ("leave", 4, "as wanted"), ("delete", 0, "unknown: no answer"),
    ]  # fmt: skip
    assert plan.audit_log == str(LOG)


def test_a_plan_of_which_nothing_was_done_stays_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    with RunFile.open(path) as run:
        run.begin(LOG)
        run.finish()
    assert path.read_bytes() == before
    assert not beside(path).exists()


def test_what_was_written_down_stays_where_a_run_ends_without_an_end(path: Path) -> None:
    run = RunFile.open(path)
    run.begin(LOG)
    run.note(deleted(1))
    run.close()
    run.close()
    assert outcomes(path) == ["", "", ""]
    assert beside(path).exists()
    with RunFile.open(path) as again:
        assert (again.audit_log, outcomes(path)) == (str(LOG), ["deleted", "", ""])
    assert not beside(path).exists()


@pytest.mark.parametrize("torn", [b"", b'{"order":2,"outco'])
def test_a_line_that_was_cut_by_a_crash(path: Path, torn: bytes) -> None:
    put_beside(path, head(path), {"order": 1, "outcome": "deleted"}, torn=torn)
    with RunFile.open(path) as run:
        assert [decision.outcome for decision in run.decisions()] == ["deleted", "", ""]
        run.begin(LOG)
        run.note(deleted(3))
        run.finish()
    put_beside(path, torn=b'{"plan":"sha')
    with RunFile.open(path):
        assert beside(path).read_bytes() == b""
    assert outcomes(path) == ["deleted", "", "deleted"]


def test_a_torn_line_is_gone_before_another_is_written(path: Path) -> None:
    """While the plan cannot be written anew, the lines stay; none is glued to what a crash left."""
    put_beside(path, head(path), {"order": 1, "outcome": "deleted"}, torn=b'{"order":2,"outco')
    path.with_name(f"{path.name}.new").mkdir()
    with pytest.raises((NotDurable, OSError)):
        RunFile.open(path)
    assert beside(path).read_bytes().endswith(b'"deleted"}\n')


@pytest.mark.parametrize(
    "lines",
    [
        ["no head"],
        [{"order": 1, "outcome": "deleted"}],
        [{"plan": "sha256:00", "audit_log": "x"}],
        [None, {"order": "1"}],
        [None, {"order": 1, "more": 1}],
        [{"plan": "sha256:00", "audit_log": "x", "more": ""}],
    ],
)
def test_what_no_run_over_this_plan_has_written(path: Path, lines: list[object]) -> None:
    put_beside(path, *(head(path) if line is None else line for line in lines))
    before = path.read_bytes(), beside(path).read_bytes()
    with pytest.raises(RefusedByRule, match=str(beside(path))):
        RunFile.open(path)
    assert (path.read_bytes(), beside(path).read_bytes()) == before


def test_the_name_of_the_file_is_on_disk_before_anything_is_done(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, synced = os.fsync, list[tuple[int, bool]]()

    def recorded(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, beside(path).exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    with RunFile.open(path):
        assert (path.parent.stat().st_ino, True) in synced


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
    put_beside(path, "no head")
    with pytest.raises(RefusedByRule):
        RunFile.open(path)
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
    assert b"deleted" in beside(path).read_bytes()


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


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_line_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The plan says it all the same where that can be written."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunFile.open(path) as run:
        run.begin(LOG)
        run.note(deleted(1))
        with monkeypatch.context() as patched:
            if call == "write":
                patched.setattr(run_file, "write_fully", full)
            else:
                patched.setattr(os, "fsync", full)
            with pytest.raises(NotDurable, match="No space left") as caught:
                run.note(deleted(2))
        assert "the same command goes on from there" in caught.value.hint
        run.finish()
    assert outcomes(path) == ["deleted", "deleted", ""]


@pytest.mark.parametrize("call", ["ftruncate", "fsync"])
def test_a_file_that_cannot_be_emptied(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The plan has everything by then; what stands beside it says the same once more."""
    with RunFile.open(path) as run:
        run.begin(LOG)
        run.note(deleted(1))
        replace = SafeDirectory.replace

        def then_fail(self: SafeDirectory, *arguments: object, **named: object) -> None:
            replace(self, *arguments, **named)  # type: ignore[arg-type]

            def broken(*_: object) -> None:
                raise OSError(errno.EIO, "Input/output error")

            monkeypatch.setattr(os, call, broken)

        monkeypatch.setattr(SafeDirectory, "replace", then_fail)
        with pytest.raises(NotDurable, match="Input/output error"):
            run.finish()
        monkeypatch.undo()
    with RunFile.open(path):
        assert outcomes(path) == ["deleted", "", ""]
    assert not beside(path).exists()
