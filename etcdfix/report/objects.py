"""Documents of examined values: the object itself, what is left of it, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any, BinaryIO, Final

import msgspec

from etcdfix.decoding.kubeobject import Damage, KubeObject, ObjectReader
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.golang.yamltext import INDENT, json_text, yaml_text
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import GroupVersionKind, Outcome
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, display
from etcdfix.report.document import CAP, Column, Document, Kind, State, Status, Step, Table
from etcdfix.report.masking import (
    MASKED,
    SECRET,
    Identity,
    make_irreplaceable,
    mask_secrets,
    says_secret,
    sounds_odd,
)
from etcdfix.report.model import API_VERSION
from etcdfix.report.tally import Stakes
from etcdfix.text.commands import scan
from etcdfix.text.safetext import key_base64
from etcdfix.text.words import counted

_MANAGED_FIELDS: Final = "metadata.managedFields"
_LONGEST_TEXT: Final = 4096
_LIST_BEGINS: Final = b'{\n    "apiVersion": "v1",\n    "items": ['
_LIST_ENDS: Final = b'],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n'


WRONG: Final = frozenset(Outcome) - {Outcome.READABLE, Outcome.NOT_AN_OBJECT}
"""Outcomes that need a sentence."""


class Form(StrEnum):
    """What a document is: what the API server would serve, what is left of it and says so by its kind, or nothing."""

    OBJECT = "object"
    SALVAGE = "salvage"
    NOTHING = "nothing"


class Shown(msgspec.Struct, frozen=True):
    """One examined key with what may be shown of it; its ``repr`` shows nothing.

    Attributes:
        found: The verdict.
        form: What ``document`` is.
        document: Masked as asked for; empty for ``NOTHING``.
        kind: Group, version and kind, for listings; parts may be empty.
        masked: How many values were masked.
        secret: It is, or may be, a Secret, by its key or by its kind.
        problem: Why there is no document although the value could be opened; "" otherwise.
        irreplaceable: The ``resourceVersion`` is none, so that no API server replaces an object with the document.
    """

    found: Examination
    form: Form
    document: dict[str, Any]
    kind: GroupVersionKind
    masked: int = 0
    secret: bool = False
    problem: str = ""
    irreplaceable: bool = False

    def __repr__(self) -> str:
        return f"Shown(form={self.form.value!r})"

    @property
    def whole(self) -> bool:
        """Whether the document is the object itself."""
        return self.form is Form.OBJECT


class Viewer:
    """Makes documents of examined values.

    Args:
        examiner: The one that examined them.
        reveal: Show the contents of Secrets.
        omit_managed_fields: Leave ``metadata.managedFields`` out; what is broken there is then no obstacle.
    """

    def __init__(
        self, examiner: Examiner, *, reveal: bool = False, omit_managed_fields: bool = False
    ) -> None:
        self._examiner = examiner
        self._reader = ObjectReader(examiner.decoder)
        self._reveal = reveal
        self._omit = omit_managed_fields

    def show(self, found: Examination) -> Shown:
        """Return what may be shown of one value."""
        kind = _kind_of(found)
        plaintext = self._examiner.plaintext(found)
        if plaintext is None:
            # It opened a moment ago: only a plugin can have gone away since.
            problem = "its KMS plugin does not answer any more" if found.opened else ""
            secret = stored_as_secret(found.directory)
            return Shown(found, Form.NOTHING, {}, kind, secret=secret, problem=problem)
        try:
            whole = self._read(plaintext, found.directory)
        except DecodeError as problem:
            return self._broken(found, plaintext, problem, kind)
        if whole.empty:
            return self._salvaged(found, whole, kind)
        if self._omit:
            whole = whole.without_managed_fields()
        if not self._renderable(found):
            return self._salvaged(found, whole, kind)
        document = whole.value
        secret = stored_as_secret(found.directory) or document.get("kind") == SECRET or whole.guessed
        stored_by_api = found.verdict.outcome is not Outcome.NOT_AN_OBJECT
        if stored_by_api and found.directory.codec is not StorageCodec.ALLOCATOR:
            _set_resource_version(document, found.stored.mod_revision)
        masked = 0 if self._reveal else mask_secrets(document, secret=secret)
        mismatch = _is_another(found)
        if masked or mismatch:
            make_irreplaceable(document, MASKED if masked else Cause.IDENTITY_MISMATCH.value)
        kind = kind if kind.kind else _kind_in(document)
        return Shown(
            found, Form.OBJECT, document, kind, masked, secret, irreplaceable=bool(masked) or mismatch
        )

    def list(self, found: Examination) -> Shown:
        """Return one value for a list, which needs the verdict alone: nothing is decrypted or converted again."""
        kind = _kind_of(found)
        secret = stored_as_secret(found.directory) or kind.kind == SECRET
        return Shown(found, Form.NOTHING, {}, kind, secret=secret)

    def _read(self, data: bytes, directory: ResourcePrefix) -> KubeObject:
        match directory.codec:
            case StorageCodec.BUILTIN | StorageCodec.ALLOCATOR:
                return self._reader.builtin(data, directory.group, directory.kind)
            case StorageCodec.JSON_BUILTIN:
                return self._reader.json_builtin(data, directory.group, directory.kind)
        crd = self._examiner.readers.custom_resource(directory)
        return self._reader.custom_resource(data, crd) if crd is not None else self._reader.foreign(data)

    def _renderable(self, found: Examination) -> bool:
        """Say whether the object can be written as JSON: the API server cannot write one whose raw JSON is none."""
        wrong = found.decoded.inconsistencies if found.decoded is not None else ()
        return all(
            self._omit and w.field_path.startswith(_MANAGED_FIELDS) for w in wrong if w.breaks_responses
        )

    def _broken(self, found: Examination, data: bytes, problem: DecodeError, kind: GroupVersionKind) -> Shown:
        if found.verdict.outcome is not Outcome.DECODE_FAILURE:
            # Nobody knows the owner, or it is none of the API servers' keys: nothing is broken that we know of.
            words = "no object that etcdfix can show"
            if data.startswith(b"k8s:enc:"):
                words = "an encrypted value outside the storage prefix"
            return Shown(found, Form.NOTHING, {}, kind, problem=words)
        directory = found.directory
        left = self._reader.salvage(data, problem, directory.group, directory.kind)
        if left is None:
            left = KubeObject(
                {}, "", partial=True, damage=Damage(problem.message, problem.offset, problem.field_path)
            )
        return self._salvaged(found, left, kind, secret=says_secret(data))

    def _salvaged(
        self, found: Examination, left: KubeObject, kind: GroupVersionKind, *, secret: bool = False
    ) -> Shown:
        """Wrap what is left so that nobody, and no API server, takes it for the object.

        ``secret``: the value says so, which what was made of it may not say any more.
        """
        if self._omit:
            left = left.without_managed_fields()
        partial = left.value
        secret = secret or left.guessed or stored_as_secret(found.directory)
        secret = secret or SECRET in {partial.get("kind"), kind.kind}
        masked = 0
        if not self._reveal:
            damaged = Identity(found.namespace, found.name) if secret else None
            masked = mask_secrets(partial, secret=secret, damaged=damaged, cut=_is_cut(left))
        key, verdict = found.stored.key, found.verdict
        document = {
            "apiVersion": API_VERSION,
            "kind": "Salvage",
            "key": display(key),
            **({"key_base64": encoded} if (encoded := key_base64(key)) is not None else {}),
            "outcome": verdict.outcome.value,
            "cause": verdict.cause.value if verdict.cause is not None else None,
            "message": message_of(found, secret=secret and not self._reveal),
            "damage": _damage_document(left.damage, found, hide=secret and not self._reveal),
            "missing_parts": left.partial or not self._renderable(found),
            "type_from_key": left.guessed,
            "partial": partial or None,
        }
        return Shown(found, Form.SALVAGE, document, kind, masked, secret)


def stored_as_secret(directory: ResourcePrefix) -> bool:
    """Say whether the keys of a directory are those of Secrets."""
    return directory.resource == "secrets" and directory.group == ""


def _is_cut(left: KubeObject) -> bool:
    """Say whether members may be missing that would have said what something inside is."""
    return left.partial and left.encoding == "json"


def _is_another(found: Examination) -> bool:
    """Say whether the object has another identity than its key: put back, it would replace that other one."""
    # The cause may be a worse one; the evidence names them all.
    return any(evidence.check == Cause.IDENTITY_MISMATCH for evidence in found.verdict.evidence)


def message_of(found: Examination, *, secret: bool) -> str:
    """Return the verdict's sentence; of a Secret none that damage could have moved contents into."""
    message = found.verdict.message
    if secret and sounds_odd(message):
        return "what it says it is cannot be told without showing some of its contents"
    return message


