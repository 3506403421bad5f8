"""Breaks every guard on the way to a change, one at a time, and says which of them no test would miss.

``python -m tests.mutation.guards [--list] [--only PATH[:LINE]] [--jobs N] [--fresh] [--output FILE]``

What is broken, and how: ``mutants.py``. For each mutant those tests are run that run its line
(``coverage_map.py``), its module's own test file first, then the quick ones, as many as fit into ``--seconds``,
until one fails (``running.py``). A mutant that cannot be told from the original stands in ``equivalent.toml``, with
the reason. Exit 1 where any other survives, or where an entry of that file fits no survivor any more.

Results stay in ``.mutation/`` and are used again as long as the guard's function and the test that noticed are the
same.
"""

from __future__ import annotations

import argparse
import ast
import signal
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path

import msgspec

from tests.mutation.coverage_map import Touching, digest, surroundings, touching
from tests.mutation.mutants import Mutant, deciding_names, find_mutants
from tests.mutation.running import Result, Task, Work

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".mutation"
TABLE = Path(__file__).with_name("equivalent.toml")
GUARDED = (
    "etcdfix/remediation/**/*.py",
    "etcdfix/apiserver/*.py",
    "etcdfix/operations/change/*.py",
    "etcdfix/verdicts/*.py",
    "etcdfix/cli/confirm.py",
)
# In this order they are tried; the last two have servers of their own and are slow.
TESTS = ("tests/unit", "tests/property", "tests/vectors", "tests/faults", "tests/integration")

# Results are stored after so many, for whoever stops it half-way.
_AT_ONCE = 60
# A test that takes longer comes after all others.
_SLOW_SECONDS = 1.5


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of ``equivalent.toml``.

    Attributes:
        path: Of the module.
        function: Of the guard, as in ``Mutant``.
        reason: Why it makes no difference.
        guard: Its source text, "" for every guard of the function.
        change: What is done to it, "" for anything.
    """

    path: str
    function: str
    reason: str
    guard: str = ""
    change: str = ""

    def fits(self, mutant: Mutant) -> bool:
        """Say whether it speaks of this mutant."""
        return (
            self.path == mutant.path
            and self.function == mutant.function
            and self.guard in {"", mutant.guard}
            and self.change in {"", mutant.change}
        )


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``equivalent.toml``.

    Attributes:
        text_only: Functions whose conditions only choose words: their guards are not broken.
        equivalent: Mutants that behave as the original does.
    """

    text_only: tuple[Entry, ...] = ()
    equivalent: tuple[Entry, ...] = ()


class Known(msgspec.Struct, frozen=True):
    """A result of an earlier run, and what it was made from."""

    result: Result
    function: str
    tests: str


def all_mutants(root: Path, patterns: Sequence[str], tables: Tables) -> list[Mutant]:
    """Return every mutant of the modules that fit, but for those that only choose words."""
    sources = {
        str(path.relative_to(root)): path.read_bytes()
        for pattern in patterns
        for path in sorted(root.glob(pattern))
    }
    folders = {Path(pattern).parts[0] for pattern in patterns}
    names = deciding_names(
        [path.read_bytes() for folder in folders for path in (root / folder).rglob("*.py")]
    )
    return [
        mutant
        for path, source in sources.items()
        for mutant in find_mutants(path, source, deciding=names)
        if not any(entry.fits(mutant) for entry in tables.text_only)
    ]


