"""Examinations and verdicts made by hand, for everything that only reads results."""

from __future__ import annotations

from typing import Any

import msgspec

from etcdfix.examine.verdicts.catalogue import CATALOGUE
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.model.model import Confidence, Outcome, ServerBehaviour
from etcdfix.model.storagekey import StorageLayout
from tests.support.memory_source import stored

LAYOUT = StorageLayout()
# What a damaged value looks like: long enough to have a size, and text that must never reach a report.
SECRET_BYTES = b"k8s:enc:aescbc:v1:key2:" + b"never-to-be-shown-" * 4
# With these causes a verdict never says that the value is damaged.
_NO_DAMAGE = {info.cause for info in CATALOGUE.values() if info.curable_by_configuration} | {
    Cause.VALUE_MOVED,
    Cause.DOUBLE_ENCRYPTED,
    Cause.ENVELOPE_DAMAGED,
    Cause.ALLOCATOR_DAMAGED,
}


def examination(
    key: bytes | str = "/registry/secrets/shop/web",
    *,
    outcome: Outcome = Outcome.DECRYPT_FAILURE,
    cause: Cause | None = Cause.KEY_NAME_MISSING,
    apiserver: ServerBehaviour = ServerBehaviour.CORRUPT,
    transformer: str = "aescbc/v1/key2",
    opened: bool = False,
    stale: bool = False,
    value: bytes = SECRET_BYTES,
    mod_revision: int = 7,
    lease: int = 0,
    kms_key_id: str = "",
    rule: str = "",
    key_fingerprints: tuple[str, ...] = (),
    namespaced: bool | None = None,
    **verdict: Any,
) -> Examination:
    """Return an examination; by default a Secret whose key was lost. ``verdict`` overrides its fields."""
    record = stored(key, value, mod_revision=mod_revision, lease=lease)
    directory, shared = LAYOUT.locate(record.key)
    scoped = directory
    if directory.namespaced is None:
        scoped = msgspec.structs.replace(directory, namespaced=namespaced)
    where = LAYOUT.split(record.key, (scoped, shared))
    fields: dict[str, Any] = {
        "confidence": Confidence.CERTAIN,
        "message": "written under aescbc/v1/key2; no key of that name is configured",
        "upstream_message": "no matching key was found for the provided AES transformer",
        "damage": Damage.PROVEN if outcome in FAILED and cause not in _NO_DAMAGE else Damage.NONE,
        **verdict,
    }
    return Examination(
        record,
        directory,
        where.namespace,
        where.name,
        transformer,
        opened,
        stale,
        Verdict(outcome=outcome, cause=cause, apiserver=apiserver, **fields),
        kms_key_id=kms_key_id,
        rule=rule,
        key_fingerprints=key_fingerprints,
    )


def readable(key: bytes | str = "/registry/secrets/shop/good", **settings: Any) -> Examination:
    defaults: dict[str, Any] = {
        "outcome": Outcome.READABLE,
        "cause": None,
        "apiserver": ServerBehaviour.SERVES,
        "transformer": "identity",
        "opened": True,
        "message": "readable",
        "upstream_message": "",
    }
    return examination(key, **(defaults | settings))


def with_verdict(found: Examination, **changes: Any) -> Examination:
    """Return the same examination with some fields of its verdict changed."""
    return msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, **changes))
