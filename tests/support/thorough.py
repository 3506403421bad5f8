"""How much is tried: a sample, or with ``ETCDFIX_TEST_THOROUGH=1`` 2,000 examples of each property and every place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")

THOROUGH = os.environ.get("ETCDFIX_TEST_THOROUGH") == "1"


def some(items: Sequence[_Item], *, of: int, turn: int = 0) -> Sequence[_Item]:
    """Return one in ``of`` items, begun at another one in each ``turn``; all of them where tests are thorough."""
    return items if THOROUGH else items[turn % of :: of]
