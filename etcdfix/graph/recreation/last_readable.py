"""What the newest readable revision of a broken object still tells: its type and its owners."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from etcdfix.examine import Examiner
from etcdfix.graph.assess import LastKnown
from etcdfix.graph.contents import ContentReader
from etcdfix.sources.base import Source

_LONGEST: Final = 253


class SeenOwner(msgspec.Struct, frozen=True):
    """An owner reference."""

    group: str
    kind: str
    name: str
    uid: str
    controller: bool


class LastSeen(msgspec.Struct, frozen=True):
    """A readable revision.

    Attributes:
        revision: Its mod_revision, 0 for none.
        type: Of a Secret, "" where it says none.
        owners: Its owner references, the managing one first.
        token_of: ServiceAccount of a token.
    """

    revision: int = 0
    type: str = ""
    owners: tuple[SeenOwner, ...] = ()
    token_of: str = ""


def last_seen(
    source: Source, examiner: Examiner, reader: ContentReader, key: bytes, known: LastKnown
) -> LastSeen:
    """Return what the revision says from which an object is known.

    Args:
        source: Where its history is.
        examiner: Judges the revision.
        reader: Looks into it.
        key: Complete etcd key.
        known: What the assessment found.

    Raises:
        SourceError: It cannot be read.
    """
    if not known.revision:
        return LastSeen()
    # Not at its own revision: that may be compacted while the value still stands at later ones.
    stored = source.before(key, known.readable_at + 1) if known.readable_at else source.get(key)
    if stored is None or stored.mod_revision != known.revision:
        return LastSeen()  # compacted, or written, since
    return _look(reader.whole(examiner.examine(stored)) or {}, known.revision)


def _look(whole: dict[str, Any], revision: int) -> LastSeen:
    metadata = whole.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    references = metadata.get("ownerReferences")
    owners = [
        SeenOwner(
            _text(item.get("apiVersion")).rpartition("/")[0],
            _text(item.get("kind")),
            _text(item.get("name")),
            _text(item.get("uid")),
            item.get("controller") is True,
        )
        for item in (references if isinstance(references, list) else [])
        if isinstance(item, dict)
    ]
    annotations = metadata.get("annotations")
    account = annotations.get("kubernetes.io/service-account.name") if isinstance(annotations, dict) else ""
    return LastSeen(
        revision,
        _text(whole.get("type")),
        tuple(sorted(owners, key=lambda owner: not owner.controller)),
        _text(account),
    )


def _text(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""