def tests_for(
    mutant: Mutant, sources: dict[str, bytes], touched: Touching, seconds: float
) -> tuple[str, ...]:
    """Return the tests that may notice a mutant, the likely and quick ones first, as many as fit into the time."""
    lines = touched.lines.get(mutant.path, {})
    tests: set[str] = set()
    if mutant.function:
        tests = set().union(*(lines.get(line, ()) for line in mutant.lines))
    for path, line in _lines_about(mutant, sources) if not tests else ():
        tests |= touched.lines.get(path, {}).get(line, set())
    module = Path(*Path(mutant.path).parts[1:])  # without the package
    own = tuple(f"tests/{kind}/{module.parent}/test_{module.name}" for kind in ("unit", "integration"))
    if not mutant.function or (not tests and mutant.lines & touched.at_import.get(mutant.path, set())):
        tests |= {test for test in touched.seconds if test.partition("::")[0] in own}
    cases: Counter[str] = Counter()
    ranks: dict[str, tuple[int, int, float]] = {}
    for test in sorted(tests, key=lambda test: (touched.seconds.get(test, 1.0), test)):
        file = test.partition("::")[0]
        folder = next((n for n, start in enumerate(TESTS) if file.startswith(start)), len(TESTS))
        # Of a test with many cases one first: what it does not notice, another test will sooner than another case.
        name = test.partition("[")[0]
        cases[name] += 1
        ranks[test] = (-1 if file in own else folder, cases[name], touched.seconds.get(test, 1.0))

    # Both answers of the guard in turn: those that go on behind it, and those that do not.
    behind = tests & set().union(*(lines.get(line, ()) for line in mutant.behind))
    turns = zip_longest(sorted(behind, key=ranks.__getitem__), sorted(tests - behind, key=ranks.__getitem__))
    ordered = [test for turn in turns for test in turn if test is not None]
    chosen: list[str] = []
    left = seconds
    for test in sorted(ordered, key=lambda test: touched.seconds.get(test, 1.0) > _SLOW_SECONDS):
        left -= touched.seconds.get(test, 1.0)
        if left < 0 and chosen:
            break
        chosen.append(test)
    return tuple(chosen)


_parsed = cache(ast.parse)


def _lines_about(mutant: Mutant, sources: dict[str, bytes]) -> Iterator[tuple[str, int]]:
    """Yield the lines of the whole function; of a constant, those where it is used."""
    for path in [mutant.path] if mutant.function else sources:
        for node in ast.walk(_parsed(sources[path])):
            if mutant.function:
                if isinstance(node, ast.FunctionDef) and node.lineno <= mutant.line <= (node.end_lineno or 0):
                    yield from ((path, line) for line in _lines_in(node))
            elif isinstance(node, ast.Name) and node.id == mutant.guard:
                yield path, node.lineno


def _lines_in(function: ast.FunctionDef) -> range:
    return range(function.body[0].lineno, (function.end_lineno or 0) + 1)


def _function_text(mutant: Mutant, source: bytes) -> str:
    if not mutant.function:
        return digest(source)
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.FunctionDef) and node.lineno <= mutant.line <= (node.end_lineno or 0):
            return digest(ast.unparse(node).encode())
    return digest(source)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.guards", description=__doc__)
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATH[:LINE]", help="a module, or one line"
    )
    parser.add_argument(
        "--known", action="store_true", help="run nothing, only say what earlier runs have found"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--fresh", action="store_true", help="use no result of an earlier run")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for one mutant (60)")
    parser.add_argument(
        "--tests", action="append", default=[], metavar="PATH", help="test files or folders (all)"
    )
    parser.add_argument("--output", type=Path, help="write the page, docs/mutation.md")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it has started ends with it
    return run(
        ROOT,
        KEPT,
        msgspec.convert(tomllib.loads(TABLE.read_text()), Tables),
        only=chosen.only,
        patterns=GUARDED,
        folders=chosen.tests or TESTS,
        jobs=chosen.jobs,
        fresh=chosen.fresh,
        seconds=chosen.seconds,
        only_list=chosen.list,
        only_known=chosen.known,
        output=chosen.output,
    )


