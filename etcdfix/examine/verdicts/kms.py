"""What a failure behind a KMS plugin proves: "cannot now" and "can never" are told apart here.

A plugin is another program, on another keyring's behalf. What it refuses, and what does not open with a data
key that it returned, counts against a value only after the same plugin has opened another value of the same key
id in this run; a plugin that points at the wrong keyring answers like that for everything.
"""

from __future__ import annotations

from typing import Final

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage, Ruling
from etcdfix.examine.verdicts.observation import Neighbours
from etcdfix.model.model import Attempt, Confidence
from etcdfix.model.providers import facts_of

_DENIED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
_UNKNOWN_KEY = frozenset({"NOT_FOUND", "FAILED_PRECONDITION"})
# What a plugin says of a wrapped data key: at most likely, since its key may be another one under the same id.
_REFUSALS: Final = frozenset({"kms-refused", "kms-key-invalid"})
# Where others show this, a refused data key is a damaged one; how surely, is said of the value.
_OTHERS_OPEN: Final = frozenset({Neighbours.SAME_KEY, Neighbours.NEWEST})
# Worst first: who could not be asked at all says less than who could.
_WORST_FIRST = (Cause.KMS_UNREACHABLE, Cause.KMS_DENIED, Cause.KMS_UNPROVEN, Cause.KMS_KEY_UNKNOWN)


def undetermined_cause(
    attempts: tuple[Attempt, ...], *, right_key: bool, neighbours: Neighbours
) -> Cause | None:
    """Return why nothing is proven by these attempts, or None where nothing stands against the proof."""
    causes = {_cause_of(attempt, right_key=right_key, neighbours=neighbours) for attempt in attempts}
    return next((cause for cause in _WORST_FIRST if cause in causes), None)


def _cause_of(attempt: Attempt, *, right_key: bool, neighbours: Neighbours) -> Cause | None:
    plugin = attempt.plugin
    if right_key:
        return None
    if attempt.reason == "kms-unreachable":
        return Cause.KMS_UNREACHABLE
    if plugin is None:
        return None
    if attempt.kms_status in _DENIED:
        return Cause.KMS_DENIED
    if attempt.kms_status in _UNKNOWN_KEY:
        # Of v2, a key id that answered for others is known, so this answer is not about the key id.
        contradicts_itself = facts_of(attempt.transformer).has_key_ids and plugin.same_key
        known_well = plugin.healthy and plugin.any_key and not contradicts_itself
        return Cause.KMS_KEY_UNKNOWN if known_well else Cause.KMS_UNPROVEN
    if not (plugin.healthy and plugin.same_key):
        return Cause.KMS_UNPROVEN
    # A key that was replaced behind its key id refuses every old data key, and opens every new one.
    refused = attempt.reason in _REFUSALS
    return Cause.KMS_UNPROVEN if refused and neighbours not in _OTHERS_OPEN else None


def undetermined_message(
    cause: Cause, transformer: str, attempts: tuple[Attempt, ...], neighbours: Neighbours
) -> str:
    """Return the sentence for a value of which a plugin's answers prove nothing; see :func:`undetermined_cause`."""
    match cause:
        case Cause.KMS_DENIED:
            return (
                f"the plugin of {transformer} is there and is not allowed to unwrap this value's data key; nothing "
                "is known about the value"
            )
        case Cause.KMS_KEY_UNKNOWN:
            status = next(a.kms_status for a in attempts if a.kms_status in _UNKNOWN_KEY)
            return (
                f"the plugin of {transformer} answers {status} for the key id of this value, and opened others; "
                "whether that key is gone for ever, only a person can say"
            )
        case Cause.KMS_UNPROVEN:
            doubted = next(
                a for a in attempts if _cause_of(a, right_key=False, neighbours=neighbours) is cause
            )
            said = f" ({doubted.kms_status})" if doubted.kms_status else ""
            return (
                f"does not open with what the plugin of {transformer} answers{said}, which proves nothing: "
                f"{_doubt_of(doubted)}"
            )
        case _:
            asked = any(attempt.reason == "kms-unreachable" and attempt.error for attempt in attempts)
            return (
                f"needs the plugin of {transformer}, which {'gave no answer' if asked else 'was not asked'}; "
                "nothing is known about the value"
            )


def _doubt_of(unproven: Attempt) -> str:
    plugin = unproven.plugin
    assert plugin is not None  # else nobody answered
    under = "key id" if facts_of(unproven.transformer).has_key_ids else "provider"
    if not plugin.healthy:
        return "the plugin does not report itself healthy"
    if not plugin.same_key:
        return f"no other value under the same {under} opened in this run"
    if unproven.kms_status in _UNKNOWN_KEY:
        return "the plugin opened other values under the same key id, so it contradicts itself"
    return (
        f"other values under the same {under} opened, but it is not known that some written before this one and "
        "some written after it did, and the key may have been replaced in between"
    )


def envelope_ruling(
    attempts: tuple[Attempt, ...], transformer: str, *, name_may_go_on: bool
) -> Ruling | None:
    """Rule on an envelope that is broken whatever its keys are; None where nothing shows that.

    Its name may go on (v1 names may hold colons): then lengths were read in the wrong place.
    """
    certain, proven = Confidence.CERTAIN, Damage.PROVEN
    for attempt in attempts:
        match attempt.reason:
            case "kms-envelope-invalid" if not name_may_go_on:
                message = f"the envelope of {transformer} is broken: the API server rejects it before asking the plugin"
                return Ruling(Cause.KMS_ENVELOPE_DAMAGED, certain, message, proven)
            case "kms-envelope-unknown":
                message = f"the envelope of {transformer} is whole, and no known API server accepts it"
                return Ruling(Cause.UNKNOWN_ENVELOPE, certain, message, proven, open=True)
            case "kms-size-damaged":
                message = (
                    f"opens under {transformer} once its wrapped data key is cut like others: "
                    "its length is damaged"
                )
                return Ruling(Cause.KMS_ENVELOPE_DAMAGED, certain, message, proven)
            case "too-short" if attempt.plugin is not None and not name_may_go_on:
                message = f"too short to have been written under {transformer}, whatever the key"
                return Ruling(Cause.VALUE_TRUNCATED, certain, message, proven)
    return None
