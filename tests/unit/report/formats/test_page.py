"""Rows of a page: a command that is copied has the whole key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etcdfix.report.formats.page import Block, Column, Rows


def shown(key: str) -> tuple[str, str]:
    """Return the key of the one row, and the command that the page's script makes for it."""
    rows = Rows([Column("key", "key")], [], 10)
    rows.add([(key, "")], [], [Block("ways", "Ways", [("look", f"etcdfix explain {key}", "")])])
    written: Any = json.loads(b"".join(rows.pieces()))
    (((cell, _below),), _facts, ((_kind, _title, ((_action, command, _note),)),)) = written["rows"][0]
    return cell, command.replace("\0", cell)


@pytest.mark.parametrize("length", [7, 8, 499, 500, 501, 580, 2000])
def test_a_command_has_the_whole_key_however_long(length: int) -> None:
    key = "/registry/example.com/widgets/shop/".ljust(length, "x")[:length]
    cell, command = shown(key)
    assert ("…" in cell) is (length > 500)
    assert command == f"etcdfix explain {key}"
