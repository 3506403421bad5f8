"""Which tests run which lines of the modules whose guards are broken, and how long each takes.

One run of the tests under coverage, kept by test file: a file that has not changed is not run again. Where a module has
changed since, its lines are followed to where they are now.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from coverage import CoverageData

AT_IMPORT = -1
"""Stands for a test where a line is run by the import of its module, or while tests are collected."""


class FileMap(msgspec.Struct):
    """What the tests of one file run.

    Attributes:
        digest: Of the test file, when they were run.
        sources: Digest of each module at that time.
        tests: Ids of those that pass.
        seconds: How long each of them takes.
        lines: For each module and line the tests that run it, by their place in ``tests``.
    """

    digest: str
    sources: dict[str, str]
    tests: list[str] = []
    seconds: list[float] = []
    lines: dict[str, dict[int, list[int]]] = {}


class Touching(msgspec.Struct, frozen=True):
    """All files together.

    Attributes:
        lines: Tests by module and line; :data:`AT_IMPORT` is left out.
        at_import: Lines that are run by import, by module.
        seconds: Of each test.
    """

    lines: dict[str, dict[int, set[str]]]
    at_import: dict[str, set[int]]
    seconds: dict[str, float]


def surroundings(root: Path) -> dict[str, str]:
    """Return the environment in which a process finds the modules of a checkout, and then these."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(Path(__file__).parents[2])))}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def touching(root: Path, kept: Path, modules: Sequence[str], files: Sequence[str]) -> Touching:
    """Return who runs what, running the test files that are not known yet.

    Args:
        root: Of the checkout.
        kept: Folder where maps stay from one run to the next.
        modules: Paths of the modules, from ``root``.
        files: Paths of the test files, from ``root``.
    """
    (kept / "maps").mkdir(parents=True, exist_ok=True)
    (kept / "sources").mkdir(exist_ok=True)
    maps: dict[str, FileMap] = {}
    for file in files:
        place = _place(kept, file)
        if place.exists():
            found = msgspec.json.decode(place.read_bytes(), type=FileMap)
            if found.digest == digest((root / file).read_bytes()) and found.sources.keys() >= set(modules):
                maps[file] = found
    stale = [file for file in files if file not in maps]
    if stale:
        print(f"looking at what the tests of {len(stale)} files run", flush=True)
        maps |= _run(root, kept, modules, stale)
    return _together(root, kept, modules, maps.values())


def _place(kept: Path, file: str) -> Path:
    return kept / "maps" / (file.replace("/", "__") + ".json")


def _run(root: Path, kept: Path, modules: Sequence[str], files: Sequence[str]) -> dict[str, FileMap]:
    sources = {}
    for module in modules:
        source = (root / module).read_bytes()
        sources[module] = digest(source)
        (kept / "sources" / sources[module]).write_bytes(source)
    settings, data = kept / "coverage.ini", kept / "coverage.data"
    including = "".join(f"\n  {root / module}" for module in modules)
    settings.write_text(f"[run]\nbranch = false\ndata_file = {data}\ninclude ={including}\n")
    data.unlink(missing_ok=True)
    durations = kept / "durations.json"
    durations.unlink(missing_ok=True)
    with (kept / "coverage.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.coverage_map", str(settings), str(durations), *files],
            cwd=root,
            env=surroundings(root),
            stdout=log,
            stderr=log,
        )
        try:
            process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if not durations.exists():
        raise SystemExit(f"the tests could not be run: see {kept / 'coverage.log'}")
    took = msgspec.json.decode(durations.read_bytes(), type=dict[str, tuple[float, bool]])
    failing = [test for test, (_, passed) in took.items() if not passed]
    if failing:
        print(f"{len(failing)} tests fail without any mutant and are left out, such as {failing[0]}")
    found = {file: FileMap(digest((root / file).read_bytes()), sources, [], [], {}) for file in files}
    places: dict[str, tuple[FileMap, int]] = {}
    for test, (seconds, passed) in took.items():
        of = found.get(test.partition("::")[0])
        if of is not None and passed:
            places[test] = (of, len(of.tests))
            of.tests.append(test)
            of.seconds.append(round(seconds, 3))
    measured = CoverageData(str(data))
    measured.read()
    for module in modules:
        for line, contexts in (measured.contexts_by_lineno(str(root / module)) or {}).items():
            for context in contexts:
                if not context:
                    for file_map in found.values():
                        file_map.lines.setdefault(module, {}).setdefault(line, []).append(AT_IMPORT)
                elif (place := places.get(context.rpartition("|")[0])) is not None:
                    numbers = place[0].lines.setdefault(module, {}).setdefault(line, [])
                    if place[1] not in numbers:
                        numbers.append(place[1])
    data.unlink(missing_ok=True)
    for file, file_map in found.items():
        _place(kept, file).write_bytes(msgspec.json.encode(file_map))
    return found


def _together(root: Path, kept: Path, modules: Sequence[str], maps: Iterable[FileMap]) -> Touching:
    now = {module: (root / module).read_bytes() for module in modules}
    moves: dict[tuple[str, str], dict[int, int] | None] = {}
    whole = Touching({module: {} for module in modules}, {module: set() for module in modules}, {})
    for found in maps:
        whole.seconds.update(zip(found.tests, found.seconds, strict=True))
        for module, lines in found.lines.items():
            if module not in now:
                continue
            then = found.sources[module]
            if (module, then) not in moves:
                moves[module, then] = _moves(kept / "sources" / then, then, now[module])
            move = moves[module, then]
            for line, tests in lines.items():
                here = line if move is None else move.get(line)
                if here is None:
                    continue
                for number in tests:
                    if number == AT_IMPORT:
                        whole.at_import[module].add(here)
                    else:
                        whole.lines[module].setdefault(here, set()).add(found.tests[number])
    return whole


def _moves(old: Path, then: str, now: bytes) -> dict[int, int] | None:
    """Return where each line stands now, None where nothing has moved."""
    if then == digest(now):
        return None
    before, after = old.read_bytes().splitlines(), now.splitlines()
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {block.a + n + 1: block.b + n + 1 for block in blocks for n in range(block.size)}


def main(settings: str, durations: str, *files: str) -> int:
    """Run tests under coverage, in this process."""
    from tests.mutation.running import Durations, run_tests

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server of a test is left running
    seen = Durations()
    code = run_tests(
        ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=", *files], seen
    )
    took = {test: (seen.seconds[test], passed) for test, passed in seen.passed.items()}
    Path(durations).write_bytes(msgspec.json.encode(took))
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
