"""What one value is, for its report: the layout of its bytes, the attempts at them, and the values beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from etcdfix.decoding.layout import plaintext_layout
from etcdfix.encryption.layout import envelope_layout
from etcdfix.encryption.transformer import ConfiguredKey
from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Examining, Progress, examine_all
from etcdfix.model import Attempt, FailureReason, Part, StoredValue
from etcdfix.report.explain import AttemptResult, KeyAttempt, LayoutPart, Siblings, Where
from etcdfix.sources.base import Source
from etcdfix.sources.pages import ValuesPage
from etcdfix.storagekey import StorageCodec
from etcdfix.verdicts.deletability import FAILED, IDENTITY, Deletability, deletability_of
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import KeyCounter, KeyDoubt
from etcdfix.verdicts.observation import Observation

_ENCRYPTED = b"k8s:enc:"


def layout_of(examiner: Examiner, found: Examination) -> list[LayoutPart]:
    """Return the parts of a stored value, then those of what it decrypts to; of other programs' keys the size alone."""
    value = found.stored.value
    if found.directory.codec is StorageCodec.NOT_AN_OBJECT:
        return _told(Where.STORED, [Part(0, len(value), "bytes", "not of an object of the API")])
    if not value.startswith(_ENCRYPTED):
        return _told(Where.STORED, plaintext_layout(value))
    names = examiner.transformers.names if examiner.transformers is not None else ()
    stored = _told(Where.STORED, envelope_layout(value, names))
    plaintext = examiner.plaintext(found)
    return stored + (_told(Where.DECRYPTED, plaintext_layout(plaintext)) if plaintext is not None else [])


def _told(where: Where, parts: Iterable[Part]) -> list[LayoutPart]:
    return [LayoutPart(where, *part) for part in parts]


def attempts_on(examiner: Examiner, found: Examination, seen: Observation | None) -> list[KeyAttempt]:
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


class Beside:
    """Takes the values of a resource as they pass: the one in question, and what is under its encryption keys."""

    def __init__(self, examiner: Examiner, first: Examination) -> None:
        self._examiner = examiner
        self._names = first.encryption_keys
        self._stored = first.stored
        self._resource = first.directory.path
        self.counter = KeyCounter(first.stored, self._names)
        self.found: Examination | None = None
        self.seen: Observation | None = None
        self.others_lost = False  # of its kind, their encryption key

    def add(self, found: Examination) -> int:
        """Take one value; return 0: nobody else has to keep it."""
        if found.directory.path != self._resource:
            return 0
        if found.stored.key == self._stored.key:
            self.found, self.seen = found, self._examiner.observation(found)
        elif deletability_of(found) is Deletability.DECLARABLE:
            self.others_lost = True
        self.counter.add(found)
        return 0

    def siblings(self) -> Iterator[Siblings]:
        """Yield what the values under each of its encryption keys came to; once all were taken."""
        for name in self._names:
            counts = self.counter.of(name)
            digest = name.key if name.key.startswith("sha256:") else None
            yield Siblings(
                rule=name.rule,
                transformer=name.transformer,
                key_fingerprint=name.key if name.key and digest is None else None,
                kms_key_id_sha256=digest,
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
        return min(self.counter.doubts_about(found), default=KeyDoubt.NONE)


def look_beside(
    source: Source, examiner: Examiner, beside: Beside, stored: StoredValue, progress: Progress
) -> tuple[EndedEarly | None, list[str]]:
    """Examine every value of the resource; return what ended that early, and why not all could be read."""
    _, shared = examiner.layout.locate(stored.key)

    def take(found: Examination, _view: object = None) -> None:
        beside.add(found)

    try:
        pages = [ValuesPage([stored])] if shared == stored.key else source.pages(shared)
        ending = examine_all(examiner, pages, take, targets=(stored.key,), progress=progress)
    except SourceError as exc:
        return None, [f"the values beside it could not be read: {exc.message}"]
    early = [f"{ending.ended.reason} before the end"] if ending.ended is not None else []
    return ending.ended, [*ending.problems, *early]


def examine_alone(examiner: Examiner, beside: Beside, stored: StoredValue) -> None:
    """Examine the value in question where it is not among those that were read any more."""
    with Examining(examiner, targets=(stored.key,)) as run:
        for found in (*run.first([stored]), *run.drain()):
            beside.add(found)
