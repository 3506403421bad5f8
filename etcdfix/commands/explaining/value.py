"""What one value is, for its report: the layout of its bytes, the attempts at them, and the values beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from etcdfix.decoding.layout import plaintext_layout
from etcdfix.encryption.layout import envelope_layout
from etcdfix.encryption.transformer import ConfiguredKey
from etcdfix.examine.all import Progress, examine_all
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED, Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.key_loss import THE_KEY, KeyCounter, KeyDoubt
from etcdfix.examine.verdicts.observation import Observation
from etcdfix.model.errors import EndedEarly, SourceError
from etcdfix.model.model import Attempt, FailureReason, ValuePart
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import StorageCodec
from etcdfix.report.encryption import key_fields
from etcdfix.report.explain import AttemptResult, KeyAttempt, LayoutBase, LayoutPart, Siblings
from etcdfix.report.finding import finding_from
from etcdfix.sources.base import Source
from etcdfix.sources.pages import ValuesPage

_ENCRYPTED = b"k8s:enc:"


def _layout_of(examiner: Examiner, found: Examination) -> list[LayoutPart]:
    """Return the parts of a stored value, then those of what it decrypts to; of other programs' keys the size alone."""
    value = found.stored.value
    if found.directory.codec is StorageCodec.NOT_AN_OBJECT:
        return _told(LayoutBase.STORED, [ValuePart(0, len(value), "bytes", "not of an object of the API")])
    if not value.startswith(_ENCRYPTED):
        return _told(LayoutBase.STORED, plaintext_layout(value))
    names = examiner.transformers.names if examiner.transformers is not None else ()
    stored = _told(LayoutBase.STORED, envelope_layout(value, names))
    plaintext = examiner.plaintext(found)
    return stored + (
        _told(LayoutBase.DECRYPTED, plaintext_layout(plaintext)) if plaintext is not None else []
    )


def _told(where: LayoutBase, parts: Iterable[ValuePart]) -> list[LayoutPart]:
    return [LayoutPart(where, *part) for part in parts]


def _attempts_on(examiner: Examiner, found: Examination, seen: Observation | None) -> list[KeyAttempt]:
    """Return what became of every encryption key of the rule that holds for a value, in the API server's order."""
    transformers = examiner.readers.reader_for(found.stored.key).transformers
    if transformers is None:
        return []
    failure = seen.transform_failure if seen is not None else None
    failed = {(one.transformer, one.key_fingerprint): one for one in failure.attempts} if failure else {}
    told = []
    opened = False
    for key in transformers.keys:
        place = (key.transformer, key.key_fingerprint)
        result, detail = _result(key, found, failed.get(place), opened=opened)
        opened = opened or result is AttemptResult.OPENED
        told.append(
            KeyAttempt(
                rule=transformers.rule or "",
                transformer=key.transformer,
                key_fingerprint=key.key_fingerprint or None,
                result=result,
                detail=detail,
            )
        )
    return told


def _result(
    key: ConfiguredKey, found: Examination, failed: Attempt | None, *, opened: bool
) -> tuple[AttemptResult, str]:
    value = found.stored.value
    if value.startswith(_ENCRYPTED) != bool(key.prefix):
        plain = "the value is encrypted" if not key.prefix else "the value is not encrypted"
        return AttemptResult.NOT_TRIED, plain
    if not value.startswith(key.prefix):
        return AttemptResult.NOT_TRIED, "the value does not name it"
    if opened:
        return AttemptResult.NOT_TRIED, "another key before it opened the value"
    if failed is not None:
        silent = failed.reason is FailureReason.KMS_UNREACHABLE
        return AttemptResult.NO_ANSWER if silent else AttemptResult.FAILED, failed.error
    fingerprints = found.key_fingerprints
    its = found.transformer == key.transformer and (not fingerprints or key.key_fingerprint in fingerprints)
    return AttemptResult.OPENED if found.opened and its else AttemptResult.FAILED, ""


