"""What stands around a value that may be changed: those under its encryption key, those like it, who refers to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.examine.all import Progress, examine_all
from etcdfix.examine.maybe_newer import SimilarCounts, SimilarValues, similarity_of
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.key_loss import KeyCounter, KeyCounts, KeyLedger
from etcdfix.graph.cluster import IndexBuilder
from etcdfix.graph.index import ImpactIndex
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.remediation.cluster import require_unencrypted
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.remediation.cluster import Cluster

# Of these a LIST does not fail; bookkeeping is in none.
_SERVED = {Outcome.READABLE, Outcome.INCONSISTENT, Outcome.NOT_AN_OBJECT}
_MOST_NAMES = 100
_OTHERS = "other resources"

See = Callable[[Examination], None]
"""Is shown at least every value that is not plainly read."""


class SameKeyEvidence(msgspec.Struct, frozen=True):
    """The target among those like it.

    Attributes:
        target: What the target came to when all others had been seen; None where it was not met again.
        counts: What the values under each of its encryption keys came to, the target included.
        transformer_opens: Anything under the same rule and transformer opens, whatever its KMS key id.
        similar: Those that a newer cluster may have written as it did.
        unread: How many other values are not known to be read without fault, by the display name of their resource;
            past a hundred names, all others as one.
    """

    target: Examination | None
    counts: dict[KeyName, KeyCounts]
    transformer_opens: bool
    similar: SimilarCounts
    unread: dict[str, int]
    keys: int


class Around(NamedTuple):
    """What stands around a value; the graph is who refers to whom."""

    alike: SameKeyEvidence
    graph: ImpactIndex


def look_around(cluster: Cluster, found: Examination, progress: Progress, *, see: See) -> Around:
    """Look at everything else in one pass; raises RefusedByRule or SourceError."""
    builder = IndexBuilder(cluster.examiner, cluster.source)

    def show(other: Examination) -> None:
        builder.add(other)
        see(other)

    alike = look_at_all(cluster.source, cluster.examiner, found, progress, see=show, gone=cluster.gone)
    require_unencrypted(cluster, found.stored)
    cluster.require_everything()
    return Around(alike, builder.finish())


def look_at_all(
    source: Source,
    examiner: Examiner,
    target: Examination,
    progress: Progress,
    *,
    see: See,
    gone: Iterable[Examination] = (),
) -> SameKeyEvidence:
    """Examine everything below the storage prefix, the target last and with a search for what damaged it.

    ``see`` is shown everything in the same pass; what is ``gone`` counts as well. Raises SourceError.
    """
    ledger = KeyLedger(target)
    similar, similarity = SimilarValues(examiner), similarity_of(target, examiner)
    unread: Counter[str] = Counter()
    keys = 0
    opens = False
    again: Examination | None = None

    def take(found: Examination) -> None:
        nonlocal keys, opens, again
        keys += 1
        see(found)
        ledger.add(found)
        if found.opened and (found.rule, found.transformer) == (target.rule, target.transformer):
            opens = opens or found.verdict.outcome not in FAILED
        if found.stored.key == target.stored.key:
            again = found
        elif is_unread(found):
            note_unread(unread, found)
        if similarity is not None:
            similar.add(found)

    everything = source.pages(examiner.layout.path())
    examine_all(examiner, everything, take, targets=(target.stored.key,), progress=progress, whole=True)
    for failed in gone:
        KeyCounter.add(ledger, failed)  # which value failed last is asked of those that stand
    counts = {name: ledger.beside(name) for name in target.encryption_keys}
    return SameKeyEvidence(
        again if again is not None and again.stored == target.stored else None,
        counts,
        opens,
        similar.of(target, similarity),
        unread,
        keys,
    )


def is_unread(found: Examination) -> bool:
    """Say whether a value is not known to be read without fault."""
    return found.verdict.outcome not in _SERVED or found.verdict.breaks_responses


def note_unread(unread: Counter[str], found: Examination) -> None:
    """Count a value that is not known to be read, by the display name of its resource."""
    name = str(found.directory.group_resource)
    unread[name if name in unread or len(unread) < _MOST_NAMES else _OTHERS] += 1


_COLONS: Final = 5
_MAGIC_SIZE: Final = 4


class SameStart:
    """Looks for other values that begin as one does, and do not read either.

    A name that is one bit off may be the name of a key that somebody gave another name: then others have it too, and
    the configuration alone cures all of them. And first bytes that another object of the resource has as well are those
    of an encoding that is newer than this tool.

    Attributes:
        failing: The key of one with the same prefix that does not open; b"" for none.
        same_magic: The key of one with the same first bytes whose magic is called damaged too; b"" for none.
    """

    def __init__(self, stored: StoredValue) -> None:
        self._key, self._magic = stored.key, stored.value[:_MAGIC_SIZE]
        self._prefix = b":".join(stored.value.split(b":", _COLONS)[:_COLONS]) + b":"
        self.failing = self.same_magic = b""

    def see(self, found: Examination) -> None:
        """Look at one value."""
        value, key = found.stored.value, found.stored.key
        if key == self._key:
            return
        if value.startswith(self._prefix) and not found.opened:
            self.failing = self.failing or key
        if found.verdict.cause is Cause.MAGIC_DAMAGED and value[:_MAGIC_SIZE] == self._magic:
            self.same_magic = self.same_magic or key
