"""Where stored values come from: a protocol with read verbs only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, Self

import msgspec

from etcdfix.model.model import KeptRevision, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.sources.pages import Page, paged, values_of

MAX_PROBLEMS: Final = 100
"""Problems told one by one; beyond that they are counted."""

DAMAGE_NOTE: Final = (
    "what cannot be read may hide newer revisions: a key may be missing, show an older value,"
    " or appear although it was deleted"
)
"""Stands last among the problems where part of the data was lost."""

_MAX_COUNTED: Final = 100_000


class Segment(msgspec.Struct, frozen=True):
    """From ``from_key`` on (inclusive, display text), values were read at ``revision``."""

    from_key: str
    revision: int


class SourceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says about where its data came from (product contract, section 5).

    Attributes:
        type: ``snapshot``, ``etcd`` or ``kine``.
        path: File path as given, for a snapshot and for kine.
        endpoints: Endpoints as given, for a live etcd.
        revision: Revision at which values were read (the last one, where there were several).
        segments: One per revision read at, in key order.
        cluster_id: Lower-case hex; None for a file, which does not hold it.
        sha256: ``sha256:<hex>`` of the database bytes (the file without its trailer); None for a live etcd.
        etcd_version: As told by the server or the file; None where unknown.
        limited_to: All that may be read of it, where that is not everything; "" otherwise.
        integrity: One sentence about the trailer: verified, wrong, or absent; "" for a live etcd.
        warning: Why what was read is right, and the file is no good all the same; "" as a rule.
        file_modified_at: When a snapshot file was last written, in seconds since 1970; None for what is no such file.
    """

    type: str
    path: str | None = None
    endpoints: tuple[str, ...] | None = None
    revision: int
    segments: tuple[Segment, ...]
    cluster_id: str | None = None
    sha256: str | None = None
    etcd_version: str | None = None
    integrity: str = ""
    limited_to: str = ""
    warning: str = ""
    file_modified_at: float | None = None

    @property
    def single_revision(self) -> bool:
        """False when a compaction forced a newer revision midway."""
        return len(self.segments) <= 1


class Source(Protocol):
    """Something that holds Kubernetes' keys. It cannot write: there is no verb for it.

    The constructor opens it. That, and whatever reads, raises :class:`SourceError` where nothing (more)
    can be read at all. A source defines :meth:`pages` or :meth:`current`; each follows from the other.
    """

    def describe(self) -> SourceDescription:
        """Say where the data comes from; segments grow while :meth:`current` runs."""
        ...

    def pages(self, prefix: bytes) -> Iterator[Page]:
        """Yield what :meth:`current` does, in pages."""
        return paged(self.current(prefix))

    def current(self, prefix: bytes) -> Iterator[StoredValue]:
        """Yield the current value of every key that starts with ``prefix``, in byte order of the keys.

        "Current" means: at the revision that the source is pinned to. Damage that hides part of the data
        does not raise; it is added to :attr:`problems` and what can be reached goes on.
        """
        return values_of(self.pages(prefix))

    def get(self, key: bytes) -> StoredValue | None:
        """Return one key's current value, or None."""
        ...

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        """Return what a key held just before a main revision.

        For a step or two back this costs a live etcd far less than :meth:`history` does.

        Returns:
            None where the key held nothing then, or where that is not kept any more.
        """
        ...

    def lacks_predecessor(self, stored: StoredValue) -> bool:
        """Say whether the change before this one should still be kept under the same key, and is not.

        etcd counts the changes of a key in its ``version``. Above 1, an earlier one stood under the same name: unless
        it is the name that changed.
        """
        ...

    def compacted_revision(self) -> int | None:
        """Return the oldest revision that is kept since etcd compacted it; whoever had it do so.

        Returns:
            0 where nothing was compacted, None where it cannot be told.
        """
        ...

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield every revision of ``key`` that is still kept, oldest first."""
        ...

    def superseded(self) -> Iterator[StoredValue]:
        """Yield every value that is still kept and is no longer the current one of its key, in no certain order."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Look up, inside, what no report rests on: where etcd compacts meanwhile, :meth:`describe` does not change."""
        return nullcontext()

    def members_differ(self) -> str:
        """Say which members of an etcd hold other data than the one that is read; "" where that is not proven."""
        return ""

    def has_several(self, key: bytes) -> bool:  # noqa: ARG002 - for sources that can tell
        """Say whether more than one revision of a key may be kept; False where only asking for each would tell."""
        return False

    def estimate(self) -> int:
        """Return about how many keys there are, for a progress display; 0 when unknown."""
        ...

    @property
    def problems(self) -> list[str]:
        """Reasons why what was yielded is not everything: one sentence each; empty when complete."""
        ...

    @property
    def page_file(self) -> int | None:
        """Descriptor of the file that :meth:`pages` name places in; None where they hold their values."""
        return None

    def close(self) -> None:
        """Let go of the file or the connection."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tell_nobody(_notice: str) -> None:
    """Take a notice that nobody wants."""


class ProblemList:
    """What a source could not read, as distinct sentences for a report: the first hundred, and how many more."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}
        self._further: set[int] = set()

    def add(self, sentence: str) -> None:
        """Add one, unless it is there: several walks meet the same damage."""
        if sentence in self._sentences:
            return
        if len(self._sentences) < MAX_PROBLEMS:
            self._sentences[sentence] = None
        elif len(self._further) < _MAX_COUNTED:
            self._further.add(hash(sentence))

    def sentences(self) -> list[str]:
        """Return what was added, in order, and how many more there were."""
        further = len(self._further)
        if not further:
            return list(self._sentences)
        count = f"at least {further}" if further >= _MAX_COUNTED else str(further)
        return [*self._sentences, f"{count} more problems like these were found"]


def has_keys(source: Source, layout: StorageLayout) -> bool:
    """Say whether any key starts with the storage prefix, or may: what could not be read is not absent."""
    known = len(source.problems)
    if next(iter(source.current(layout.path())), None) is not None:
        return True
    return DAMAGE_NOTE in source.problems or len(source.problems) > known
