"""Whether two trees are told apart by one field."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.oracle.comparing import Group
from tests.oracle.reading import both
from tests.oracle.trees import Tree

PROGRAM = """
import json, sys
def main():
    finding = {{"key": "/registry/secrets/a", "cause": "{cause}", "message": "{message}"}}
    print(json.dumps({{"findings": [finding], "asked": sys.argv[1]}}))
    sys.exit(1)
"""


def tree(folder: Path, **words: str) -> Tree:
    package = folder / "etcdfix"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PROGRAM.format(**words))
    return Tree(folder, folder / "home")


@pytest.mark.parametrize(("cause", "differing"), [("value-truncated", 0), ("empty-value", 1)])
def test_trees_that_differ_in_one_field_are_told_apart(tmp_path: Path, cause: str, differing: int) -> None:
    with (
        closing(tree(tmp_path / "a", cause="value-truncated", message="some words")) as old,
        closing(tree(tmp_path / "b", cause=cause, message="other words")) as new,
    ):
        group = both((old, new), iter([("case", ["scan"])]), Group("these"))
    assert (group.compared, group.differing) == (1, differing)
    found = [(".told.findings[/registry/secrets/a].cause", "value-truncated", cause)] if differing else []
    assert [(at, old, new) for _case, at, old, new in group.differences] == found
    assert ("'value-truncated' -> 'empty-value'" in group.report()) == bool(differing)
