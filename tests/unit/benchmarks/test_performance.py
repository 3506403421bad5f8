"""The benchmark counts nothing that is not whole, stops in time, and keeps what it has."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks import performance
from tests.benchmarks.comparisons import (
    GROUPS,
    IMPACT,
    PLAN,
    Command,
    Ground,
    IncompleteError,
    Planned,
    bars,
    check,
    everything,
    offline,
    what_must_hold,
)
from tests.benchmarks.page import BEGIN, END
from tests.benchmarks.performance import OutOfTimeError, check_all, main
from tests.benchmarks.results import load

WHOLE = '{"kind":"ScanSummary","source":{},"summary":{"keys":7},"complete":true,"incomplete_reasons":[]}'


def prints(text: str, *, code: int = 0, keys: int = 7, doubts: bool = False) -> Command:
    words = (sys.executable, "-c", f"print({text!r}); raise SystemExit({code})")
    return Command("one", words, keys, ours=True, doubts=doubts)


def test_a_report_of_everything_counts() -> None:
    assert 0 < check(prints(WHOLE), 60) < 60
    # What is long is judged by both of its ends.
    many = f"import sys; print('{{\"complete\": true,'); sys.stdout.write('x' * {1 << 20})"
    assert check(Command("plan", (sys.executable, "-c", many), 7, ours=True), 60) > 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (prints(""), "complete"),
        (prints(WHOLE.replace("true", "false")), "complete"),
        (prints(WHOLE, keys=8), "7 keys were read, not 8"),
        (prints(WHOLE, code=1), "exit code 1"),
        (prints(WHOLE.replace("true", "false").replace("[]", '["lost after key"]'), doubts=True), "complete"),
    ],
)
def test_anything_else_does_not(command: Command, said: str) -> None:
    with pytest.raises(IncompleteError, match=said):
        check(command, 60)


def test_what_a_plugin_refuses_is_no_lack() -> None:
    doubtful = WHOLE.replace("true", "false").replace("[]", '["undetermined: 7 keys"]')
    assert check(prints(doubtful, doubts=True), 60) > 0
    with pytest.raises(IncompleteError):
        check(prints(doubtful), 60)


def test_what_takes_too_long_is_ended() -> None:
    command = Command("slow", (sys.executable, "-c", "import time; time.sleep(60)"), 7)
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        check(command, 0.2)
    assert time.monotonic() - begun < 30


def test_every_group_is_planned_and_every_bar_is_measured() -> None:
    assert {plan.group for plan in everything((10, 20), (1, 2))} == set(GROUPS)
    plans = {plan.name for plan in what_must_hold()}
    assert {bar.comparison for bar in bars()} == plans
    assert [plan.name for plan in what_must_hold()][:2] == ["live-200000", "offline-200000"]
    assert all(plan.seconds() > 0 for plan in what_must_hold())


@pytest.mark.parametrize(("size", "most"), [(200_000, 120), (1_000_000, 440)])
def test_the_memory_of_a_plan_and_of_an_impact_has_a_bar_of_so_many_bytes_an_object(
    size: int, most: int
) -> None:
    asked = {(bar.series, bar.most) for bar in bars() if bar.comparison == f"work-{size}" and not bar.against}
    assert asked == {(PLAN, most), (IMPACT, most)}


def plan(name: str, *commands: Command) -> Planned:
    def given(_ground: Ground) -> list[Command]:
        return list(commands)

    return Planned(name, f"Title of {name}", commands[0].name, (), given, (("healthy", 10),))


@pytest.fixture
def run_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setattr(performance, "has_jobs", lambda _command: True)
    monkeypatch.setattr("tests.benchmarks.comparisons.has_jobs", lambda _command: True)

    def run(plans: list[Planned], *words: str) -> int:
        monkeypatch.setattr(performance, "everything", lambda _keys, _jobs: plans)
        return main(["--data", str(tmp_path / "data"), "--json", str(tmp_path / "figures.json"), *words])

    return run


def test_what_fails_is_said_and_the_rest_is_kept(
    run_main: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    bad = plan("live-7", prints(WHOLE, code=5))
    assert run_main([bad, plan("offline-7", prints(WHOLE))], "--runs", "2", "--write", str(page)) == 0
    assert "left out: one: exit code 5" in capsys.readouterr().out
    (kept,) = load(tmp_path / "figures.json")
    assert (kept.name, len(kept.series[0].runs)) == ("offline-7", 2)
    assert "Title of offline-7" in page.read_text()


def test_a_tool_that_fails_is_left_out_alone(
    run_main: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    auger = Command("auger extract", (sys.executable, "-c", "raise SystemExit('panic')"), 7, optional=True)
    run_main([plan("offline-7", prints(WHOLE), auger)], "--runs", "1")
    assert "left out: auger extract: exit code 1: panic" in capsys.readouterr().out
    (kept,) = load(tmp_path / "figures.json")
    assert [series.name for series in kept.series] == ["one"]


def test_a_tool_on_the_path_is_measured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    auger = tmp_path / "auger"
    auger.write_text("#!/bin/sh\nexit 0\n")
    auger.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("tests.benchmarks.comparisons.has_jobs", lambda _command: True)
    with Ground(tmp_path / "data", (1, 2)) as ground:
        commands = {command.name: command for command in offline(10, (1, 2)).commands(ground)}
    assert list(commands) == ["etcdfix, 1 job", "etcdfix, 2 jobs", "sha256sum", "auger extract"]
    assert commands["etcdfix, 2 jobs"].words[-2:] == ("--jobs", "2")
    assert commands["auger extract"].words[:3] == (str(auger), "extract", "-f")


def test_what_was_measured_before_is_kept(run_main: Callable[..., int], tmp_path: Path) -> None:
    run_main([plan("live-7", prints(WHOLE))], "--runs", "1")
    run_main([plan("offline-7", prints(WHOLE))], "--runs", "1")
    assert [one.name for one in load(tmp_path / "figures.json")] == ["live-7", "offline-7"]


def test_a_death_in_the_second_round_leaves_the_first(
    run_main: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, calls = Command.measure, [0]

    def dies(command: Command) -> object:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return measure(command)

    monkeypatch.setattr(Command, "measure", dies)
    with pytest.raises(KeyboardInterrupt):
        run_main([plan("live-7", prints(WHOLE))], "--runs", "3")
    (kept,) = load(tmp_path / "figures.json")
    assert len(kept.series[0].runs) == 1


def test_without_time_nothing_is_measured(
    run_main: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main([plan("live-7", prints(WHOLE))], "--minutes", "0") == 0
    assert "there is no time for it" in capsys.readouterr().out
    assert not (tmp_path / "figures.json").exists()


def test_what_can_be_seen_to_take_too_long_is_not_begun(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    slow = (sys.executable, "-c", "import time; time.sleep(2)")
    never = (sys.executable, "-c", f"open({str(begun)!r}, 'w')")
    growing = [Command("few", slow, 1, line="healthy"), Command("many", never, 1000, line="healthy")]
    with pytest.raises(OutOfTimeError):
        check_all(growing, time.monotonic() + 60)
    assert not begun.exists()


def test_a_page_is_made_from_kept_figures_alone(run_main: Callable[..., int], tmp_path: Path) -> None:
    run_main([plan("live-7", prints(WHOLE))], "--runs", "1")
    page, figures = tmp_path / "performance.md", tmp_path / "figures.json"
    page.write_text(f"{BEGIN}\n{END}\n")
    assert main(["--from-json", str(figures), "--write", str(page)]) == 0
    assert "Title of live-7" in page.read_text()
    page.write_text("no marks\n")
    assert main(["--from-json", str(figures), "--write", str(page)]) == 1


@pytest.mark.parametrize(
    "words", [[], ["--data", "x", "--only", "lice"], ["--from-json", "x", "--prepare"], ["--keys", "many"]]
)
def test_options_that_make_no_sense_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
