"""A plan as a file: sealed against accidents, loaded with care, and what it expects of a key.

Whoever owns the file can change it and seal it anew. So it may add a refusal to a deletion, and takes none away: all
that permits is looked at live.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import stat
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_PLAN_BYTES, read_input
from etcdfix.remediation.preflight.expectation import Expectation, refuse_plan
from etcdfix.remediation.rules import Rule, refuse
from etcdfix.reports.model import API_VERSION
from etcdfix.reports.plan_model import DECLARE_KEY_LOST, KIND, DeletionPlan, LeftOut, PlanEntry, meaning
from etcdfix.storagekey import display

MOST_AGE: Final = timedelta(minutes=15)
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
    listed: list[PlanEntry | LeftOut] = [*plan.entries, *plan.left_out]
    for entry in listed:
        try:
            _key(entry)
        except ValueError as exc:  # binascii.Error, or characters outside ASCII
            raise ConfigurationError(
                f"{where}: the key_base64 of {entry.key} is not base64", hint=_AGAIN
            ) from exc
    return plan


def expectation_of(
    plan: DeletionPlan,
    key: bytes,
    *,
    cluster_id: str | None,
    etcd_prefix: str,
    config_sha256: str,
    assumed_release: str,
    flags: Collection[str],
    again: str,
    now: datetime,
) -> Expectation:
    """Return what a plan expects of a key, where the plan fits at all.

    Args:
        plan: As loaded.
        key: To delete.
        cluster_id: etcd's own id.
        etcd_prefix: Storage prefix.
        config_sha256: ``sha256:<hex>`` of the EncryptionConfiguration in use.
        assumed_release: ``1.36``, or "" for every known release.
        flags: What the operator accepts and declares, as given.
        again: The command that makes a new plan.
        now: With a time zone.

    Raises:
        RefusedByRule: The plan is old, or of something else, or it speaks against the deletion of this key.
    """
    why = _misfit(plan, cluster_id, etcd_prefix, config_sha256, assumed_release, now)
    if why:
        raise refuse_plan(why, again)
    left_out = next((left for left in plan.left_out if _key(left) == key), None)
    if left_out is not None:
        raise refuse_plan(f"the plan leaves {display(key)} out ({left_out.why}): {left_out.detail}", again)
    entry = next((entry for entry in plan.entries if _key(entry) == key), None)
    if entry is None:
        raise refuse_plan(f"the plan does not list {display(key)}", again)
    for need in entry.needs:
        if not _is_given(need, flags):
            raise refuse(
                Rule.PLAN,
                f"the plan says that the deletion of {display(key)} needs {need}",
                hint=f"add it, if {meaning(need)}",
            )
    return Expectation(
        kube_system_uid=plan.kube_system_uid or "",
        mod_revision=entry.mod_revision,
        value_sha256=entry.value_sha256,
        outcome=entry.outcome,
        cause=entry.cause,
        transformer=entry.transformer,
        kms_key_id_sha256=entry.kms_key_id_sha256,
        again=again,
    )


def _misfit(
    plan: DeletionPlan,
    cluster_id: str | None,
    etcd_prefix: str,
    config_sha256: str,
    assumed_release: str,
    now: datetime,
) -> str:
    """Return why a plan says nothing about this etcd as it is now, in one sentence; "" where it does."""
    age = now - _time(plan.generated_at)
    if not plan.source.newest:
        return "the plan was made from a snapshot or an old revision, which says nothing about now"
    if age < timedelta():
        return f"the plan is from the future ({plan.generated_at}): compare the clocks"
    if age > MOST_AGE:
        minutes, most = (int(span.total_seconds() // 60) for span in (age, MOST_AGE))
        return f"the plan is {minutes} minutes old; it holds for {most}"
    if plan.source.cluster_id != cluster_id:
        # The uid of kube-system came along when the snapshot of one was restored into the other.
        return f"the plan is of etcd {plan.source.cluster_id}, this one is {cluster_id}"
    if plan.etcd_prefix.rstrip("/") != etcd_prefix.rstrip("/"):
        return f"the plan is of keys below {plan.etcd_prefix}, and here they are below {etcd_prefix}"
    planned = plan.encryption_config.sha256 if plan.encryption_config is not None else ""
    if planned != config_sha256:
        return "the plan was made with another encryption configuration"
    if (plan.kubernetes_version or "") != assumed_release:
        return "the plan was made with another --kubernetes-version"
    return ""


def _is_given(need: str, flags: Collection[str]) -> bool:
    """Say whether a flag was given; how a lost key is named in full, the deletion itself looks at."""
    option = need.partition(" ")[0]
    if option == DECLARE_KEY_LOST:
        return any(flag.startswith(f"{option} ") for flag in flags)
    return need in flags


def _read(path: Path, where: str) -> bytes:
    def check(status: os.stat_result) -> None:
        if status.st_uid not in {os.geteuid(), 0}:
            raise ConfigurationError(f"{where} belongs to somebody else (uid {status.st_uid})", hint=_AGAIN)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigurationError(
                f"{where}: others may write to it (mode {status.st_mode & 0o777:04o})",
                hint="chmod go-w it, if you know that nobody did",
            )

    try:
        return read_input(path, most_bytes=MAX_PLAN_BYTES, follow=False, check=check)
    except OSError as exc:
        reason = "it is a symbolic link" if exc.errno == errno.ELOOP else exc.strerror
        raise ConfigurationError(f"{where}: {reason}", hint=_AGAIN) from exc


def _key(entry: PlanEntry | LeftOut) -> bytes:
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
