"""One pass over everything before a change: what the other values under the same encryption key do, and its likes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from etcdfix.deferred import Deferrable, Examining, Watch
from etcdfix.encryption.envelope import parse_envelope
from etcdfix.model import Outcome
from etcdfix.pipeline import Examiner
from etcdfix.sources.base import Source
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import KeyCounter, KeyCounts
from etcdfix.verdicts.standing import FAILED

_STARTS = 4
_CBOR = "cbor"
_READ = {Outcome.READABLE, Outcome.INCONSISTENT}


class Likeness(msgspec.Struct, frozen=True):
    """What values have in common that a newer cluster may have written.

    Attributes:
        resource: Display name; "" where the envelope alone says it.
        cause: Why they fail.
        stated: Provider and version of an envelope, apiVersion and kind of a value, or how its bytes begin; "" for
            none of these.
    """

    resource: str
    cause: Cause
    stated: str

    def __str__(self) -> str:
        of = f" of {self.resource}" if self.resource else ""
        return f"{self.stated or self.cause}{of}"


class Alike(msgspec.Struct, frozen=True):
    """The target among its likes.

    Attributes:
        target: What the target came to when all others had been seen; None where it was not met again.
        counts: What the values under each of its encryption keys came to, the target included.
        transformer_opens: Anything under the same rule and transformer opens, whatever its KMS key id.
        likeness: What it shares with values that a newer cluster may have written; None for no such cause.
        likes_failed: How many of those fail, the target included.
        likes_read: How many of the same kind can be read.
        others_unread: How many other values of the same resource cannot be read, or could not be examined to the end.
        keys: Keys below the storage prefix.
    """

    target: Examination | None
    counts: dict[KeyName, KeyCounts]
    transformer_opens: bool
    likeness: Likeness | None
    likes_failed: int
    likes_read: int
    others_unread: int
    keys: int


def look_at_all(
    source: Source,
    examiner: Examiner,
    target: Examination,
    plugins: Deferrable | None,
    watch: Watch,
    *,
    see: Callable[[Examination], None],
) -> Alike:
    """Examine everything below the storage prefix, the target last and with a search for what damaged it.

    Args:
        source: Everything.
        examiner: Says what each value is.
        target: The value in question.
        plugins: Behind the examiner; None where none is asked.
        watch: Counts the values for a display, and those that wait.
        see: Is shown everything in the same pass.

    Raises:
        SourceError: The source was lost.
    """
    names = target.encryption_keys
    counter = KeyCounter(target.stored, only=names)
    likeness = likeness_of(target, examiner)
    failed = read = others = keys = 0
    resource = target.directory.group_resource
    opens = False
    again = None
    with Examining(examiner, plugins, target=target.stored.key) as run:
        everything = watch(iter(source.current(examiner.layout.prefix_bytes)), "keys", None)
        for part in (run.first(everything), watch(run.later(), "waiting", run.waiting)):
            for found in part:
                keys += 1
                see(found)
                counter.add(found)
                if found.opened and (found.rule, found.transformer) == (target.rule, target.transformer):
                    opens = opens or found.verdict.outcome not in FAILED
                if found.stored.key == target.stored.key:
                    again = found
                elif found.directory.group_resource == resource:
                    others += found.verdict.outcome not in _READ
                if likeness is not None:
                    failed += likeness_of(found, examiner) == likeness
                    read += _reads_like(found, target, likeness)
    return Alike(
        again if again is not None and again.stored == target.stored else None,
        {name: counter.of(name) for name in names},
        opens,
        likeness,
        failed,
        read,
        others,
        keys,
    )


def likeness_of(found: Examination, examiner: Examiner) -> Likeness | None:
    """Return what a value that fails shares with others that a newer cluster may have written, None for nothing."""
    verdict = found.verdict
    cause = verdict.cause
    if verdict.outcome not in FAILED or not verdict.maybe_newer or cause is None:
        return None
    resource = str(found.directory.group_resource) or found.directory.path
    if cause is Cause.UNKNOWN_ENVELOPE:
        envelope = parse_envelope(found.stored.value)
        stated = f"{envelope.provider}/{envelope.version}" if envelope is not None else ""
        return Likeness("", cause, stated)
    if cause in {Cause.UNKNOWN_ENCODING, Cause.MAGIC_DAMAGED}:
        plaintext = examiner.plaintext(found) or b""
        return Likeness(resource, cause, plaintext[:_STARTS].hex())
    return Likeness(resource, cause, verdict.stated_kind)


def _reads_like(found: Examination, target: Examination, likeness: Likeness) -> bool:
    """Say whether a value can be read that is of the target's kind: then it is not the tool, nor the release."""
    if found.verdict.outcome is not Outcome.READABLE or found.decoded is None:
        return False
    if found.directory.group_resource != target.directory.group_resource:
        return False
    behind_a_peek = not likeness.stated and target.verdict.seen_encoding == _CBOR
    if likeness.cause is Cause.CBOR_DAMAGED or behind_a_peek:
        return found.decoded.encoding.endswith(_CBOR)
    # Where the target states nothing, nothing is known to be of its kind.
    return likeness.stated == f"{found.decoded.gvk.api_version} {found.decoded.gvk.kind}"