_WHOLE: Final = frozenset(
    {Cause.VALUE_MOVED, Cause.STORAGE_PREFIX_CHANGED, Cause.ASSOCIATED_DATA_UNKNOWN, Cause.KEY_RENAMED}
)
"""The bytes of these are whole: nothing is wrong with them that could be put right."""


def of_the_value(
    examiner: Examiner, found: Examination, beside: SiblingValues | None, no_repair: str
) -> dict[str, Any]:
    """Return the fields of a report that only a stored value has."""
    seen = beside.seen if beside is not None else None
    if seen is None:
        examiner.examine(found.stored)
        seen = examiner.observation(found)
    siblings = list(beside.siblings()) if beside is not None and beside.found is not None else []
    return {
        "finding": finding_from(found, ()),
        "layout": _layout_of(examiner, found),
        "attempts": _attempts_on(examiner, found, seen),
        "no_repair": no_repair if found.verdict.cause not in _WHOLE else "",
        "siblings": siblings,
    }


class SiblingValues:
    """Takes the values of a resource as they pass: the one in question, and what is under its encryption keys.

    Attributes:
        found: The value in question, judged by all that was seen; None until it passed.
        seen: What was observed of it.
        others_lost: Others of its kind have lost their encryption key.
    """

    def __init__(self, examiner: Examiner, first: Examination) -> None:
        self._examiner, self._first = examiner, first
        self._counter = KeyCounter(first.encryption_keys)
        self.found: Examination | None = None
        self.seen: Observation | None = None
        self.others_lost = False

    def add(self, found: Examination) -> None:
        """Take one value."""
        if found.directory.path != self._first.directory.path:
            return
        if found.stored.key == self._first.stored.key:
            self.found, self.seen = found, self._examiner.observation(found)
        elif deletability_of(found) is Deletability.DECLARABLE:
            self.others_lost = True
        self._counter.add(found)

    def look(self, source: Source, progress: Progress) -> tuple[EndedEarly | None, list[str]]:
        """Examine every value of the resource; return what ended that early, and why not all could be read."""
        stored = self._first.stored
        _, shared = self._examiner.layout.locate(stored.key)
        try:
            pages = [ValuesPage([stored])] if shared == stored.key else source.pages(shared)
            ending = examine_all(self._examiner, pages, self.add, targets=(stored.key,), progress=progress)
        except SourceError as exc:
            return None, [f"the values beside it could not be read: {exc.message}"]
        return ending.ended, [*ending.problems]

    def look_at_itself(self) -> None:
        """Examine the value in question where it is not among those that were read any more."""
        stored = self._first.stored
        examine_all(self._examiner, [ValuesPage([stored])], self.add, targets=(stored.key,), whole=True)

    def against_a_change(self) -> str:
        """Say why the values beside the value speak against deleting it; "" where they do not."""
        found = self.found
        if found is None or not self._counter.doubts_about(found) & THE_KEY:
            return ""
        counts = [self._counter.of(name) for name in found.encryption_keys]
        failed, opened = max(one.failed for one in counts), max(one.opened for one in counts)
        what = f"{failed} of {failed + opened} values of the resource"
        if found.transformer == IDENTITY:
            return f"{what} without encryption cannot be read: no key is to blame, and a deletion is refused"
        return (
            f"{what} under its encryption key cannot be read: that points at the key or the configuration, "
            "and a deletion is refused"
        )

    def siblings(self) -> Iterator[Siblings]:
        """Yield what the values under each of its encryption keys came to; once all were taken."""
        for name in self._first.encryption_keys:
            counts = self._counter.of(name)
            yield Siblings(
                **key_fields(name),
                opened=counts.opened,
                failed=counts.failed,
                damaged=counts.damaged,
                undetermined=counts.undetermined,
                doubt=self._doubt(name).value,
            )

    def _doubt(self, name: KeyName) -> KeyDoubt:
        found = self.found
        if found is None or name.transformer == IDENTITY or found.verdict.outcome not in FAILED:
            return KeyDoubt.NONE
        return min(self._counter.doubts_about(found), default=KeyDoubt.NONE)
