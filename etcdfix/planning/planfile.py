"""A plan as a file: sealed against accidents, loaded with care, and what it still proves."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.impact.grades import Risk
from etcdfix.model import Outcome, StoredValue
from etcdfix.remediation.pattern import Pattern, Tally
from etcdfix.reports.model import API_VERSION
from etcdfix.reports.plan_model import KIND, DeletionPlan, PlanEntry, PlanProof

MOST_AGE: Final = timedelta(minutes=15)
_MOST_BYTES: Final = 1 << 29
_AGAIN: Final = "make a new one: etcdfix plan --from-report REPORT -o json --output-file FILE"
_RISKS: Final = frozenset(risk.value for risk in Risk)
_FAILED: Final = frozenset({Outcome.DECRYPT_FAILURE.value, Outcome.DECODE_FAILURE.value})


def sealed(plan: DeletionPlan) -> DeletionPlan:
    """Return the plan with the digest of its own content."""
    return msgspec.structs.replace(plan, content_sha256=_digest(plan))


def _digest(plan: DeletionPlan) -> str:
    bare = msgspec.structs.replace(plan, content_sha256="")
    return f"sha256:{hashlib.sha256(msgspec.json.encode(bare)).hexdigest()}"


def load_plan(path: Path) -> DeletionPlan:
    """Read a plan that was written with ``-o json``.

    Raises:
        ConfigurationError: It cannot be read, others may write to it, it is no plan of this version, it was edited, or
            it contradicts itself.
    """
    where = f"plan {path}"
    raw = _read(path, where)
    try:
        plan = msgspec.json.decode(raw, type=DeletionPlan)
    except (msgspec.MsgspecError, UnicodeError) as exc:
        raise ConfigurationError(f"{where} is not a plan of etcdfix: {exc}", hint=_AGAIN) from exc
    if (plan.api_version, plan.kind) != (API_VERSION, KIND):
        raise ConfigurationError(
            f"{where} says {plan.api_version} {plan.kind}, expected {API_VERSION} {KIND}", hint=_AGAIN
        )
    if plan.content_sha256 != _digest(plan):
        raise ConfigurationError(f"{where} is not what was written: its digest does not fit", hint=_AGAIN)
    contradiction = _contradiction(plan)
    if contradiction:
        raise ConfigurationError(f"{where} contradicts itself: {contradiction}", hint=_AGAIN)
    return plan


def proof_for(
    plan: DeletionPlan,
    *,
    stored: StoredValue,
    transformer: str,
    kms_key_id_sha256: str,
    cluster_uid: str,
    config_sha256: str,
    assumed_release: str,
    now: datetime,
) -> Pattern | str:
    """Return what the plan counted for a value, or why it proves nothing for it.

    Args:
        plan: As loaded.
        stored: The value as it stands now.
        transformer: Under which it was written.
        kms_key_id_sha256: "" for none.
        cluster_uid: uid of namespace kube-system, "" where unknown.
        config_sha256: ``sha256:<hex>`` of the EncryptionConfiguration in use.
        assumed_release: ``1.36``, or "" for every known release.
        now: With a time zone.

    Returns:
        The pattern, its ``target`` None since nothing was examined again; or one sentence.
    """
    age = now - _time(plan.generated_at)
    if not plan.source.newest:
        return "the plan was made from a snapshot or an old revision, which says nothing about now"
    if not plan.source.complete:
        return "the plan did not see everything"
    if age < timedelta():
        return f"the plan is from the future ({plan.generated_at}): compare the clocks"
    if age > MOST_AGE:
        minutes, most = (int(span.total_seconds() // 60) for span in (age, MOST_AGE))
        return f"the plan is {minutes} minutes old; its counts hold for {most}"
    if not cluster_uid or plan.kube_system_uid != cluster_uid:
        theirs, ours = plan.kube_system_uid or "unknown", cluster_uid or "unknown"
        return f"the plan is of the cluster {theirs}, this one is {ours}"
    if plan.encryption_config.sha256 != config_sha256:
        return "the plan was made with another encryption configuration"
    if (plan.kubernetes_version or "") != assumed_release:
        return "the plan was made with another --kubernetes-version"
    entry = entry_for(plan, stored.key)
    if entry is None:
        return "the plan does not list the key"
    digest = f"sha256:{hashlib.sha256(stored.value).hexdigest()}"
    if (entry.mod_revision, entry.value_sha256) != (stored.mod_revision, digest):
        return "the value was changed since the plan was made"
    if (entry.transformer, entry.kms_key_id_sha256) != (transformer, kms_key_id_sha256):
        return "the plan has the value under another transformer"
    everything, same = (_proof(plan, transformer, key_id) for key_id in ("", kms_key_id_sha256))
    if everything is None or same is None:
        return f"the plan has no counts for {transformer or 'an envelope that nobody knows'}"
    return Pattern(
        transformer,
        kms_key_id_sha256,
        _tally(everything, entry.mod_revision, entry.opened_before),
        _tally(same, entry.mod_revision, entry.opened_before_same_key),
        everything.keys,
        None,
    )


def entry_for(plan: DeletionPlan, key: bytes) -> PlanEntry | None:
    """Return what the plan says of a key, None where it does not list it."""
    return next((entry for entry in plan.entries if _key(entry) == key), None)


def _read(path: Path, where: str) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigurationError(f"{where} is no regular file", hint=_AGAIN)
            if status.st_mode & stat.S_IWOTH:
                raise ConfigurationError(
                    f"{where}: everybody may write to it", hint="keep it where others cannot"
                )
            raw = stream.read(_MOST_BYTES + 1)
    except OSError as exc:
        raise ConfigurationError(f"{where}: {exc.strerror}") from exc
    if len(raw) > _MOST_BYTES:
        raise ConfigurationError(f"{where}: larger than any plan", hint=_AGAIN)
    return raw


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; nobody may write to a pipe of that name."""
    return os.open(path, flags | os.O_NONBLOCK)


