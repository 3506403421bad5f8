"""What every message of the Kubernetes API looks like on the wire and in JSON, release by release.

The package ships one file with all messages of Kubernetes 1.17 to 1.37. Opening it costs about two
milliseconds; a message is unpacked when somebody asks for it.
"""

from __future__ import annotations

import pkgutil
import zlib
from collections.abc import Iterator
from functools import cache, cached_property

import msgspec

_LABELS = {"o": "optional", "r": "repeated", "m": "map"}
_EMIT = {"-": "", "a": "always", "n": "nullable", "z": "omitzero", "p": "pointer"}

SCALAR_TYPES = frozenset({"string", "bytes", "bool", "int32", "int64", "double"})


class Field(msgspec.Struct, frozen=True, gc=False):
    """One field of a message.

    Attributes:
        json_name: Name in JSON; ``<inline>``: the sub-message's fields stand in the parent's JSON object;
            ``<none>``: not in JSON; ``<special>``: rendered by the message's own rule.
        label: ``optional``, ``repeated`` or ``map``.
        type: One of :data:`SCALAR_TYPES`, a full message name, or ``map``.
        key_type: Scalar type of a map's keys, else "".
        value_type: Scalar type or full message name of a map's values, else "".
        go_name: Go field name, as the API server prints it (``wrong wireType = 0 for field ObjectMeta``).
        emit: When JSON has the field: "" (not when empty), ``always``, ``nullable``, ``pointer`` or
            ``omitzero``.
        since: First Kubernetes minor that has the field.
    """

    number: int
    name: str
    json_name: str
    label: str
    type: str
    key_type: str
    value_type: str
    go_name: str
    emit: str
    since: int
    until: int


class MessageType:
    """One message: its fields, and how JSON shows it.

    Attributes:
        full_name: ``k8s.io.api.core.v1.Secret``.
        go_name: ``Secret``, as in ``proto: Secret: illegal tag 0 (wire type 2)``.
        package: ``v1``, the last label of the protobuf package.
        fields: In the order of the ``.proto`` file's numbers, those of the chosen release only.
        special: "" or the name of the message's own JSON form: ``time``, ``microtime``, ``duration``,
            ``quantity``, ``int-or-string``, ``raw-json``, ``list``, ``union``.
    """

    def __init__(self, full_name: str, special: str, fields: tuple[Field, ...]) -> None:
        self.full_name = full_name
        self.go_name = full_name.rpartition(".")[2]
        self.package = full_name.split(".")[-2]
        self.fields = fields
        self.special = special


class KindRow(msgspec.Struct, frozen=True, gc=False):
    """One line of the table of kinds; see :mod:`etcdfix.decoding.registry` for what is registered.

    Attributes:
        group: API group; ``*`` for kinds that are not bound to one.
        version: API version; "" where group is ``*``.
        since: First Kubernetes minor that has it.
        role: ``stored`` (has or had a storage path, or may), ``transient`` (lists, reviews, options),
            ``every-version`` (options kinds present in all group versions) or ``unversioned``.
    """

    group: str
    version: str
    kind: str
    message: str
    since: int
    until: int
    role: str


class _Tables:
    """The shipped file, split but not unpacked.

    Format (ours; written by ``fixtures/generate/schema.py``): a zlib stream of UTF-8 text. First line:
    ``kubernetes-api 1 <first minor> <last minor>``. Then one line per message, tab-separated: full name,
    special form, fields; a field is ten words: number, label (o, r, m), emission (-, a, n, z, p), since,
    until, name, JSON name (``=``: same), Go name (``=``: capitalised name), type (of a map: of its values),
    key type (``-``: no map). After an empty line, one line per kind with the attributes of
    :class:`KindRow`, tab-separated.
    """

    def __init__(self) -> None:
        packed = pkgutil.get_data("etcdfix.decoding", "data/kubernetes-api.z")
        assert packed is not None
        head, _, kinds = zlib.decompress(packed).decode().partition("\n\n")
        first, *messages = head.split("\n")
        _, _, oldest, newest = first.split(" ")
        self.oldest_minor = int(oldest)
        self.newest_minor = int(newest)
        self.messages = {line[: line.index("\t")]: line for line in messages}
        self._kinds = kinds

    @cached_property
    def kinds(self) -> tuple[KindRow, ...]:
        rows = []
        for line in self._kinds.split("\n"):
            group, version, kind, message, since, until, role = line.split("\t")
            rows.append(KindRow(group, version, kind, message, int(since), int(until), role))
        return tuple(rows)