def run(
    root: Path,
    kept: Path,
    tables: Tables,
    *,
    patterns: Sequence[str],
    folders: Sequence[str],
    only: Sequence[str] = (),
    jobs: int = 1,
    fresh: bool = False,
    seconds: float = 60.0,
    only_list: bool = False,
    only_known: bool = False,
    output: Path | None = None,
) -> int:
    """Break guards; return 1 where one survives that ought not, or an entry of the tables is out of date."""
    everything = all_mutants(root, patterns, tables)
    mutants = [mutant for mutant in everything if not only or _is_meant(mutant, only)]
    if only_list:
        for mutant in mutants:
            print(
                f"{mutant.path}:{mutant.line} {mutant.function or '(module)'}: {mutant.guard}: {mutant.change}"
            )
        print(f"{len(mutants)} mutants")
        return 0
    modules = sorted({mutant.path for mutant in everything})
    if only_known:
        results = recall(root, kept, mutants, folders)
    else:
        results = judge(root, kept, mutants, modules, folders, jobs=jobs, fresh=fresh, seconds=seconds)
    survivors = [mutant for mutant in mutants if mutant.key in results and not results[mutant.key].killer]
    known = {mutant.key: entry for mutant in survivors for entry in tables.equivalent if entry.fits(mutant)}
    open_ones = [mutant for mutant in survivors if mutant.key not in known]
    for mutant in open_ones:
        seen = results[mutant.key].run
        print(f"{mutant.path}:{mutant.line} {mutant.function or '(module)'}: {mutant.guard}")
        print(
            f"    {mutant.change}: survives {seen} tests" if seen else f"    {mutant.change}: no test runs it"
        )
    stale = (
        [] if only or only_known else [entry for entry in tables.equivalent if entry not in known.values()]
    )
    for entry in stale:
        print(f"equivalent.toml: no survivor fits {entry.path}, {entry.function}: {entry.guard}")
    killed, not_run = len(results) - len(survivors), len(mutants) - len(results)
    unknown = f", {not_run} not run" if not_run else ""
    print(
        f"{len(mutants)} mutants: {killed} killed, {len(known)} equivalent, {len(open_ones)} survive{unknown}"
    )
    if output is not None:
        left_out = sorted({mutant.path for mutant in everything} - {mutant.path for mutant in mutants})
        output.write_text(page(mutants, results, known, tables, left_out))
    return 1 if open_ones or stale or not_run else 0


def _is_meant(mutant: Mutant, only: Sequence[str]) -> bool:
    for place in only:
        path, _, line = place.partition(":")
        if mutant.path.startswith(path) and (not line or int(line) in mutant.lines):
            return True
    return False


def judge(
    root: Path,
    kept: Path,
    mutants: Sequence[Mutant],
    modules: Sequence[str],
    folders: Sequence[str],
    *,
    jobs: int,
    fresh: bool,
    seconds: float,
) -> dict[str, Result]:
    """Return what became of each mutant, by its key; what is known from an earlier run is not run again."""
    kept.mkdir(exist_ok=True)
    sources = {path: (root / path).read_bytes() for path in modules}
    files = _files(root, folders)
    touched = touching(root, kept, modules, files)
    memory, made_from = _memory(kept), _made_from(root, files)
    found: dict[str, Result] = {}
    tasks, functions = [], {}
    for mutant in mutants:
        tests = tests_for(mutant, sources, touched, seconds)
        functions[mutant.key] = _function_text(mutant, sources[mutant.path])
        before = memory.get(mutant.key)
        if before is not None and before.result.killer in tests:
            tests = (before.result.killer, *(test for test in tests if test != before.result.killer))
        if before is not None and not fresh and before.function == functions[mutant.key]:
            rest = [before.result.killer] if before.result.killer else tests
            if before.tests == made_from(rest):
                found[mutant.key] = before.result
                continue
        at_import = bool(mutant.lines & touched.at_import.get(mutant.path, set()))
        tasks.append(
            Task(
                key=mutant.key,
                path=mutant.path,
                function="" if at_import else mutant.function,
                source=mutant.apply(sources[mutant.path]).decode(),
                tests=tests,
            )
        )
    by_key = {task.key: task for task in tasks}
    for first in range(0, len(tasks), _AT_ONCE * jobs):
        print(f"{len(tasks) - first} mutants are to be run", flush=True)
        for result in _run_tasks(root, kept, tasks[first : first + _AT_ONCE * jobs], touched, jobs):
            found[result.key] = result
            tests = (result.killer,) if result.killer else by_key[result.key].tests
            memory[result.key] = Known(result, functions[result.key], made_from(tests))
        (kept / "results.json").write_bytes(msgspec.json.encode(memory))
    return found


