"""Is it the object, or the configuration? What the other values under the same transformer do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from etcdfix.deferred import Deferrable, Examining, Watch
from etcdfix.encryption.envelope import ENCRYPTED_PREFIX, parse_envelope
from etcdfix.model import Outcome, StoredValue
from etcdfix.pipeline import Examiner
from etcdfix.sources.base import Source
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.standing import FAILED

# Under one transformer none opens and at least 2 fail, or at least half and at least 10 fail.
_ALL_FAIL = 2
_MANY_FAIL = 10


class Tally(msgspec.Struct):
    """What the values under one transformer, or under one of its key ids, came to.

    Attributes:
        opened: Readable, or at least served.
        failed: Proven not to be.
        undetermined: Neither.
        last_failing: Newest mod_revision among those that do not open; in a :class:`Pattern` among the others.
        last_opened: Newest mod_revision among those that open; in a :class:`Pattern` among those before the target.
    """

    opened: int = 0
    failed: int = 0
    undetermined: int = 0
    last_failing: int = 0
    last_opened: int = 0

    def add(self, found: Examination, *, target: StoredValue | None = None) -> None:
        """Count one value; where there is a target, it says nothing itself about when others failed or opened last."""
        revision = found.stored.mod_revision
        outcome = found.verdict.outcome
        if outcome in FAILED:
            self.failed += 1
        elif outcome is Outcome.UNDETERMINED:
            self.undetermined += 1
        else:
            self.opened += 1
            if target is None or revision < target.mod_revision:
                self.last_opened = max(self.last_opened, revision)
            return
        if target is None or found.stored.key != target.key:
            self.last_failing = max(self.last_failing, revision)

    @property
    def is_pattern(self) -> bool:
        """Whether the failures point at the key or the configuration instead of single objects."""
        if not self.opened:
            return self.failed + self.undetermined >= _ALL_FAIL
        return self.failed >= _MANY_FAIL and self.failed >= self.opened


class Pattern(msgspec.Struct, frozen=True):
    """The target among its likes.

    Attributes:
        transformer: Under which all of them were written.
        kms_key_id_sha256: Of the target, "" for none.
        all: Everything under the transformer, the target included.
        same_key_id: The part under the target's KMS key id; equal to ``all`` where there are no key ids.
        keys: Keys below the storage prefix.
        target: What the target came to when all others had been seen; None where it was not met again.
    """

    transformer: str
    kms_key_id_sha256: str
    all: Tally
    same_key_id: Tally
    keys: int
    target: Examination | None


def find_pattern(
    source: Source,
    examiner: Examiner,
    target: Examination,
    plugins: Deferrable | None,
    watch: Watch,
    *,
    see: Callable[[Examination], None] | None = None,
) -> Pattern:
    """Examine everything that was written under the transformer of ``target``, and ``target`` again.

    Values under KMS are judged after all others, so that what the plugin did for those counts.

    Args:
        source: Everything.
        examiner: Says what each value is.
        target: The value in question.
        plugins: Behind the examiner; None where none is asked.
        watch: Counts the values for a display, and those that wait for a KMS plugin.
        see: Is shown everything else, too, in the same pass; None where only what is alike matters.

    Raises:
        SourceError: The source was lost.
    """
    marker = marker_of(target, examiner.transformers.names if examiner.transformers is not None else ())
    keys = 0

    def alike() -> Iterator[StoredValue]:
        nonlocal keys
        for stored in watch(iter(source.current(examiner.layout.prefix_bytes)), "keys", None):
            keys += 1
            if see is not None or is_alike(stored, marker):
                yield stored

    def waiting() -> Iterator[Examination]:
        yield from watch(run.later(), "waiting for KMS", run.waiting)

    everything, same_key_id = Tally(), Tally()
    again = None
    with Examining(examiner, plugins) as run:
        for part in (run.first(alike()), waiting()):
            for found in part:
                if see is not None:
                    see(found)
                if found.verdict.outcome is Outcome.NOT_AN_OBJECT or not is_alike(found.stored, marker):
                    continue
                everything.add(found, target=target.stored)
                if found.kms_key_id == target.kms_key_id:
                    same_key_id.add(found, target=target.stored)
                if found.stored.key == target.stored.key:
                    again = found
    return Pattern(
        target.transformer,
        target.kms_key_id_sha256,
        everything,
        same_key_id,
        keys,
        again if again is not None and again.stored == target.stored else None,
    )


def is_alike(stored: StoredValue, marker: bytes) -> bool:
    """Say whether a value was written under the same transformer; a marker of b"" stands for values in the clear."""
    return stored.value.startswith(marker) if marker else not stored.value.startswith(ENCRYPTED_PREFIX)


def marker_of(target: Examination, names: Collection[str]) -> bytes:
    """Return what every value under the same transformer starts with; b"" for values in the clear."""
    envelope = parse_envelope(target.stored.value, names)
    return target.stored.value[: envelope.body_offset] if envelope is not None else b""
