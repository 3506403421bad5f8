"""What a failure behind a KMS plugin proves: "cannot now" and "can never" are told apart here.

A plugin is another program, on another keyring's behalf. What it refuses, and what does not open with a data
key that it returned, counts against a value only after the same plugin has opened another value of the same key
id in this run; a plugin that points at the wrong keyring answers like that for everything.
"""

from __future__ import annotations

from etcdfix.model import Confidence
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.observation import TransformAttempt

_DENIED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
_UNKNOWN_KEY = frozenset({"NOT_FOUND", "FAILED_PRECONDITION"})
# Worst first: who could not be asked at all says less than who could.
_DOUBTS = (Cause.KMS_UNREACHABLE, Cause.KMS_DENIED, Cause.KMS_UNPROVEN, Cause.KMS_KEY_UNKNOWN)


def doubt(attempts: tuple[TransformAttempt, ...]) -> Cause | None:
    """Return why nothing is proven by these attempts, or None where nothing stands against the proof."""
    doubts = {_doubt(attempt) for attempt in attempts}
    return next((cause for cause in _DOUBTS if cause in doubts), None)


def _doubt(attempt: TransformAttempt) -> Cause | None:
    if attempt.reason == "kms-unreachable":
        return Cause.KMS_UNREACHABLE
    plugin = attempt.plugin
    if plugin is None:
        return None
    if attempt.kms_status in _DENIED:
        return Cause.KMS_DENIED
    if attempt.kms_status in _UNKNOWN_KEY:
        # Of v2, a key id that answered for others is known, so this answer is not about the key id.
        contradicts_itself = attempt.transformer.startswith("kms/v2/") and plugin.same_key
        known_well = plugin.healthy and plugin.any_key and not contradicts_itself
        return Cause.KMS_KEY_UNKNOWN if known_well else Cause.KMS_UNPROVEN
    return None if plugin.healthy and plugin.same_key else Cause.KMS_UNPROVEN


def doubt_message(cause: Cause, transformer: str, attempts: tuple[TransformAttempt, ...]) -> str:
    """Return the sentence for a value about which a plugin left a doubt."""
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
            said = next((f" ({a.kms_status})" for a in attempts if a.kms_status), "")
            return (
                f"does not open with what the plugin of {transformer} answers{said}, and nothing shows that this "
                "plugin is the right one and well: no other value under the same key id opened and still does"
            )
        case _:
            asked = any(attempt.reason == "kms-unreachable" and attempt.error for attempt in attempts)
            return (
                f"needs the plugin of {transformer}, which {'gave no answer' if asked else 'was not asked'}; "
                "nothing is known about the value"
            )


def proven(attempt: TransformAttempt, transformer: str) -> tuple[Cause, Confidence, str] | None:
    """Return the cause of a failure behind a plugin that has earned belief; None for one that is no plugin's."""
    certain = Confidence.CERTAIN
    if attempt.reason == "kms-envelope-invalid":
        message = (
            f"the envelope of {transformer} is broken: the API server rejects it before it asks the plugin"
        )
        return Cause.KMS_ENVELOPE_DAMAGED, certain, message
    if attempt.reason == "kms-size-damaged":
        message = (
            f"opens under {transformer} once its wrapped data key is cut like others: its length is damaged"
        )
        return Cause.KMS_ENVELOPE_DAMAGED, certain, message
    plugin = attempt.plugin
    if plugin is None:
        return None
    # v1 has no key ids: behind one provider there may be a key that is gone, beside one that works.
    v1 = transformer.startswith("kms/v1/")
    under = "provider" if v1 else "key id"
    others = f"{plugin.same_key} other value{'s' if plugin.same_key != 1 else ''} of the same {under}"
    match attempt.reason:
        case "kms-refused":
            message = f"the plugin of {transformer} rejects the data key of this value, and opened {others}"
            return Cause.KMS_ENVELOPE_DAMAGED, Confidence.LIKELY if v1 else certain, message
        case "kms-key-invalid":
            message = f"what the plugin of {transformer} unwraps here is no data key; it opened {others}"
            return Cause.KMS_ENVELOPE_DAMAGED, Confidence.LIKELY, message
        case "too-short":
            return Cause.VALUE_TRUNCATED, certain, f"too short to have been written under {transformer}"
        case _:
            message = (
                f"does not authenticate with the data key that the plugin of {transformer} unwrapped (it opened "
                f"{others}): damaged, or moved from another etcd key"
            )
            return Cause.AUTHENTICATION_FAILED, certain, message
