"""An object in a JSON file, as the API gave it or ``rescue`` saved it: is it the object of an etcd key?

Somebody may have edited the file, or it may be of another cluster. So it is held against the etcd key, and against what
our own reader makes of the bytes that would be stored.

Format:
    One JSON document, as ``kubectl get -o json`` and ``etcdfix rescue`` save it. It is stored as the API server stores
    JSON: in one line, and a line break. An API server serves such a value of any built-in type, and makes protobuf of
    it at its next write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from etcdfix.copies.finder import Finder, LookedInto
from etcdfix.copies.model import Copy, Place, Sameness, Wanted, Way, examined_copy
from etcdfix.copies.rescued import INDEX_NAME, MAX_OBJECT_BYTES, SavedObject, read_index
from etcdfix.decoding.kubeobject import KubeObject, ObjectReader
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojsontext import encode_json, parse_exactly
from etcdfix.inputs.inputfile import read_input
from etcdfix.model.errors import ConfigurationError, why
from etcdfix.model.model import ClusterIdentity, Outcome, StoredValue, digest_of
from etcdfix.model.storagekey import StorageCodec, display
from etcdfix.text.safetext import safe_text

_STORED: Final = frozenset({StorageCodec.BUILTIN, StorageCodec.JSON_BUILTIN, StorageCodec.CUSTOM_RESOURCE})
_SHORT: Final = 80


class _UnfitError(Exception):
    """Raised when a file is not the object of the etcd key; the message says why."""


class ObjectFile(Finder):
    """Reads one object from a file.

    Args:
        path: The file.
        examiner: Of the source: its layout, and its CRDs.
        saved: What the index of ``rescue`` says of it; None to look for one beside the file.
    """

    name = "saved objects"

    def __init__(self, path: Path, examiner: Examiner, saved: SavedObject | None = None) -> None:
        super().__init__(LookedInto(place=Place.OBJECT, path=safe_text(str(path)), history=Sameness.UNKNOWN))
        self._path, self._known, self._saved = path, examiner.independent_copy(), saved
        # What an API server gives is not encrypted.
        self._plain = Examiner(
            examiner.layout, None, examiner.decoder, assumed_release=examiner.assumed_release
        )
        self._plain.share_crds_of(examiner)

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the object; where it is not the one of the key, or not whole, the copy says why it does not read.

        Raises:
            ConfigurationError: The file cannot be read.
        """
        source, where = f"object:{self._path}", f"object in {safe_text(str(self._path))}"
        unfit = Copy(
            key=wanted.key,
            place=Place.OBJECT,
            where=where,
            source=source,
            way=Way.SEAL,
            outcome=Outcome.INCONSISTENT,
            history=Sameness.UNKNOWN,
        )
        try:
            raw = read_input(self._path, most_bytes=MAX_OBJECT_BYTES)
        except OSError as exc:
            raise ConfigurationError(f"{source}: {why(exc)}") from exc
        try:
            value = _parsed(raw)
            metadata = value["metadata"]
            cluster_uid = self._saved_from(raw)
            revision = _revision(metadata.pop("resourceVersion", None))
            self._check_place(value, wanted.key)
            plaintext = encode_json(value) + b"\n"
            found = self._check_stored(value, StoredValue(wanted.key, plaintext, 0, 0, 0, 0))
        except _UnfitError as exc:
            yield msgspec.structs.replace(unfit, message=str(exc))
            return
        yield msgspec.structs.replace(
            examined_copy(found, Place.OBJECT, where, source, way=Way.SEAL),
            mod_revision=revision,
            value_sha256="",  # what is stored of it is made when it is sealed
            stored=None,
            plaintext=plaintext,
            history=Sameness.UNKNOWN,
            cluster=ClusterIdentity.by_uid(cluster_uid) if cluster_uid else None,
        )

    def _saved_from(self, raw: bytes) -> str:
        """Return the uid of the cluster that a file of ``etcdfix rescue`` was saved from, "" for any other file."""
        beside = self._path.parent
        if self._saved is not None:
            lines = [self._saved]
        elif (beside / INDEX_NAME).exists():
            lines = [saved for saved in read_index(beside).objects if saved.file == self._path.name]
        else:
            return ""
        if lines and digest_of(raw) not in {saved.sha256 for saved in lines}:
            raise _UnfitError(
                f"it was changed after etcdfix rescue saved it: {INDEX_NAME} beside it has another digest"
            )
        return lines[-1].cluster_uid if lines else ""

    def _check_place(self, value: dict[str, Any], key: bytes) -> None:
        reader = self._known.readers.reader_for(key)
        directory = reader.directory
        if directory.codec not in _STORED or not reader.owner_known or not directory.kind:
            raise _UnfitError(
                f"{display(key)} holds no object of a type that API servers of this cluster are known to keep there"
            )
        where = self._known.layout.split(key, (directory, reader.shared))
        if not where.well_formed:
            raise _UnfitError(f"{display(key)} is not the etcd key of one of {directory.group_resource}")
        metadata = value["metadata"]
        for what, said, expected in (
            ("kind", _text(value, "kind"), directory.kind),
            ("namespace", _text(metadata, "namespace"), where.namespace),
            ("name", _text(metadata, "name"), where.name),
        ):
            if said != expected:
                raise _UnfitError(
                    f"its {what} is {_quoted(said)}, and {display(key)} is of {_quoted(expected)}"
                )
        if not _text(metadata, "uid"):
            raise _UnfitError("it has no metadata.uid: an object without one was never in a cluster")

    def _check_stored(self, value: dict[str, Any], stored: StoredValue) -> Examination:
        """Examine what would be stored, as if etcd had it."""
        found = self._plain.examine(stored)
        verdict = found.verdict
        if verdict.outcome is not Outcome.READABLE or verdict.cause is not None or found.decoded is None:
            raise _UnfitError(
                f"stored at {display(stored.key)} it would be {verdict.outcome}: {verdict.message}"
            )
        until = found.decoded.readable_until
        if until and not self._plain.assumed_release:
            raise _UnfitError(
                f"{_quoted(_text(value, 'apiVersion'))} is read by API servers up to {until} only: name the release of "
                "the cluster with --kubernetes-version X.Y"
            )
        try:
            read = parse_exactly(encode_json(self._read(stored.value, found).value))
            different = _difference(parse_exactly(encode_json(value)), read, "")
        except RecursionError as exc:
            raise _UnfitError("what stands in it is nested too deeply") from exc
        if different:
            raise _UnfitError(
                f"what an API server would read is not the same object: {different} differs; the field may be newer "
                "than this etcdfix or the release that was named, or the file was edited"
            )
        return found

    def _read(self, plaintext: bytes, found: Examination) -> KubeObject:
        reader, directory = ObjectReader(self._plain.decoder), found.directory
        if directory.codec is StorageCodec.BUILTIN:
            return reader.builtin(plaintext, directory.group, directory.kind)
        if directory.codec is StorageCodec.JSON_BUILTIN:
            return reader.json_builtin(plaintext, directory.group, directory.kind)
        crd = self._plain.readers.custom_resource(directory)
        return reader.custom_resource(plaintext, crd) if crd is not None else reader.foreign(plaintext)


