"""Measure etcdfix beside other tools and write ``docs/performance.md``: one command, from the data to the page.

``python -m tests.benchmarks.performance --data DIR --json FILE --write docs/performance.md`` measures everything;
``--quick`` a little in two minutes; ``--bars`` what must hold. Data is made once and kept in DIR. FILE is written after
every round, and what is measured later is put together with what it holds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from etcdfix.testing.places import NoEtcdError, find_tools
from tests.benchmarks.comparisons import (
    GROUPS,
    Command,
    Ground,
    IncompleteError,
    Planned,
    bars,
    check,
    everything,
    has_jobs,
    what_must_hold,
)
from tests.benchmarks.large_data import made_once
from tests.benchmarks.measure import Run, Spread, in_turn, machine
from tests.benchmarks.page import NoPlaceError, growth_lines, table, write_page
from tests.benchmarks.results import Comparison, Series, judge, load, merged, save
from tests.benchmarks.served import restored

RUNS = 5
QUICK_KEYS, QUICK_RUNS = 10_000, 3
DAY = 24 * 60.0
START_SECONDS = 1.0  # about what a command needs before its first key


def say(text: str) -> None:
    print(text, flush=True)


def whole_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, help="folder for the data; what it holds is used again (1M keys take 10 GB)")
    add("--json", type=Path, help="file for the figures; those it holds are kept")
    add(
        "--from-json",
        type=Path,
        nargs="+",
        default=[],
        help="measure nothing; take the figures from these files",
    )
    add("--write", type=Path, help="page to put tables into")
    add(
        "--keys",
        type=whole_numbers,
        default=(10_000, 200_000, 1_000_000),
        help="sizes [10000,200000,1000000]",
    )
    add("--jobs", type=whole_numbers, default=(1, 2, 4), help="numbers of jobs [1,2,4]")
    add("--runs", type=int, help=f"rounds of each comparison [{RUNS}, with --quick {QUICK_RUNS}]")
    add("--minutes", type=float, default=DAY, help="begin no round that would end later than this [a day]")
    add("--only", type=lambda text: tuple(text.split(",")), default=GROUPS, help=f"of {','.join(GROUPS)}")
    add("--quick", action="store_true", help=f"{QUICK_KEYS:,} keys, {QUICK_RUNS} rounds")
    add("--bars", action="store_true", help="what must hold and nothing else, the most important first")
    add("--prepare", action="store_true", help="make the data and measure nothing")
    options = parser.parse_args(words)
    unknown = [name for name in options.only if name not in GROUPS]
    if unknown:
        parser.error(f"--only: there is no {unknown[0]}; there is {', '.join(GROUPS)}")
    if not options.from_json and options.data is None:
        parser.error("--data DIR says where the data is kept")
    if options.from_json and options.prepare:
        parser.error("--prepare makes data, --from-json needs none")
    if options.quick:
        options.keys = (QUICK_KEYS,)
    options.runs = options.runs or (QUICK_RUNS if options.quick else RUNS)
    return options


def bar_sizes(keys: Sequence[int]) -> tuple[int, int]:
    """200,000 and the largest, which is smaller where somebody tries it out."""
    return min(max(keys), 200_000), max(keys)


def planned(options: argparse.Namespace) -> list[Planned]:
    """The comparisons that were asked for."""
    bars_alone: bool = options.bars
    found = what_must_hold(*bar_sizes(options.keys)) if bars_alone else everything(options.keys, options.jobs)
    # With small sizes, two that must hold are one.
    return list({one.name: one for one in found if one.group in options.only}.values())


def prepare(plans: Sequence[Planned], store: Path) -> None:
    """Make all data that is not there, and the data directories of etcd."""
    tools = find_tools()
    wanted = {data: False for plan in plans for data, _ in plan.data}
    wanted.update({data: True for plan in plans for data, served in plan.data if served})
    for data, served in wanted.items():
        started = time.monotonic()
        made = made_once(store, data)
        if served:
            restored(made, tools)
        size = made.database.stat().st_size / 1e6
        say(f"{data.name}: {size:.0f} MB, {time.monotonic() - started:.0f} s")


class OutOfTimeError(Exception):
    """What is left of the time is too short for a comparison."""


def measure(
    plan: Planned, options: argparse.Namespace, deadline: float, keep: Callable[[Comparison], None]
) -> None:
    """Check every command once, then run them in turn; ``keep`` gets what there is after each round.

    Raises:
        OutOfTimeError: There is no time for a round.
        IncompleteError: A command failed, or its report is not complete.
    """
    with Ground(options.data, options.jobs if not options.bars else (1, 2)) as ground:
        load = round(os.getloadavg()[0], 1)
        commands, one_round = check_all(plan.commands(ground), deadline)
        runs: dict[str, list[Run]] = {command.name: [] for command in commands}
        turns = in_turn({command.name: command.measure for command in commands}, options.runs)
        for number in range(options.runs):
            if time.monotonic() + one_round > deadline:
                if number == 0:
                    raise OutOfTimeError
                say(f"  no time for more than {number} rounds")
                return
            for name, run in next(turns).items():
                runs[name].append(run)
            keep(comparison_of(plan, commands, runs, load))


def check_all(commands: Sequence[Command], deadline: float) -> tuple[list[Command], float]:
    """Run each command once; less than half of the time that is left may go into that.

    Returns:
        The commands, without those of others that fail, and the seconds of all.

    Raises:
        OutOfTimeError: There is no time left for a round after it; the cost of fewer keys tells that early.
        TimeoutError: A command took too long.
        IncompleteError: A command of ours failed, or its report is not complete; or that which others are held against.
    """
    work: list[Command] = []
    one_round = 0.0
    per_key: dict[str, float] = {}
    for command in commands:
        left = deadline - time.monotonic() - one_round
        expected = per_key.get(command.line, 0.0) * command.keys
        if left <= 2 * expected:
            raise OutOfTimeError
        try:
            seconds = check(command, left)
        except IncompleteError as exc:
            if not command.optional:
                raise
            say(f"  left out: {exc}")
            continue
        work.append(command)
        one_round += seconds
        if command.line:
            per_key[command.line] = max(0.0, seconds - START_SECONDS) / command.keys
    return work, one_round


def comparison_of(
    plan: Planned, commands: Sequence[Command], runs: dict[str, list[Run]], load: float
) -> Comparison:
    return Comparison(
        name=plan.name,
        title=plan.title,
        against=plan.against,
        series=tuple(
            Series(
                name=command.name,
                runs=tuple(runs[command.name]),
                keys=command.keys,
                line=command.line,
            )
            for command in commands
        ),
        machine=machine(),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        load=load,
    )


def show(comparison: Comparison) -> None:
    """Print one comparison as soon as it is there."""
    rows = []
    for series in comparison.series:
        ratio = comparison.ratio(series.name)
        medians = [f"{Spread.of(times).median:.2f} s" for times in (series.wall, series.cpu)]
        rows.append([series.name, *medians, ratio.text() if ratio else "", f"{series.anonymous_mb:.0f} MB"])
    heads = ["command", "median", "processor", f"times {comparison.against}", "largest process"]
    say(table(heads, rows))
    for line in growth_lines(comparison.series):
        say(line)


def show_bars(found: Sequence[Comparison], keys: Sequence[int]) -> None:
    """Print what must hold, as far as it was measured; with other sizes than the real ones it is a trial."""
    by_name = {comparison.name: comparison for comparison in found}
    for bar in bars(*bar_sizes(keys)):
        verdict = judge(bar, by_name)
        if verdict is not None:
            unit = f"times {bar.against}" if bar.against else "MB a process"
            said = "holds" if verdict.holds else "DOES NOT HOLD"
            say(f"{said}: {bar.comparison}, {bar.series}: {verdict.figure}, at most {bar.most:g} {unit}")


def measure_all(options: argparse.Namespace, found: list[Comparison]) -> list[Comparison]:
    """Measure one comparison after the other; what fails is said, and the next one begins.

    Returns:
        What was there before, with what was measured now.
    """
    plans = planned(options)
    prepare(plans, options.data)
    if options.prepare:
        return found
    if not has_jobs("scan"):
        say("this etcdfix knows no --jobs: measured with one")
    seconds = sum(plan.seconds() for plan in plans) * (options.runs + 1)
    say(f"{len(plans)} comparisons, {options.runs} rounds each: roughly {seconds / 60:.0f} minutes")
    deadline = time.monotonic() + 60 * options.minutes

    def keep(comparison: Comparison) -> None:
        nonlocal found
        found = merged([found, [comparison]])
        if options.json is not None:
            save(options.json, found)

    for plan in plans:
        say(f"\n{plan.title}: roughly {plan.seconds() * (options.runs + 1):.0f} s")
        try:
            measure(plan, options, deadline, keep)
        except (OutOfTimeError, TimeoutError):
            say("  left out: there is no time for it")
            continue
        except (IncompleteError, NoEtcdError) as exc:
            say(f"  left out: {exc}")
            continue
        show(next(one for one in found if one.name == plan.name))
    return found


def main(words: Sequence[str] | None = None) -> int:
    options = arguments_of(words)
    kept = [options.json] if options.json is not None and options.json.exists() else []
    found = merged(load(path) for path in [*kept, *options.from_json])
    if not options.from_json:
        found = measure_all(options, found)
    elif options.json is not None:
        save(options.json, found)
    if options.prepare:
        return 0
    say("")
    show_bars(found, options.keys)
    if options.write is not None:
        try:
            write_page(options.write, found, bars())
        except NoPlaceError as exc:
            say(str(exc))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
