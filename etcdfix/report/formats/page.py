"""A page that needs nothing but itself: the rows of its list, and how it is written.

Nothing in it is loaded from anywhere, and its policy forbids that: the one style and the one script count by their
digests, so that markup which got in by a hole in the escaping could neither look like ours nor run. Text of strangers
takes two ways in: through the template, which escapes, and as JSON that the script puts into text nodes alone. On both
it passes :func:`~etcdfix.text.safetext.safe_text`.

Rows wait encoded in a temporary file until the page is written, so memory does not grow with their number.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from etcdfix.report.base import fit
from etcdfix.spool import Spool
from etcdfix.text.safetext import safe_text

_LONGEST_COMMAND: Final = 8_192
_MOST_SHARED_BYTES: Final = 4 << 20
_MOST_MET: Final = 1 << 14
_KEY_MARK: Final = "\0"
"""Stands for the row's own key in what is said of it. No safe text has one."""
_SHORTEST_MARKED: Final = 8
_BUFFERED: Final = 200


class Column(msgspec.Struct, frozen=True):
    """A column of the list.

    Attributes:
        title: Its head.
        kind: ``text``, ``number``, ``mark`` (a coloured word) or ``key``: that one opens the row, and has a second
            line.
        choose: It can be filtered by its values.
        minor: Left out where the screen is narrow.
        order: How its values sort; what is not among them comes last.
    """

    title: str
    kind: str = "text"
    choose: bool = False
    minor: bool = False
    order: tuple[str, ...] = ()


class Block(NamedTuple):
    """What an opened row shows.

    ``kind`` is ``text`` (``items`` are sentences), ``evidence`` (check, result, detail) or ``ways`` (action, command,
    note).
    """

    kind: str
    title: str
    items: Sequence[Sequence[str]]


class _Shared:
    """JSON that rows refer to by its number, since many have the same.

    What was met once stays in its row: it may be its own. So does what finds no room.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._met: set[int] = set()
        self._room = _MOST_SHARED_BYTES

    def number_of(self, encoded: bytes) -> bytes:
        number = self._numbers.get(encoded)
        if number is None:
            digest = hash(encoded)
            if digest not in self._met or len(encoded) > self._room:
                if len(self._met) >= _MOST_MET:
                    self._met.clear()
                self._met.add(digest)
                return encoded
            self._room -= len(encoded)
            number = self._numbers[encoded] = len(self._numbers)
        return b"%d" % number

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._numbers)


class Rows:
    """The list, which sorts, filters and opens; its rows wait in a temporary file.

    Args:
        columns: Exactly one of kind ``key``. The list is sorted by the first.
        facts: Names of what is said of every row once it is opened.
        most: So many rows find a place.
    """

    def __init__(self, columns: Sequence[Column], facts: Sequence[str], most: int) -> None:
        self.count = 0
        self._columns = columns
        self._facts = facts
        self._most = most
        self._key_at = next(number for number, column in enumerate(columns) if column.kind == "key")
        self._spool: Spool[bytes] = Spool(bytes)
        self._shared = _Shared()

    def add(
        self,
        cells: Sequence[str | int | tuple[str, str]],
        facts: Sequence[str] = (),
        blocks: Iterable[Block] = (),
    ) -> None:
        """Add a row; it is only counted where there is no place for it.

        Args:
            cells: One for each column: a number, text, or for the key its two lines.
            facts: One for each name, "" for none.
            blocks: What else an opened row shows.
        """
        self.count += 1
        if self.count > self._most:
            return
        key = cells[self._key_at]
        assert isinstance(key, tuple)
        # A key that is cut in its cell must not be taken from there for a command.
        own = key[0] if len(key[0]) >= _SHORTEST_MARKED and fit(key[0]) == key[0] else ""
        row = b"[[%b],%b,[%b]]" % (
            b",".join(map(self._cell, cells)),
            _encode([_short(fact) for fact in facts]),
            b",".join(self._block(block, own) for block in blocks if block.items),
        )
        self._spool.append(row)

    def _cell(self, cell: str | int | tuple[str, str]) -> bytes:
        if isinstance(cell, int):
            return b"%d" % cell
        if isinstance(cell, str):
            return self._shared.number_of(_encode(_short(cell)))
        key, below = cell
        return b"[%b,%b]" % (_encode(_short(key)), self._shared.number_of(_encode(_short(below))))

    def _block(self, block: Block, key: str) -> bytes:
        """Return a block, the row's own key replaced by a mark: then many rows have the same items."""
        items = (_encode([_marked(_whole(text), key) for text in item]) for item in block.items)
        return b"[%b,%b,[%b]]" % (
            _encode(block.kind),
            _encode(block.title),
            b",".join(map(self._shared.number_of, items)),
        )

    @property
    def left_out(self) -> int:
        """How many rows are not in the page."""
        return max(self.count - self._most, 0)

    def pieces(self) -> Iterator[bytes]:
        """Yield the JSON that the script reads; once, since the rows are let go of."""
        yield _encode({"columns": self._columns, "facts": self._facts})[:-1] + b',"rows":['
        between = b"\n"
        for row in self._spool.drain():
            yield between + row
            between = b",\n"
        self._spool.close()
        yield b'],"shared":['
        between = b"\n"
        for value in self._shared:
            yield between + value
            between = b",\n"
        yield b"]}"


def _short(text: str) -> str:
    return safe_text(fit(text))


def _whole(text: str) -> str:
    """Return text that must not be cut, since it may be pasted; no command of an honest key is so long."""
    safe = safe_text(text)
    return safe if len(safe) <= _LONGEST_COMMAND else f"({len(safe)} characters: -o json has it)"


def _marked(text: str, key: str) -> str:
    return text.replace(safe_text(key), _KEY_MARK) if key else text


def _encode(value: Any) -> bytes:
    r"""Return JSON in which nothing ends the element that it stands in.

    The caller has made the text safe, but for what JSON itself spells out.
    """
    return (
        msgspec.json.encode(value)
        .replace(b"<", b"\\u003c")
        .replace(b">", b"\\u003e")
        .replace(b"&", b"\\u0026")
    )


def write_page(stream: BinaryIO, rows: Rows, **shown: Any) -> None:
    """Write the page.

    Args:
        stream: Binary output.
        rows: Its list.
        shown: What else the template shows, by name.
    """
    # Only a page pays for these.
    from importlib.resources import files  # noqa: PLC0415

    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    def safe(value: Any) -> Any:
        return safe_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    templates = files(__package__) / "templates"
    style, script = ((templates / name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=safe,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    written = environment.get_template("page.html").stream(
        rows=rows,
        data=(Markup(piece.decode()) for piece in rows.pieces()),  # noqa: S704 - see _encode
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        policy=_policy(style, script),
        **shown,
    )
    written.enable_buffering(_BUFFERED)
    stream.writelines(piece.encode() for piece in written)


def _policy(style: str, script: str) -> str:
    """Return what the page may do: apply this style, run this script, and nothing else."""
    sources = (f"{kind}-src '{_digest(text)}'" for kind, text in (("style", style), ("script", script)))
    return "; ".join(
        [
            "default-src 'none'",
            *sources,
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