def _contradiction(plan: DeletionPlan) -> str:
    """Say where numbers cannot be true together; "" where they can."""
    if _parsed(plan.generated_at) is None:
        return f"generated_at {plan.generated_at!r} is no time"
    listed: dict[tuple[str, str], list[PlanEntry]] = {}
    keys = set()
    for entry in plan.entries:
        try:
            key = _key(entry)
        except ValueError:  # binascii.Error, or characters outside ASCII
            return f"key_base64 of {entry.key} is not base64"
        if key in keys:
            return f"{entry.key} is listed twice"
        keys.add(key)
        if entry.risk not in _RISKS or entry.risk != (entry.reasons[0].risk if entry.reasons else Risk.NONE):
            return f"the risk of {entry.key} is not that of its reasons"
        if not 0 <= entry.opened_before_same_key <= entry.opened_before < entry.mod_revision:
            return f"{entry.key} has revisions that cannot be true together"
        for key_id in {"", entry.kms_key_id_sha256}:
            listed.setdefault((entry.transformer, key_id), []).append(entry)
    proofs = {(proof.transformer, proof.kms_key_id_sha256): proof for proof in plan.proofs}
    if len(proofs) != len(plan.proofs):
        return "it has two proofs for one key"
    for (transformer, key_id), entries in listed.items():
        proof = proofs.get((transformer, key_id))
        bad = _bad_proof(proof, entries) if proof is not None else ""
        if bad:
            return f"{transformer} {bad}"
    return ""


def _bad_proof(proof: PlanProof, entries: list[PlanEntry]) -> str:
    counts = (proof.opened, proof.failed, proof.undetermined)
    if min(counts) < 0 or sum(counts) > proof.keys:
        return "has counts that do not add up"
    if proof.failed + proof.undetermined < len(entries):
        return "has more entries than values that do not open"
    if proof.failed < sum(entry.outcome in _FAILED for entry in entries):
        return "has more failures listed than counted"
    newest = sorted((entry.mod_revision for entry in entries), reverse=True)
    if proof.last_failing_mod_revision < newest[0]:
        return "has an entry newer than the last value that does not open"
    others = proof.other_failing_mod_revision
    if not (newest[1] if len(newest) > 1 else 0) <= others <= proof.last_failing_mod_revision:
        return "has revisions that cannot be true together"
    return ""


def _proof(plan: DeletionPlan, transformer: str, key_id: str) -> PlanProof | None:
    return next(
        (p for p in plan.proofs if (p.transformer, p.kms_key_id_sha256) == (transformer, key_id)), None
    )


def _tally(proof: PlanProof, mod_revision: int, opened_before: int) -> Tally:
    """Return the counts for one value; it says nothing itself about when others failed last."""
    newest = proof.last_failing_mod_revision
    return Tally(
        opened=proof.opened,
        failed=proof.failed,
        undetermined=proof.undetermined,
        last_failing=proof.other_failing_mod_revision if mod_revision == newest else newest,
        last_opened=opened_before,
    )


def _key(entry: PlanEntry) -> bytes:
    return (
        base64.b64decode(entry.key_base64, validate=True)
        if entry.key_base64 is not None
        else entry.key.encode()
    )


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _time(text: str) -> datetime:
    found = _parsed(text)
    assert found is not None  # load_plan has seen to it
    return found
