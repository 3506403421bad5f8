"""What one value is, for its report: the layout of its bytes, the attempts at them, and the values beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from etcdfix.decoding.layout import plaintext_layout
from etcdfix.encryption.layout import envelope_layout
from etcdfix.encryption.transformer import ConfiguredKey
from etcdfix.errors import DecodeError, EndedEarly, SourceError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Ending, Examining, Progress, examine_all
from etcdfix.model import Attempt, FailureReason, Outcome, Part, StoredValue
from etcdfix.repair import NO_REPAIR
from etcdfix.report.explain import AttemptResult, KeyAttempt, LayoutPart, Siblings, Where
from etcdfix.sources.base import Source
from etcdfix.sources.pages import ValuesPage
from etcdfix.storagekey import StorageCodec, display
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import FAILED, IDENTITY, Deletability, deletability_of
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import KeyCounter, KeyDoubt
from etcdfix.verdicts.observation import Observation
from etcdfix.verdicts.plaintext import describe_failure

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


def damage_of(examiner: Examiner, found: Examination) -> tuple[int | None, str]:
    """Return at which byte of the plaintext decoding breaks, and in which field; None and "" where it is not known."""
    plaintext = examiner.plaintext(found) if found.verdict.outcome is Outcome.DECODE_FAILURE else None
    if plaintext is None:
        return None, ""
    try:
        examiner.readers.reader_for(found.stored.key).decode(plaintext)
    except DecodeError as problem:
        failure = describe_failure(problem)
        return failure.offset, failure.field_path
    return None, ""


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


_ELSEWHERE = "its bytes are whole; it stands under another etcd key than the one it was written under"
_WHY_NONE = {
    Cause.VALUE_MOVED: _ELSEWHERE,
    Cause.STORAGE_PREFIX_CHANGED: _ELSEWHERE,
    Cause.ASSOCIATED_DATA_UNKNOWN: _ELSEWHERE,
    Cause.KEY_RENAMED: "its bytes are whole; the configuration has the key that wrote it under another name or place",
    Cause.KEY_NAME_MISSING: f"{NO_REPAIR.why_not}; with the key that it names, which is missing, it might",
    Cause.PROVIDER_MISSING: f"{NO_REPAIR.why_not}; with the provider that it names, which is missing, it might",
    Cause.RESOURCE_NOT_CONFIGURED: f"{NO_REPAIR.why_not}; with an entry for its resource it might",
}


def why_no_repair(found: Examination, why_not: str) -> str:
    """Return why nothing can be put right in a value: what a search said, or what else is known to be wrong."""
    if why_not not in {"", NO_REPAIR.why_not}:
        return why_not
    if found.verdict.holds_whole:
        return "a whole object may be found in it, and nothing says what surrounds it"
    if found.transformer == IDENTITY:
        return "none of the changes that can be undone in an unencrypted value makes it readable"
    cause = found.verdict.cause
    return _WHY_NONE.get(cause, NO_REPAIR.why_not) if cause is not None else NO_REPAIR.why_not


class _OfKey(msgspec.Struct):
    """What the values under one encryption key came to."""

    keys: int = 0
    first: int = 0
    last: int = 0
    newest_opened: tuple[int, bytes] = (0, b"")

    def add(self, found: Examination) -> None:
        revision = found.stored.mod_revision
        self.keys += 1
        self.first = min(self.first or revision, revision)
        self.last = max(self.last, revision)
        if found.opened and found.verdict.outcome not in FAILED and revision > self.newest_opened[0]:
            self.newest_opened = (revision, found.stored.key)


class Beside:
    """Takes the values of a resource as they pass: the one in question, and what is under its encryption keys."""

    def __init__(self, examiner: Examiner, first: Examination) -> None:
        self._examiner = examiner
        self._names = first.encryption_keys
        self._stored = first.stored
        self._resource = first.directory.path
        self.counter = KeyCounter(first.stored, self._names)
        self._beside = {name: _OfKey() for name in self._names}
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
        for name in found.encryption_keys:
            beside = self._beside.get(name)
            if beside is not None:
                beside.add(found)
        return 0

    def siblings(self) -> Iterator[Siblings]:
        """Yield what the values under each of its encryption keys came to; once all were taken."""
        for name in self._names:
            beside, counts = self._beside[name], self.counter.of(name)
            revision, key = beside.newest_opened
            digest = name.key if name.key.startswith("sha256:") else None
            yield Siblings(
                rule=name.rule,
                transformer=name.transformer,
                key_fingerprint=name.key if name.key and digest is None else None,
                kms_key_id_sha256=digest,
                keys=beside.keys,
                opened=counts.opened,
                failed=counts.failed,
                damaged=counts.damaged,
                undetermined=counts.undetermined,
                first_mod_revision=beside.first,
                last_mod_revision=beside.last,
                newest_opened=display(key) if revision else None,
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
    """Examine every value of the resource; the one in question alone where it is not among them any more."""
    _, shared = examiner.layout.locate(stored.key)

    def take(found: Examination, _view: object = None) -> None:
        beside.add(found)

    try:
        pages = [ValuesPage([stored])] if shared == stored.key else source.pages(shared)
        ending = examine_all(examiner, pages, take, targets=(stored.key,), progress=progress)
        problems = list(ending.problems)
    except SourceError as exc:
        ending, problems = Ending(), [f"the values beside it could not be read: {exc.message}"]
    if ending.ended is not None:
        problems.append(f"{ending.ended.reason} before the end")
    if beside.found is None and ending.ended is None:
        if not problems:
            problems.append(
                "the key went while its resource was read: the values beside it are of a later revision"
            )
        examine_alone(examiner, beside, stored)
    return ending.ended, problems


def examine_alone(examiner: Examiner, beside: Beside, stored: StoredValue) -> None:
    """Examine the value in question after all others."""
    with Examining(examiner, targets=(stored.key,)) as run:
        for found in (*run.first([stored]), *run.drain()):
            beside.add(found)