def _kind_of(found: Examination) -> GroupVersionKind:
    directory = found.directory
    if found.gvk is not None and found.gvk.kind:
        return found.gvk
    return GroupVersionKind(directory.group, directory.version, directory.kind)


def _kind_in(document: dict[str, Any]) -> GroupVersionKind:
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    return GroupVersionKind(group, version, str(document.get("kind", "")))


def _set_resource_version(document: dict[str, Any], mod_revision: int) -> None:
    """Set what the API server sets when it reads: a later ``kubectl replace`` then cannot undo another's change."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return
    entries = [(name, value) for name, value in metadata.items() if name != "resourceVersion"]
    metadata.clear()
    before = {"name", "generateName", "namespace", "selfLink", "uid"}
    place = max((n for n, (name, _) in enumerate(entries, start=1) if name in before), default=0)
    metadata.update([*entries[:place], ("resourceVersion", str(mod_revision)), *entries[place:]])


def _damage_document(damage: Damage | None, found: Examination, *, hide: bool) -> dict[str, Any]:
    if damage is None:
        wrong = found.decoded.inconsistencies if found.decoded is not None else ()
        breaking = [w for w in wrong if w.breaks_responses]
        # What --omit-managed-fields does not mend comes first.
        breaking.sort(key=lambda w: w.field_path.startswith(_MANAGED_FIELDS))
        path = breaking[0].field_path if breaking else ""
        message, offset = breaking[0].detail if breaking else found.verdict.upstream_message, None
    else:
        path, message, offset = damage.field_path, damage.message, damage.offset
    # The API server's words quote more than a name as Go does, escaped.
    if hide and sounds_odd(message + path):
        message = path = "<masked>"
    return {"offset": offset, "field_path": path[:_LONGEST_TEXT], "message": message[:_LONGEST_TEXT]}


class Documents:
    """YAML documents with ``---`` between them, one JSON object, or a ``v1 List`` in JSON.

    A JSON list that was cut, by an interruption or a lost source, is no JSON: nobody takes it for the whole.
    """

    def __init__(self, stream: BinaryIO, *, many: bool, json: bool) -> None:
        self._stream, self._many, self._json = stream, many, json
        self._count = 0

    def add(self, shown: Shown) -> bool:
        """Write one object, alone also what is left of one; say whether anything of it is shown."""
        if not shown.whole and (self._many or shown.form is Form.NOTHING):
            return False
        if not self._json:
            text = b"---\n" * bool(self._count) + yaml_text(shown.document).encode()
        elif not self._many:
            text = json_text(shown.document) + b"\n"
        else:
            text = f"\n{INDENT * 2}".encode() + json_text(shown.document, margin=INDENT * 2)
            text = (b"," if self._count else _LIST_BEGINS) + text
        self._stream.write(text)
        self._count += 1
        return True

    def end(self) -> None:
        """Close a JSON list; only called when nothing was lost midway."""
        if self._json and self._many:
            self._stream.write((f"\n{INDENT}".encode() if self._count else _LIST_BEGINS) + _LIST_ENDS)


class ObjectList:
    """A row for each object, those that are wrong first, with its verdict; ``write`` shows the document."""

    def __init__(self, types: tuple[str, ...], *, past: bool, write: Callable[[ObjectList], None]) -> None:
        self._types, self._write = types, write
        self._counts: Counter[Outcome] = Counter()
        self._rows: tuple[list[Shown], list[Shown]] = ([], [])
        self._stakes = Stakes(past=past)

    def add(self, shown: Shown) -> bool:
        """Take one row; say that it is shown."""
        outcome = shown.found.verdict.outcome
        self._counts[outcome] += 1
        rows = self._rows[outcome not in WRONG]
        if len(rows) < CAP:
            rows.append(shown)
        if outcome in WRONG:
            self._stakes.add(shown.found)
        return True

    def end(self) -> None:
        """Show the list, where there is anything."""
        if self._counts:
            self._write(self)

    def document(self) -> Document:
        """Return how many objects are wrong, what to do, and the list."""
        counts = self._counts
        failed = counts[Outcome.DECRYPT_FAILURE] + counts[Outcome.DECODE_FAILURE]
        others = (Outcome.INCONSISTENT, Outcome.UNDETERMINED, Outcome.NOT_AN_OBJECT)
        told = [f"{failed} cannot be read"] * bool(failed)
        told += [f"{counts[outcome]} {outcome.value}" for outcome in others if counts[outcome]]
        state = State.INCOMPLETE if counts[Outcome.UNDETERMINED] else State.OK
        return Document(
            status=Status(
                State.FINDINGS if failed or counts[Outcome.INCONSISTENT] else state,
                f"{counted(counts.total(), 'object')}: {', '.join(told) or 'all can be read'}",
            ),
            stakes=self._stakes.lines(),
            next=Step("see what each needs", scan(*self._types)) if self._rows[0] and self._types else None,
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


_COLUMNS: Final = (
    Column("NAMESPACE"),
    Column("NAME", folds=True),
    Column("KIND"),
    Column("OUTCOME"),
    Column("CAUSE"),
    Column("REVISION", kind=Kind.NUMBER, wide=True),
    Column("KEY", kind=Kind.KEY, wide=True),
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
