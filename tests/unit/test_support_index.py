"""The index of what tests share names each module once."""

from __future__ import annotations

import re
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "support"


def test_each_module_is_in_the_index_once() -> None:
    modules = {
        path.stem for path in SUPPORT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    named = re.findall(r"^\| `(\w+)` \|", (SUPPORT / "README.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(modules)