class Rescued(Finder):
    """Looks into a directory to which ``rescue`` saved.

    Args:
        directory: Of the index.
        examiner: Of the source: its layout, and its CRDs.
        identity: The cluster of the source.
        recorded_digests: Those that the audit log says were saved; any other file may have been edited.
    """

    name = "what rescue saved"

    def __init__(
        self,
        directory: Path,
        examiner: Examiner,
        identity: ClusterIdentity,
        recorded_digests: frozenset[str],
    ) -> None:
        super().__init__()
        self._directory, self._examiner = directory, examiner
        self._identity, self._recorded = identity, recorded_digests
        self._index: dict[bytes, list[SavedObject]] = {}
        detail = ""
        try:
            self._index = read_index(directory).by_key()
        except ConfigurationError as exc:
            detail = exc.message
            self.problems.append(detail)
        self.looked.append(
            LookedInto(place=Place.OBJECT, path=safe_text(str(directory)), searched=not detail, detail=detail)
        )

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield each file that was saved of an object, and is what its index says."""
        for saved in self._index.get(wanted.key, ()):
            try:
                (copy,) = ObjectFile(self._directory / saved.file, self._examiner, saved).find(wanted)
            except ConfigurationError as exc:
                self.problems.append(exc.message)
                continue
            if not copy.reads:
                self.problems.append(f"{copy.where}: {copy.message}")
                continue
            yield msgspec.structs.replace(
                copy, history=Sameness.SAME, cluster=None, plaintext=None, doubt=self._doubt_about(saved)
            )

    def _doubt_about(self, saved: SavedObject) -> str:
        if not self._identity.uid or saved.cluster_uid != self._identity.uid:
            return "nothing says that it was saved from an API server of this cluster"
        if saved.sha256 not in self._recorded:
            return "the audit log does not have its digest: it may have been edited"
        return "it was being deleted (deletionTimestamp)" if saved.deleting else ""


def _parsed(raw: bytes) -> dict[str, Any]:
    if not raw.lstrip().startswith(b"{"):
        raise _UnfitError("it does not begin with {, so it is no JSON object (YAML is not taken)")
    try:
        value = parse_exactly(raw)
        raw.decode("utf-8")
    except JSONMalformed as exc:
        raise _UnfitError(f"it is not one JSON document: {exc.message}") from exc
    except UnicodeDecodeError as exc:
        raise _UnfitError(f"it is not UTF-8, at byte {exc.start}") from exc
    assert isinstance(value, dict)  # it begins so
    api_version, kind = _text(value, "apiVersion"), _text(value, "kind")
    if not api_version or not kind:
        raise _UnfitError("apiVersion or kind is missing: it does not say what it is")
    if kind == "Secret" and value.get("stringData"):
        raise _UnfitError("it has stringData, which API servers put into data: none has given it so")
    if kind.endswith("List") and isinstance(value.get("items"), list):
        raise _UnfitError(f"it is a {_shown(kind)}: a list of objects")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise _UnfitError("it has no metadata")
    return {**value, "metadata": dict(metadata)}


def _revision(said: Any) -> int:
    """Return a resourceVersion; what ``etcdfix get`` has masked has one that is no number."""
    if said is None or said == "":
        return 0
    if not (isinstance(said, str) and said.isascii() and said.isdecimal() and len(said) < _SHORT):
        raise _UnfitError(
            "its resourceVersion is not a number, as in what etcdfix get writes with masked contents: save the object "
            "with etcdfix get --reveal -o json, or from an API server"
        )
    return int(said)


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _difference(said: Any, found: Any, path: str) -> str:
    """Return the path of the first member in which two objects differ, "" where they are equal.

    A member that is missing equals one without contents: what API servers leave out of their answers depends on their
    release.
    """
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(said, dict) and isinstance(found, dict):
        names = sorted({*said, *found})
        pairs = [(f"{path}.{name}" if path else name, said.get(name), found.get(name)) for name in names]
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        pairs = [(f"{path}[{at}]", *both) for at, both in enumerate(zip(said, found, strict=True))]
    else:
        numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (said, found))
        same = said == found and (numbers or type(said) is type(found))
        return "" if same or (_nothing(said) and _nothing(found)) else _shown(path or "the whole")
    return next(filter(None, (_difference(one, other, where) for where, one, other in pairs)), "")


def _nothing(value: Any) -> bool:
    return (
        value is None
        or value is False
        or value in ("", {}, [])
        or (value == 0 and not isinstance(value, bool))
    )


def _shown(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


def _quoted(text: str) -> str:
    return f'"{_shown(text)}"' if text else "none"
