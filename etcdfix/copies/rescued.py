"""What was saved from the memory of API servers: one JSON document a file, and an index beside them.

The writer is :mod:`etcdfix.remediation.saved_objects`. Whoever reads here must not believe what stands in the index
without looking at the file: :func:`read_saved` compares its digest. Whether the digest is one that was recorded when
the file was written, only the audit log can tell.

Format:
    ``index.jsonl``: one line for each file, oldest first, UTF-8, ended by one newline; a last line without one is what
    a crash left of it, and stands for nothing. A file holds the very bytes of an API server's answer to one GET.
"""

from __future__ import annotations

import errno
import hashlib
import re
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from etcdfix.inputs.inputfile import open_regular, read_input, too_large
from etcdfix.inputs.ownfiles import RESCUE_INDEX_NAME, RESCUED_NAME
from etcdfix.model.errors import ConfigurationError, why
from etcdfix.model.model import digest_of

INDEX_NAME: Final = RESCUE_INDEX_NAME
FORMAT: Final = "etcdfix.copies.rescued/v1"

MAX_OBJECT_BYTES: Final = 16 << 20
"""Of one answer: JSON takes more room than what etcd holds, where that is 1.5 MiB at most unless told otherwise."""

MAX_INDEX_BYTES: Final = 1 << 30
"""It is never shortened; a hundred thousand objects are 60 MB."""

_MOST_LINE_BYTES: Final = 1 << 20
"""The name of an object has 253 characters at most, and so has its namespace."""


class SavedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the index: an object as an API server had it in memory.

    Attributes:
        format: Of this line.
        key_base64: Complete etcd key, bytes.
        version: API version in which it was asked for and answered.
        kind: As the answer says.
        namespace: "" for an object without one.
        resource_version: As the answer says, a decimal number.
        deleting: It has a deletionTimestamp.
        mod_revision: Of the etcd key, by the report; 0 where none says it.
        sha256: ``sha256:<hex>`` of the file.
        file: Its plain name in the directory of the index.
        server: Address of the API server, as it may be shown.
        saved_at: RFC 3339, UTC.
        cluster_uid: uid of the server's kube-system, "" where it did not say.
    """

    format: str
    key_base64: bytes
    group: str
    version: str
    resource: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    deleting: bool = False
    mod_revision: int = 0
    sha256: str
    size: int
    file: str
    server: str
    saved_at: str
    cluster_uid: str = ""

    @property
    def key(self) -> bytes:
        """Complete etcd key."""
        return self.key_base64


class RescueIndex(msgspec.Struct, frozen=True, kw_only=True):
    """What an index says.

    Attributes:
        objects: One for each file, oldest first; several where a key was saved more than once.
        size: Of its whole lines, in bytes.
        torn: Its last line is what a crash left of one.
    """

    objects: tuple[SavedObject, ...] = ()
    size: int = 0
    torn: bool = False

    def by_key(self) -> dict[bytes, list[SavedObject]]:
        """Return all objects by etcd key, of each the newest resourceVersion first."""
        found: dict[bytes, list[SavedObject]] = {}
        for saved in sorted(self.objects, key=lambda one: int(one.resource_version), reverse=True):
            found.setdefault(saved.key, []).append(saved)
        return found


def file_name(key: bytes, resource_version: str, sha256: str) -> str:
    """Return the name of a file: made of digests, never of the key's own words, which come from strangers."""
    digest = hashlib.sha256(key).hexdigest()
    return f"{digest[:16]}-{resource_version}-{sha256.removeprefix('sha256:')[:16]}.json"


def read_index(directory: Path) -> RescueIndex:
    """Read the index of a directory of saved objects.

    Raises:
        ConfigurationError: There is none, or it cannot be read, or a line in it is none of an index.
    """
    path = directory / INDEX_NAME
    try:
        with open_regular(path, follow=False) as stream:
            return parse_index(stream, directory)
    except OSError as exc:
        hint = "name the --rescued DIR of etcdfix rescue" if exc.errno == errno.ENOENT else ""
        raise ConfigurationError(f"{path}: {why(exc).lower()}", hint=hint) from exc


