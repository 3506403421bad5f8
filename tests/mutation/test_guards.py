"""The script that breaks guards: what it breaks, and that it finds the guard which no test would miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.guards import Entry, Tables, run
from tests.mutation.mutants import Mutant, find_mutants

PLANTED = b'''"""Two guards."""

from __future__ import annotations

ODD = frozenset({"odd", "strange"})


def allow(number: int, word: str) -> bool:
    if number < 0:
        raise ValueError(number)
    if word in ODD:
        return False
    return True
'''

CHECKS = """
import pytest

from planted.guarded import allow


def test_negative():
    with pytest.raises(ValueError):
        allow(-1, "plain")
    assert allow(0, "plain")


def test_odd():
    assert not allow(1, "odd")
"""


def changes(source: str, *, deciding: frozenset[str] = frozenset()) -> list[str]:
    return [f"{m.guard}: {m.change}" for m in find_mutants("m.py", source.encode(), deciding=deciding)]


def test_what_is_broken_about_a_condition() -> None:
    assert changes("def f(a, b):\n    if a and not b:\n        return 1\n") == [
        "a and (not b): always True",
        "a and (not b): always False",
        "a and (not b): without: a",
        "a and (not b): without: not b",
    ]
    assert changes("def f(a):\n    return [x for x in a if x <= 3]\n") == [
        "x <= 3: always True",
        "x <= 3: always False",
        "x <= 3: <= as <",
    ]
    assert changes("def f(a):\n    return 0 < a <= 9\n") == [
        "0 < a <= 9: always True",
        "0 < a <= 9: always False",
        "0 < a <= 9: without: 0 < a",
        "0 < a <= 9: without: a <= 9",
        "0 < a <= 9: < as <= (1)",
        "0 < a <= 9: <= as < (2)",
    ]


def test_a_raise_alone_behind_its_condition_is_gone_with_it() -> None:
    assert changes("def f(a):\n    if a:\n        raise E\n") == ["a: always True", "a: always False"]
    assert changes("def f(a):\n    try:\n        g()\n    except E:\n        raise F from None\n") == [
        "raise F from None: raise left out"
    ]


def test_members_are_left_out_where_they_decide() -> None:
    assert changes("def f(a):\n    return a in {1, 2}\n")[2:] == [
        "a in {1, 2}: without the member 1",
        "a in {1, 2}: without the member 2",
    ]
    constant = "ODD = frozenset({1, 2})\nEVEN = (3, 4)\n"
    assert changes(constant) == []
    assert changes(constant, deciding=frozenset({"ODD"})) == [
        "ODD: without the member 1",
        "ODD: without the member 2",
    ]


def test_words_and_assertions_are_left_alone() -> None:
    assert changes('def f(a):\n    assert a\n    return f"{1 if a else 2}", refuse(1 if a else 2)\n') == []


def test_the_same_guard_twice_is_two() -> None:
    found = find_mutants("m.py", b"def f(a):\n    if a:\n        g()\n    if a:\n        h()\n")
    assert [(m.change, m.occurrence) for m in found] == [
        ("always True", 1),
        ("always False", 1),
        ("always True", 2),
        ("always False", 2),
    ]


def test_lines_stay_where_they_are() -> None:
    source = b"def f(a, b):\n    if (\n        a\n        and b\n    ):\n        g()\n"
    for mutant in find_mutants("m.py", source):
        assert mutant.apply(source).splitlines()[-1] == b"        g()"
        compile(mutant.apply(source), "m.py", "exec")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "guarded.py").write_bytes(PLANTED)
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "test_guarded.py").write_text(CHECKS)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n"
    )
    return tmp_path


def judged(root: Path, *equivalent: Entry) -> int:
    tables = Tables(equivalent=equivalent)
    return run(root, root / ".kept", tables, patterns=("planted/*.py",), folders=("checks",))


def test_a_guard_without_a_test_is_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = Entry("planted/guarded.py", "", "nobody says so", "ODD", "without the member 'strange'")
    assert judged(root) == 1
    said = capsys.readouterr().out
    assert "planted/guarded.py:5 (module): ODD\n    without the member 'strange': survives 2 tests" in said
    assert "7 mutants: 6 killed, 0 equivalent, 1 survive" in said
    assert judged(root, strange) == 0
    # Known by now, and so it takes no time.
    (root / "checks" / "test_guarded.py").write_text(CHECKS + '\n    assert not allow(1, "strange")\n')
    assert judged(root, strange) == 1
    assert "equivalent.toml: no survivor fits planted/guarded.py, : ODD" in capsys.readouterr().out


def test_an_entry_speaks_of_its_own_guard_only() -> None:
    mutant = Mutant(
        path="m.py",
        function="f",
        guard="a",
        change="always True",
        line=1,
        lines=frozenset(),
        start=0,
        end=1,
        text="",
    )
    assert Entry("m.py", "f", "why").fits(mutant)
    assert not Entry("m.py", "f", "why", "b").fits(mutant)
    assert not Entry("m.py", "f", "why", "a", "always False").fits(mutant)
    assert not Entry("m.py", "g", "why").fits(mutant)
