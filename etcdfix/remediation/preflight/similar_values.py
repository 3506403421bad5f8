"""One pass over everything before a change: the values under the same encryption key, and those like the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, View, examine_all
from etcdfix.maybe_newer import SimilarCounts, SimilarValues, similarity_of
from etcdfix.model import Outcome
from etcdfix.sources.base import Source
from etcdfix.verdicts.deletability import FAILED
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import KeyCounter, KeyCounts

# Of these a LIST does not fail; bookkeeping is in none.
_SERVED = {Outcome.READABLE, Outcome.INCONSISTENT, Outcome.NOT_AN_OBJECT}
_MOST_NAMES = 100
_OTHERS = "other resources"


class Alike(msgspec.Struct, frozen=True):
    """The target among those like it.

    Attributes:
        target: What the target came to when all others had been seen; None where it was not met again.
        counts: What the values under each of its encryption keys came to, the target included.
        transformer_opens: Anything under the same rule and transformer opens, whatever its KMS key id.
        similar: Those that a newer cluster may have written as it did.
        unread: How many other values are not known to be read without fault, by the display name of their resource;
            past a hundred names, all others as one.
        keys: Keys below the storage prefix.
    """

    target: Examination | None
    counts: dict[KeyName, KeyCounts]
    transformer_opens: bool
    similar: SimilarCounts
    unread: dict[str, int]
    keys: int


def is_unread(found: Examination) -> bool:
    """Say whether a value is not known to be read without fault."""
    return found.verdict.outcome not in _SERVED or found.verdict.breaks_responses


def note_unread(unread: Counter[str], found: Examination) -> None:
    """Count a value that is not known to be read, by the display name of its resource, as in :class:`Alike`."""
    name = str(found.directory.group_resource)
    unread[name if name in unread or len(unread) < _MOST_NAMES else _OTHERS] += 1


def look_at_all(
    source: Source,
    examiner: Examiner,
    target: Examination,
    progress: Progress,
    *,
    see: Callable[[Examination], None],
) -> Alike:
    """Examine everything below the storage prefix, the target last and with a search for what damaged it.

    ``see`` is shown everything in the same pass.

    Raises:
        SourceError: The source was lost.
    """
    names = target.encryption_keys
    counter = KeyCounter(target.stored, only=names)
    similar, similarity = SimilarValues(examiner), similarity_of(target, examiner)
    unread: Counter[str] = Counter()
    keys = 0
    opens = False
    again: Examination | None = None

    def take(found: Examination, _view: View) -> None:
        nonlocal keys, opens, again
        keys += 1
        see(found)
        counter.add(found)
        if found.opened and (found.rule, found.transformer) == (target.rule, target.transformer):
            opens = opens or found.verdict.outcome not in FAILED
        if found.stored.key == target.stored.key:
            again = found
        elif is_unread(found):
            note_unread(unread, found)
        if similarity is not None:
            similar.add(found)

    everything = source.pages(examiner.layout.prefix_bytes)
    examine_all(examiner, everything, take, targets=(target.stored.key,), progress=progress, whole=True)
    return Alike(
        again if again is not None and again.stored == target.stored else None,
        {name: counter.of(name) for name in names},
        opens,
        similar.of(target, similarity),
        unread,
        keys,
    )