def recall(root: Path, kept: Path, mutants: Sequence[Mutant], folders: Sequence[str]) -> dict[str, Result]:
    """Return what earlier runs have found out and what still holds, without running anything."""
    memory, made_from = _memory(kept), _made_from(root, _files(root, folders))
    found = {}
    for mutant in mutants:
        before = memory.get(mutant.key)
        if before is None or before.function != _function_text(mutant, (root / mutant.path).read_bytes()):
            continue
        if not before.result.killer or before.tests == made_from([before.result.killer]):
            found[mutant.key] = before.result
    return found


def _memory(kept: Path) -> dict[str, Known]:
    store = kept / "results.json"
    return msgspec.json.decode(store.read_bytes(), type=dict[str, Known]) if store.exists() else {}


def _made_from(root: Path, files: Sequence[str]) -> Callable[[Iterable[str]], str]:
    """Return what gives a digest of tests: of their ids and what they say."""
    texts = {file: _tests_of((root / file).read_bytes()) for file in files}

    def made_from(tests: Iterable[str]) -> str:
        found = []
        for test in tests:
            file, _, name = test.partition("::")
            found.append(f"{test} {texts.get(file, {}).get(name.partition('[')[0], '')}")
        return digest("\n".join(found).encode())

    return made_from


def _files(root: Path, folders: Sequence[str]) -> list[str]:
    return [str(file.relative_to(root)) for folder in folders for file in _test_files(root / folder)]


def _tests_of(source: bytes) -> dict[str, str]:
    """Return a digest of each test of a file, by its name in the id."""
    found = {}
    for node in ast.parse(source).body:
        group, inside = (f"{node.name}::", node.body) if isinstance(node, ast.ClassDef) else ("", [node])
        for each in inside:
            if isinstance(each, ast.FunctionDef):
                found[group + each.name] = digest(ast.unparse(each).encode())
    return found


def _test_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("test_*.py"))


