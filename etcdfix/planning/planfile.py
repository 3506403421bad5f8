"""A plan as a file: sealed against accidents, loaded with care, and what it still proves."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.model import StoredValue
from etcdfix.remediation.pattern import Pattern, Tally
from etcdfix.reports.model import API_VERSION
from etcdfix.reports.plan_model import KIND, DeletionPlan, PlanEntry, PlanProof
from etcdfix.verdicts.standing import FAILED

MOST_AGE: Final = timedelta(minutes=15)
_MOST_BYTES: Final = 1 << 29
_AGAIN: Final = "make a new one: etcdfix plan --from-report REPORT -o json --output-file FILE"


def sealed(plan: DeletionPlan) -> DeletionPlan:
    """Return the plan with the digest of its own content."""
    return msgspec.structs.replace(plan, content_sha256=_digest(plan))


def _digest(plan: DeletionPlan) -> str:
    bare = msgspec.structs.replace(plan, content_sha256="")
    return f"sha256:{hashlib.sha256(msgspec.json.encode(bare)).hexdigest()}"


def load_plan(path: Path) -> DeletionPlan:
    """Read a plan that was written with ``-o json``.

    Raises:
        ConfigurationError: It cannot be read, it is somebody else's, others may write to it, it is no plan of this
            version, or it was edited.
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
    if _parsed(plan.generated_at) is None:
        raise ConfigurationError(f"{where}: generated_at {plan.generated_at!r} is no time", hint=_AGAIN)
    for entry in plan.entries:
        try:
            _key(entry)
        except ValueError as exc:  # binascii.Error, or characters outside ASCII
            raise ConfigurationError(
                f"{where}: the key_base64 of {entry.key} is not base64", hint=_AGAIN
            ) from exc
    return plan


def proof_for(
    plan: DeletionPlan,
    *,
    stored: StoredValue,
    transformer: str,
    kms_key_id_sha256: str,
    cluster_uid: str,
    cluster_id: str | None,
    etcd_prefix: str,
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
        cluster_id: etcd's own id.
        etcd_prefix: Storage prefix.
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
    if plan.source.unreached:
        return f"{plan.source.unreached} values waited for a KMS plugin when the plan was made"
    if age < timedelta():
        return f"the plan is from the future ({plan.generated_at}): compare the clocks"
    if age > MOST_AGE:
        minutes, most = (int(span.total_seconds() // 60) for span in (age, MOST_AGE))
        return f"the plan is {minutes} minutes old; its counts hold for {most}"
    if not cluster_uid or plan.kube_system_uid != cluster_uid:
        theirs, ours = plan.kube_system_uid or "unknown", cluster_uid or "unknown"
        return f"the plan is of the cluster {theirs}, this one is {ours}"
    if plan.source.cluster_id != cluster_id:
        # The uid of kube-system came along when the snapshot of one was restored into the other.
        return f"the plan is of etcd {plan.source.cluster_id}, this one is {cluster_id}"
    if plan.etcd_prefix.rstrip("/") != etcd_prefix.rstrip("/"):
        return f"the plan is of keys below {plan.etcd_prefix}"
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
    if entry.outcome not in FAILED:
        return "the plan found nothing proven against the value"
    everything, same = (_proof(plan, transformer, key_id) for key_id in ("", kms_key_id_sha256))
    if everything is None or same is None:
        return f"the plan has no counts for {transformer or 'an envelope that nobody knows'}"
    if everything.undetermined:
        return (
            f"{everything.undetermined} values under {transformer} could not be judged when the plan was made"
        )
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


def broken_keys(plan: DeletionPlan) -> frozenset[bytes]:
    """Return the keys of all that a plan found proven broken."""
    return frozenset(_key(entry) for entry in plan.entries if entry.outcome in FAILED)


def _read(path: Path, where: str) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigurationError(f"{where} is no regular file", hint=_AGAIN)
            if status.st_uid not in {os.geteuid(), 0}:
                raise ConfigurationError(
                    f"{where} belongs to somebody else (uid {status.st_uid})", hint=_AGAIN
                )
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ConfigurationError(
                    f"{where}: others may write to it (mode {status.st_mode & 0o777:04o})",
                    hint="chmod go-w it, if you know that nobody did",
                )
            raw = stream.read(_MOST_BYTES + 1)
    except OSError as exc:
        reason = "it is a symbolic link" if exc.errno == errno.ELOOP else exc.strerror
        raise ConfigurationError(f"{where}: {reason}") from exc
    if len(raw) > _MOST_BYTES:
        raise ConfigurationError(f"{where}: larger than any plan", hint=_AGAIN)
    return raw


def _without_waiting(path: str, flags: int) -> int:
    """Open a file, no link; nobody may write to a pipe of that name."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


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
