"""Where ``get`` puts objects: YAML or JSON as they come, or a list that is a document. Nothing closes the stream."""

from __future__ import annotations

from collections import Counter
from typing import BinaryIO, Final, Protocol

from etcdfix.golang.yamltext import INDENT, json_text, yaml_text
from etcdfix.model import Outcome
from etcdfix.report.document import CAP, Column, Document, Kind, State, Status, Step, Table
from etcdfix.report.objects import Form, Shown
from etcdfix.report.render import write
from etcdfix.report.tally import Stakes
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions, scan
from etcdfix.text.words import counted

WRONG: Final = frozenset(Outcome) - {Outcome.READABLE, Outcome.NOT_AN_OBJECT}
_FAILURES: Final = {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE}
_LIST_BEGINS: Final = b'{\n    "apiVersion": "v1",\n    "items": ['
_LIST_ENDS: Final = b'],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n'
_COLUMNS: Final = (
    Column("NAMESPACE"),
    Column("NAME", folds=True),
    Column("KIND"),
    Column("OUTCOME"),
    Column("CAUSE"),
    Column("REVISION", kind=Kind.NUMBER, wide=True),
    Column("KEY", kind=Kind.KEY, wide=True),
)


class Output(Protocol):
    """Takes shown objects one after the other."""

    contents: bool

    def write(self, shown: Shown) -> bool:
        """Take one; return whether anything of it is shown here."""

    def end(self) -> None:
        """Finish the output; only called when nothing was lost midway."""


class Documents:
    """YAML documents with ``---`` between them, one JSON object, or a ``v1 List`` in JSON.

    A JSON list that was cut, by an interruption or a lost source, is no JSON: nobody takes it for the whole.
    """

    contents = True

    def __init__(self, stream: BinaryIO, *, many: bool, json: bool) -> None:
        self._stream, self._many, self._json = stream, many, json
        self._count = 0

    def write(self, shown: Shown) -> bool:
        """Write one object; alone also what is left of one."""
        if not shown.whole and (self._many or shown.form is Form.NOTHING):
            return False
        if not self._json:
            text = b"---\n" * bool(self._count) + yaml_text(shown.document).encode()
        elif not self._many:
            text = json_text(shown.document) + b"\n"
        else:
            margin = INDENT * 2
            text = f"\n{margin}".encode() + json_text(shown.document, margin=margin)
            text = (b"," if self._count else _LIST_BEGINS) + text
        self._stream.write(text)
        self._count += 1
        return True

    def end(self) -> None:
        """Close a JSON list."""
        if self._json and self._many:
            self._stream.write((f"\n{INDENT}".encode() if self._count else _LIST_BEGINS) + _LIST_ENDS)


class Listing:
    """A row for each object, those that are wrong first, and its verdict."""

    contents = False

    def __init__(self, stream: BinaryIO, form: str, run: RunOptions, types: tuple[str, ...]) -> None:
        self._stream, self._form, self._run, self._types = stream, form, run, types
        self._counts: Counter[Outcome] = Counter()
        self._rows: tuple[list[Shown], list[Shown]] = ([], [])
        self._stakes = Stakes(past=run.of_the_past)

    def write(self, shown: Shown) -> bool:
        """Take one row."""
        outcome = shown.found.verdict.outcome
        self._counts[outcome] += 1
        rows = self._rows[outcome not in WRONG]
        if len(rows) < CAP:
            rows.append(shown)
        if outcome in WRONG:
            self._stakes.add(shown.found)
        return True

    def end(self) -> None:
        """Write the list, where there is anything."""
        if not self._counts:
            return
        write(self, self._form, self._stream, self._run)

    def document(self) -> Document:
        """Return how many objects are wrong, what to do, and the list."""
        counts = self._counts
        failed = sum(counts[outcome] for outcome in _FAILURES)
        told = [f"{failed} cannot be read"] * bool(failed)
        told += [
            f"{counts[outcome]} {outcome.value}"
            for outcome in (Outcome.INCONSISTENT, Outcome.UNDETERMINED, Outcome.NOT_AN_OBJECT)
            if counts[outcome]
        ]
        state = State.INCOMPLETE if counts[Outcome.UNDETERMINED] else State.OK
        wrong = bool(WRONG & {*counts})
        return Document(
            status=Status(
                State.FINDINGS if failed or counts[Outcome.INCONSISTENT] else state,
                f"{counted(counts.total(), 'object')}: {', '.join(told) or 'all can be read'}",
            ),
            stakes=self._stakes.lines(),
            next=Step("see what each needs", scan(*self._types)) if wrong and self._types else None,
            sections=[
                Table(
                    columns=_COLUMNS,
                    rows=[_row(shown) for rows in self._rows for shown in rows][:CAP],
                    total=counts.total(),
                    noun="object",
                    brief=15,
                )
            ],
        )


def _row(shown: Shown) -> tuple[str | int | None, ...]:
    found, kind = shown.found, shown.kind
    hidden = shown.secret and not (kind.kind + kind.version + kind.group).isprintable()
    return (
        found.namespace or None,
        found.name,
        f"{kind.api_version}/{kind.kind}" if kind.kind and not hidden else None,
        found.verdict.outcome.value,
        found.verdict.cause.value if found.verdict.cause is not None else None,
        found.stored.mod_revision,
        display(found.stored.key),
    )