def _run_tasks(root: Path, kept: Path, tasks: Sequence[Task], touched: Touching, jobs: int) -> list[Result]:
    results = [Result(key=task.key) for task in tasks if not task.tests]
    tasks = [task for task in tasks if task.tests]
    if not tasks:
        return results
    running = []
    for job in range(jobs):
        own = tuple(tasks[job * len(tasks) // jobs : (job + 1) * len(tasks) // jobs])
        files = tuple(sorted({test.partition("::")[0] for task in own for test in task.tests}))
        names = {test for task in own for test in task.tests}
        took = {test: seconds for test, seconds in touched.seconds.items() if test in names}
        work, answers = kept / f"work-{job}.json", kept / f"answers-{job}.jsonl"
        work.write_bytes(msgspec.json.encode(Work(root=str(root), files=files, seconds=took, tasks=own)))
        answers.unlink(missing_ok=True)
        log = (kept / f"running-{job}.log").open("wb")
        command = [sys.executable, "-m", "tests.mutation.running", str(work), str(answers)]
        running.append(
            (
                subprocess.Popen(command, cwd=root, env=surroundings(root), stdout=log, stderr=log),
                answers,
                log,
            )
        )
    for process, answers, log in running:
        try:
            process.wait()
        except BaseException:
            for each, _, _ in running:
                each.terminate()
            for each, _, _ in running:
                each.wait()
            raise
        log.close()
        if answers.exists():
            results += [msgspec.json.decode(line, type=Result) for line in answers.read_bytes().splitlines()]
    missing = {task.key for task in tasks} - {result.key for result in results}
    if missing:
        raise SystemExit(f"{len(missing)} mutants were not run: see {kept}/running-*.log")
    return results


def page(
    mutants: Sequence[Mutant],
    results: dict[str, Result],
    known: dict[str, Entry],
    tables: Tables,
    left_out: Sequence[str],
) -> str:
    """Return the page of the documentation; ``left_out`` are modules that have guards and were not looked at."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    guards: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for mutant in mutants:
        guards[mutant.path].add((mutant.start, mutant.end))
        if mutant.key not in results:
            state = "not run"
        elif results[mutant.key].killer:
            state = "killed"
        else:
            state = "equivalent" if mutant.key in known else "open"
        counts[mutant.path][state] += 1
    not_run = sum(mutant.key not in results for mutant in mutants)
    incomplete = [_INCOMPLETE.format(len(mutants) - not_run, len(mutants))] if not_run or left_out else []
    lines = [
        _INTRODUCTION,
        *incomplete,
        "| module | guards | mutants | killed | equivalent | open | not run |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    rows = [
        (path.removeprefix("etcdfix/"), len(guards[path]), sum(count.values()), count)
        for path, count in sorted(counts.items())
    ]
    whole: Counter[str] = sum((count for *_, count in rows), Counter())
    rows.append(("**together**", sum(row[1] for row in rows), sum(row[2] for row in rows), whole))
    for name, number, made, count in rows:
        name = name if name.startswith("**") else f"`{name}`"
        states = (str(count[state]) for state in ("killed", "equivalent", "open", "not run"))
        lines.append(f"| {name} | {number} | {made} | {' | '.join(states)} |")
    if left_out:
        names = ", ".join(f"`{path.removeprefix('etcdfix/')}`" for path in left_out)
        lines += ["", f"Not looked at in this run: {names}."]
    lines += ["", "## Mutants that behave as the original does", ""]
    reasons: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for mutant in mutants:
        if mutant.key in known:
            entry = known[mutant.key]
            reasons[entry.path, mutant.function, entry.reason].append(
                f"`{_plain(mutant.guard)}` ({_plain(mutant.change)})"
            )
    for (path, function, reason), which in reasons.items():
        name = path.removeprefix("etcdfix/")
        lines.append(f"- `{name}`, `{function or 'constants'}`: {', '.join(dict.fromkeys(which))}. {reason}")
    lines += ["", "## Functions that only choose words", ""]
    for entry in tables.text_only:
        guard = f", `{_plain(entry.guard)}`" if entry.guard else ""
        lines.append(f"- `{entry.path.removeprefix('etcdfix/')}`, `{entry.function}`{guard}: {entry.reason}")
    survivors = [
        mutant
        for mutant in mutants
        if mutant.key in results and not results[mutant.key].killer and mutant.key not in known
    ]
    if survivors:
        lines += ["", "## Open", ""]
        lines += [
            f"- `{mutant.path.removeprefix('etcdfix/')}`, `{mutant.function or 'constants'}`: "
            f"`{_plain(mutant.guard)}` ({_plain(mutant.change)})"
            for mutant in survivors
        ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("`", "'").replace("|", "\\|")


_INTRODUCTION = """# Every guard, broken on purpose

A guard that no test would miss is a guard that somebody can remove. So each one on the way to a change is broken, one
at a time, and the tests that run its line are run until one fails: then the mutant is killed. What survives either
cannot be told from the original, and stands below with the reason, or is a missing test.

<!-- parsed -->
```sh
python -m tests.mutation.guards --output docs/mutation.md
```

It takes one to two hours the first time, and needs an etcd as the other tests do. `--only PATH[:LINE]` looks at one
module or line, `--list` shows what would be broken, `--jobs 2` uses two processes, `--known` runs nothing and writes
down what earlier runs have found. The checkout is not changed. Results stay in `.mutation/` and are used again while
the guard's function and the test that noticed are the same.

A guard is the test of an `if`, `while`, ternary or comprehension (broken: always true, always false), each operand of
`and` and `or` (left out), a comparison that is handed on (always true, always false), `<` and `<=` (the other one), a
`raise` (left out), and each member of a set or tuple that decides by membership (left out). `assert` narrows types and
is not one of them. What only chooses the words of a message is not broken. `tests/mutation/equivalent.toml` names its
entries by the guard's text, so that they hold wherever it moves; an entry that fits no survivor is an error.

## Result
"""

_INCOMPLETE = """\
**This page is not complete.** {} of {} mutants have a result that holds. Not run is what nobody has tried since the
guard's function, or the test that noticed, was changed. Open is what survived when it was last run, under the tests
that were chosen then: a test that was written since, or that was left out (`--tests`), counts from the next run on.
"""


if __name__ == "__main__":
    sys.exit(main())