@cache
def _tables() -> _Tables:
    return _Tables()


def known_minors() -> tuple[int, int]:
    """Return the first and the last Kubernetes minor that the tables describe."""
    tables = _tables()
    return tables.oldest_minor, tables.newest_minor


def clamp_minor(kubernetes_minor: int) -> int:
    """Return the minor among the known ones that is nearest to ``kubernetes_minor``."""
    oldest, newest = known_minors()
    return min(max(kubernetes_minor, oldest), newest)


def kind_rows() -> tuple[KindRow, ...]:
    """Return the table of kinds, all releases."""
    return _tables().kinds


class Schema:
    """Messages of one Kubernetes release, or of all known ones together.

    Attributes:
        kubernetes_minor: The release's minor (the nearest known one), or None for the union.
    """

    def __init__(self, kubernetes_minor: int | None = None) -> None:
        self.kubernetes_minor = None if kubernetes_minor is None else clamp_minor(kubernetes_minor)
        self._lines = _tables().messages
        self._unpacked: dict[str, MessageType] = {}

    def message(self, full_name: str) -> MessageType:
        """Return one message.

        Raises:
            KeyError: No release has a message of that name.
        """
        found = self._unpacked.get(full_name)
        if found is None:
            found = self._unpacked[full_name] = self._unpack(self._lines[full_name])
        return found

    def is_out_of_date(self, field: Field, owner: MessageType) -> bool:
        """Say of all releases together whether newer ones pass over whatever has the number of a field."""
        return self.kubernetes_minor is None and field.until < max(other.until for other in owner.fields)

    def __contains__(self, full_name: object) -> bool:
        return full_name in self._lines

    def __iter__(self) -> Iterator[str]:
        """Yield the full name of every message, sorted, those of other releases included."""
        return iter(self._lines)

    def _unpack(self, line: str) -> MessageType:
        name, special, *packed = line.split("\t")
        minor = self.kubernetes_minor
        fields = [_unpack_field(words) for words in packed]
        if minor is not None and fields:
            # Types were renamed (1.23 made Handler a ProbeHandler, the wire stayed the same). Below the release
            # that brought the name, its first shape counts, rather than a message without fields.
            minor = min(max(minor, min(f.since for f in fields)), max(f.until for f in fields))
        return MessageType(
            name,
            special,
            tuple(field for field in fields if minor is None or field.since <= minor <= field.until),
        )


def _unpack_field(packed: str) -> Field:
    number, label, emit, since, until, name, json_name, go_name, type_, key_type = packed.split(" ")
    is_map = label == "m"
    return Field(
        number=int(number),
        name=name,
        json_name=name if json_name == "=" else json_name,
        label=_LABELS[label],
        type="map" if is_map else type_,
        key_type=key_type if is_map else "",
        value_type=type_ if is_map else "",
        go_name=name[:1].upper() + name[1:] if go_name == "=" else go_name,
        emit=_EMIT[emit],
        since=int(since),
        until=int(until),
    )


@cache
def load_schema(kubernetes_minor: int | None = None) -> Schema:
    """Return the schema of one Kubernetes minor, or of all known releases together (None).

    In the union a field is there if any release has it. A minor outside the known range gives the nearest
    known one. Every call with the same argument gives the same object.
    """
    return Schema(kubernetes_minor)
