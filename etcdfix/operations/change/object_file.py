"""An object as the API gave it, in a file: is it the object of an etcd key, and what is stored for it?

Somebody may have edited the file, it may be of another cluster, or it may be what ``etcdfix get`` has masked. So it is
held against the etcd key, and against what our own reader makes of the bytes that would be stored.

Format:
    One JSON document, as ``kubectl get -o json`` and ``etcdfix rescue`` save it. It is stored as the API server stores
    JSON: in one line, and a line break. An API server serves such a value of any built-in type, and makes protobuf of
    it at its next write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from etcdfix.decoding.kubeobject import KubeObject, ObjectReader
from etcdfix.errors import ConfigurationError, DecodeError, JSONMalformed, RefusedByRule, why
from etcdfix.examine import Examiner
from etcdfix.golang.gojsontext import encode_json, parse_exactly
from etcdfix.inputs.inputfile import read_input
from etcdfix.model import Outcome, StoredValue
from etcdfix.readers import ResourceReader
from etcdfix.report.masking import SECRET, is_masked
from etcdfix.rescued import INDEX_NAME, MAX_OBJECT_BYTES, digest_of, read_index
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import StorageCodec, display
from etcdfix.verdicts.examination import Examination

_STORED: Final = frozenset({StorageCodec.BUILTIN, StorageCodec.JSON_BUILTIN, StorageCodec.CUSTOM_RESOURCE})
_SHORT: Final = 80


class ObjectFile(msgspec.Struct, frozen=True, kw_only=True):
    """One object in a file; its ``repr`` shows none of its contents.

    Attributes:
        value: The object, without ``metadata.resourceVersion``; numbers keep their text.
        api_version: As it says itself; so are its kind, name and uid.
        namespace: "" for none.
        resource_version: 0 where there is none, or one that is no mod revision.
        generation: ``metadata.generation``, 0 for none.
        written: The latest time in ``metadata.managedFields``, RFC 3339; "" for none.
        cluster_uid: uid of the kube-system of the API server that it was saved from, "" where nothing says it.
    """

    path: Path
    value: dict[str, Any]
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: int = 0
    generation: int = 0
    written: str = ""
    cluster_uid: str = ""

    def __repr__(self) -> str:
        return f"ObjectFile(path={self.path!r}, kind={self.kind!r})"

    @property
    def plaintext(self) -> bytes:
        """What is stored, before it is encrypted."""
        return encode_json(self.value) + b"\n"


def read_object_file(path: Path) -> ObjectFile:
    """Read a file that holds one object.

    Raises:
        ConfigurationError: It cannot be read.
        RefusedByRule: It holds something else, or an object of which something is masked.
    """
    try:
        raw = read_input(path, most_bytes=MAX_OBJECT_BYTES)
    except OSError as exc:
        raise ConfigurationError(f"--from-object {path}: {why(exc)}") from exc
    value = _parse(raw, path)
    if is_masked(value):
        raise _unfit(
            path,
            "something in it is masked, as etcdfix get shows a Secret",
            hint="save the object with etcdfix get --reveal -o json, or from an API server",
        )
    api_version, kind = _text(value, "apiVersion"), _text(value, "kind")
    if not api_version or not kind:
        raise _unfit(path, "apiVersion or kind is missing: it does not say what it is")
    if kind == SECRET and value.get("stringData"):
        raise _unfit(
            path,
            "it has stringData, which API servers put into data when they read it: none has given it so",
            hint="create the object through the API: kubectl create -f",
        )
    if kind.endswith("List") and isinstance(value.get("items"), list):
        raise _unfit(path, f"it is a {_shown(kind)}: a list of objects", hint="give a file with one object")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise _unfit(path, "it has no metadata")
    kept = {name: member for name, member in metadata.items() if name != "resourceVersion"}
    return ObjectFile(
        path=path,
        value={**value, "metadata": kept},
        api_version=api_version,
        kind=kind,
        namespace=_text(metadata, "namespace"),
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        resource_version=_revision(metadata.get("resourceVersion")),
        generation=generation_of(metadata),
        written=written_at(metadata),
        cluster_uid=_saved_from(path, raw),
    )


def check_place(file: ObjectFile, key: bytes, reader: ResourceReader, examiner: Examiner) -> None:
    """Hold what an object says of itself against an etcd key.

    Raises:
        RefusedByRule: The key holds no such object, or it belongs to another key.
    """
    directory = reader.directory
    if directory.codec not in _STORED or not reader.owner_known or not directory.kind:
        raise refuse(
            Rule.NOT_AN_OBJECT,
            f"{display(key)} holds no object of a type that API servers of this cluster are known to keep there",
            hint="name the etcd key of the object; for a custom resource, its CustomResourceDefinition must be there",
        )
    where = examiner.layout.split(key, directory, reader.shared, namespaced=reader.namespaced)
    if not where.well_formed:
        raise refuse(
            Rule.NOT_AN_OBJECT,
            f"{display(key)} is not the etcd key of one of {directory.group_resource}",
            hint="namespaced types have NAMESPACE/NAME at the end, others NAME",
        )
    for what, said, expected in (
        ("kind", file.kind, directory.kind),
        ("namespace", file.namespace, where.namespace),
        ("name", file.name, where.name),
    ):
        if said != expected:
            raise _unfit(
                file.path,
                f"its {what} is {_quoted(said)}, and {display(key)} is of {_quoted(expected)}",
                hint="give the file of this very object; nothing in it may be edited",
            )
    if not file.uid:
        raise _unfit(file.path, "it has no metadata.uid: an object without one was never in a cluster")


def check_stored(file: ObjectFile, stored: StoredValue, examiner: Examiner) -> Examination:
    """Examine what would be stored as if etcd had it; return what it is.

    Raises:
        RefusedByRule: It does not come out readable, or is another object then.
    """
    found = examiner.examine(stored)
    verdict = found.verdict
    if verdict.outcome is not Outcome.READABLE or verdict.cause is not None or found.decoded is None:
        raise _unfit(
            file.path,
            f"stored at {display(stored.key)} it would be {verdict.outcome}: {verdict.message}",
            hint="give the file as an API server of this cluster gave it",
        )
    until = found.decoded.readable_until
    if until and not examiner.assumed_release:
        raise _unfit(
            file.path,
            f"{_shown(file.api_version)} {_shown(file.kind)} is read by API servers up to {until} only",
            hint="name the release of the cluster with --kubernetes-version X.Y",
        )
    plaintext = examiner.plaintext(found)
    assert plaintext is not None  # it opened
    try:
        different = _difference(_plain(file.value), _plain(_read(plaintext, examiner, found).value), "")
    except RecursionError as exc:
        raise _unfit(file.path, "what stands in it is nested too deeply") from exc
    if different:
        raise _unfit(
            file.path,
            f"what an API server would read is not the same object: {different} differs",
            hint="the field may be newer than this etcdfix or the release that was named, or the file was edited",
        )
    return found


def metadata_of(plaintext: bytes, examiner: Examiner, found: Examination) -> dict[str, Any]:
    """Return the metadata of a readable value, {} where there are none."""
    try:
        metadata = _read(plaintext, examiner, found).value.get("metadata")
    except DecodeError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def generation_of(metadata: dict[str, Any]) -> int:
    """Return ``metadata.generation``, 0 for none."""
    generation = metadata.get("generation")
    return generation if isinstance(generation, int) else 0


def written_at(metadata: dict[str, Any]) -> str:
    """Return the latest time in ``metadata.managedFields``, RFC 3339, UTC; "" for none.

    API servers write all of them in one form, so that they compare as texts.
    """
    entries = metadata.get("managedFields")
    times = (
        (entry.get("time") for entry in entries if isinstance(entry, dict))
        if isinstance(entries, list)
        else ()
    )
    return max((time for time in times if isinstance(time, str)), default="")


def _saved_from(path: Path, raw: bytes) -> str:
    """Return the uid of the cluster that a file of ``etcdfix rescue`` was saved from, "" for any other file."""
    if not (path.parent / INDEX_NAME).exists():
        return ""
    lines = [saved for saved in read_index(path.parent).objects if saved.file == path.name]
    if lines and digest_of(raw) not in {saved.sha256 for saved in lines}:
        raise _unfit(
            path,
            f"it was changed after etcdfix rescue saved it: {INDEX_NAME} beside it has another digest",
            hint="another file of that directory, or another API server, may hold the object",
        )
    return lines[-1].cluster_uid if lines else ""


def _parse(raw: bytes, path: Path) -> dict[str, Any]:
    text = raw.lstrip()
    if not text.startswith(b"{"):
        raise _unfit(
            path,
            "it does not begin with {, so it is no JSON object (YAML is not taken)",
            hint="save the object as JSON: kubectl get -o json, or etcdfix rescue",
        )
    try:
        value = parse_exactly(raw)
        raw.decode("utf-8")
    except JSONMalformed as exc:
        raise _unfit(path, f"it is not one JSON document: {exc.message}") from exc
    except UnicodeDecodeError as exc:
        raise _unfit(path, f"it is not UTF-8, at byte {exc.start}") from exc
    assert isinstance(value, dict)  # it begins so
    return value


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _revision(value: Any) -> int:
    plain = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < _SHORT
    return int(value) if plain else 0


def _read(plaintext: bytes, examiner: Examiner, found: Examination) -> KubeObject:
    reader, directory = ObjectReader(examiner.decoder), found.directory
    if directory.codec is StorageCodec.BUILTIN:
        return reader.builtin(plaintext, directory.group, directory.kind)
    if directory.codec is StorageCodec.JSON_BUILTIN:
        return reader.json_builtin(plaintext, directory.group, directory.kind)
    crd = examiner.readers.custom_resource(directory)
    return reader.custom_resource(plaintext, crd) if crd is not None else reader.foreign(plaintext)


def _plain(value: dict[str, Any]) -> Any:
    return parse_exactly(encode_json(value))


def _difference(said: Any, found: Any, path: str) -> str:
    """Return the path of the first member in which two objects differ, "" where they are equal.

    A member that is missing equals one without contents: what API servers leave out of their answers depends on their
    release.
    """
    if isinstance(said, dict) and isinstance(found, dict):
        for name in sorted({*said, *found}):
            different = _difference(said.get(name), found.get(name), f"{path}.{name}" if path else name)
            if different:
                return different
        return ""
    if isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        for index, (one, other) in enumerate(zip(said, found, strict=True)):
            different = _difference(one, other, f"{path}[{index}]")
            if different:
                return different
        return ""
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (said, found))
    same = said == found and (numbers or type(said) is type(found))
    return "" if same or (_nothing(said) and _nothing(found)) else _shown(path or "the whole")


def _nothing(value: Any) -> bool:
    return (
        value is None
        or value in ("", {}, [])
        or value is False
        or (value == 0 and not isinstance(value, bool))
    )


def _shown(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


def _quoted(text: str) -> str:
    return f'"{_shown(text)}"' if text else "none"


def _unfit(path: Path, what: str, *, hint: str = "") -> RefusedByRule:
    return refuse(
        Rule.OBJECT_FILE,
        f"{path}: {what}",
        hint=hint or "give the file as kubectl get -o json or etcdfix rescue saved it",
    )
