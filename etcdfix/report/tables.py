"""Tables that fit a terminal: cells fold, an etcd key stays whole, and what finds no room is left out and named.

The width is that of ``COLUMNS``, or else of the terminal that is written to. Where there is neither, nothing folds:
each row is one line, and stays the same whoever looks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

_GAP: Final = "  "
_ROOM: Final = 2
"""Beside a head, where there is room."""
_NARROWEST: Final = 40
_LONGEST_WORD: Final = 24
"""A longer word may be broken, after a character that separates its parts where there is one."""
_SHORTEST_LINE: Final = 16
"""So narrow a column may get before another one is left out."""
_SEPARATORS: Final = "-./,:;@_="
_EMPTY: Final = frozenset({"", "-"})
_KEY_INDENT: Final = "    "


def width_for(stream: BinaryIO) -> int:
    """Return how many characters fit a line; 0 where nothing limits them."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given):
        return max(int(given), _NARROWEST)
    try:
        width = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):  # no file behind it, or a terminal that has no size
        return 0
    return max(width, _NARROWEST) if width else 0


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    key: str = "",
    prose: bool = False,
    spare: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines of a table: rows in columns below their heads.

    Args:
        columns: The heads.
        rows: The cells. The caller has made foreign text safe, and short.
        width: Most characters of a line, 0 for any number.
        key: Head of the column of etcd keys; it comes last and is never folded: where a row has no room for it, it
            follows on a line of its own.
        prose: That column holds sentences, which do fold, between their words.
        spare: Heads of the columns that go first where there is no room for all.
    """
    order = sorted(range(len(columns)), key=lambda number: columns[number] == key and bool(key))
    cells = [[row[number] for number in order] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    roomy = [max(wide, len(head) + _ROOM) for head, wide in zip(cells[0], widths, strict=True)]
    if not width or _total(roomy) <= width:
        yield from (_line(row, roomy) for row in cells)
        return
    keys = [row.pop() for row in cells] if key in columns else []
    left_out = _leave_out(cells, width, spare)
    widths = _shrunk(cells, width)
    for number, row in enumerate(cells):
        wrapped = [_wrapped(cell, most) for cell, most in zip(row, widths, strict=True)]
        for at in range(max(map(len, wrapped))):
            parts = [lines[at] if at < len(lines) else "" for lines in wrapped]
            yield _line(parts, widths)
        if keys and keys[number]:
            room = width - len(_KEY_INDENT)
            for text in prose_lines(keys[number], room) if prose else [keys[number]]:
                yield (_KEY_INDENT + text).rstrip()
    if left_out:
        names = ", ".join(head for head in columns if head in left_out)
        yield from prose_lines(f"(no room for {names}: see -o json, or use a wider terminal)", width)


def folded(parts: Sequence[str], indent: str, width: int) -> Iterator[str]:
    """Yield what does not fit a line: the first part whole, the others below it, folded between their words."""
    yield indent + parts[0].strip()
    deeper = indent + " " * (len(parts[0]) - len(parts[0].lstrip())) + _KEY_INDENT
    for part in parts[1:]:
        if part.strip():
            room = max(width - len(deeper), _LONGEST_WORD)
            yield from (deeper + line for line in _wrapped(part.strip(), room, cut=False))


def prose_lines(text: str, width: int) -> list[str]:
    """Return sentences in lines, with room to indent all but the first by two; no word is cut."""
    return _wrapped(text, max(width - len(_GAP), _LONGEST_WORD), cut=False)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _line(parts: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()


def _leave_out(cells: list[list[str]], width: int, spare: Sequence[str]) -> set[str]:
    """Take out columns until the narrowest form of the others fits; return their heads.

    Those without contents go first, then those that can be spared, then the last.
    """
    left_out: set[str] = set()
    while len(cells[0]) > 1 and _total(_least(cells, _LONGEST_WORD)) > width:
        columns = range(1, len(cells[0]))
        empty = [number for number in columns if all(row[number] in _EMPTY for row in cells[1:])]
        spared = [number for number in columns if cells[0][number] in spare]
        if not empty and not spared and _total(_least(cells, _SHORTEST_LINE)) <= width:
            break
        number = (empty or spared or columns)[-1]
        left_out.add(cells[0][number])
        for row in cells:
            del row[number]
    return left_out


def _least(cells: list[list[str]], longest: int) -> list[int]:
    """Return the width of each column when it is folded as far as its words allow, longer ones broken."""
    return [
        max(min(longest, max(map(len, cell.split()), default=0)) for cell in column)
        for column in zip(*cells, strict=True)
    ]


def _shrunk(cells: list[list[str]], width: int) -> list[int]:
    """Return widths that fit: the widest column gives way first, none below its words where that is enough."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for longest in (_LONGEST_WORD, _SHORTEST_LINE):
        least = _least(cells, longest)
        while _total(widths) > width:
            able = [number for number, wide in enumerate(widths) if wide > least[number]]
            if not able:
                break
            widest = max(able, key=widths.__getitem__)
            widths[widest] -= 1
    return widths


_WORDS: Final = re.compile(r"\S+")


def _wrapped(cell: str, width: int, *, cut: bool = True) -> list[str]:
    """Return the lines of a cell.

    Args:
        cell: Words.
        width: Most characters of a line.
        cut: A word that is longer breaks after one of its parts, or else anywhere.
    """
    lines = [""]
    for word in _WORDS.findall(cell):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if len(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        while cut and len(word) > width:
            end = max(word.rfind(mark, 1, width) for mark in _SEPARATORS) + 1 or width
            lines[-1:] = [word[:end], ""]
            word = word[end:]
        lines[-1] = word
    return lines