def parse_index(stream: BinaryIO, directory: Path) -> RescueIndex:
    """Return what the lines of an index say, from where the stream stands; see :func:`read_index`.

    Raises:
        OSError: It cannot be read, or is too large (EFBIG).
    """
    decode = msgspec.json.Decoder(SavedObject).decode
    objects: list[SavedObject] = []
    size = 0
    while line := stream.readline(_MOST_LINE_BYTES + 1):
        if not line.endswith(b"\n") and len(line) <= _MOST_LINE_BYTES:
            break
        size += len(line)
        if size > MAX_INDEX_BYTES:
            raise too_large(MAX_INDEX_BYTES)
        try:
            # What is longer is no line, and no JSON without its end.
            saved = decode(line if len(line) <= _MOST_LINE_BYTES else b"")
            if saved.format != FORMAT:
                raise ConfigurationError(
                    f"{directory / INDEX_NAME}: line {len(objects) + 1}: its format is {saved.format}, and this "
                    f"etcdfix reads only {FORMAT}",
                    hint="use the version of etcdfix that wrote it",
                )
            _check(saved)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as exc:
            raise ConfigurationError(
                f"{directory / INDEX_NAME}: line {len(objects) + 1} is not one of an index of saved objects",
                hint="an index is only ever added to: look at what changed it",
            ) from exc
        objects.append(saved)
    return RescueIndex(objects=tuple(objects), size=size, torn=line != b"")


def _check(saved: SavedObject) -> None:
    """Refuse a line whose words lead elsewhere."""
    fits = (
        RESCUED_NAME.fullmatch(saved.file) is not None
        and re.fullmatch(r"\d{1,19}", saved.resource_version, re.ASCII) is not None
        and saved.file == file_name(saved.key, saved.resource_version, saved.sha256)
    )
    if not fits:
        raise ValueError(saved.file)


class _Metadata(msgspec.Struct):
    name: str
    uid: str
    resource_version: str = msgspec.field(name="resourceVersion")
    namespace: str = ""


class _Object(msgspec.Struct):
    kind: str
    metadata: _Metadata


def read_saved(directory: Path, saved: SavedObject) -> bytes:
    """Return the bytes of a saved object, which is what its line in the index says.

    Raises:
        ConfigurationError: The file cannot be read, is not the one that was saved, or is of another object or state.
    """
    path = directory / saved.file
    try:
        raw = read_input(path, most_bytes=MAX_OBJECT_BYTES, follow=False)
    except OSError as exc:
        raise ConfigurationError(f"saved object {path}: {why(exc).lower()}") from exc
    found = digest_of(raw)
    if found != saved.sha256:
        raise ConfigurationError(
            f"saved object {path}: its digest is {found}, the index says {saved.sha256}",
            hint="the file was changed after it was saved: do not rely on it",
        )
    if not _is_described(raw, saved):
        raise ConfigurationError(
            f"saved object {path}: it is not the object, or not the state, that the index says it is",
            hint="the index was changed after it was written: do not rely on it",
        )
    return raw


def is_whole(directory: Path, saved: SavedObject) -> bool:
    """Say whether the file of a saved object is there, and is what its line in the index says."""
    try:
        read_saved(directory, saved)
    except ConfigurationError:
        return False
    return True


def _is_described(raw: bytes, saved: SavedObject) -> bool:
    """Say whether the file itself bears out what the index says of it, the etcd key included."""
    try:
        found = msgspec.json.decode(raw, type=_Object)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    metadata = found.metadata
    place = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return (
        found.kind == saved.kind
        and (metadata.name, metadata.namespace) == (saved.name, saved.namespace)
        and (metadata.uid, metadata.resource_version) == (saved.uid, saved.resource_version)
        and saved.key.endswith(f"/{place}".encode())
    )
