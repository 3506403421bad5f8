"""Rewrites a value that today's configuration cannot read, and a candidate configuration can.

The contents stay as they are, byte for byte; only the envelope changes, to the one that API servers write today.
"""

from __future__ import annotations

from collections.abc import Callable

from etcdfix.examine import Examiner
from etcdfix.model import Outcome
from etcdfix.operations.change.sealing import (
    find_proof,
    how_to_prove,
    refuse_unencrypted,
    seal,
    unproven_message,
)
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.change import (
    Change,
    ChangeRequest,
    Confirmer,
    Rewritable,
    carry_out,
)
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.places import place_warnings
from etcdfix.remediation.preflight.api_servers import check_api_servers
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.target import (
    check_writable,
    read_target,
    require_alive,
    require_write_key,
)
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import display
from etcdfix.text.commands import Command, RunOptions
from etcdfix.verdicts.examination import Examination


class ReencryptRequest(ChangeRequest, frozen=True, kw_only=True):
    """One re-encryption."""

    key: bytes


class ReencryptPreview(Rewritable, frozen=True, kw_only=True):
    """What is shown before a value is rewritten.

    Attributes:
        candidate: What the candidate configuration says of it: readable.
        write_transformer: What it will be written with.
        proof: Key of another object that is stored under that already; b"" where none was needed.
    """

    candidate: Examination
    write_transformer: str
    proof: bytes


def run_reencrypt(
    cluster: Cluster,
    candidate: Examiner,
    request: ReencryptRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[ReencryptPreview], None],
    step: Step = no_step,
) -> ChangeOutcome:
    """Rewrite one value under today's write key, or find out whether it could be.

    The cluster is read with today's configuration, ``candidate`` with the other one.

    Raises:
        EtcdfixError: As of :func:`~etcdfix.remediation.change.carry_out`; nothing was changed.
    """
    key = request.key
    step("check: configuration")
    require_write_key(cluster)
    target = read_target(cluster, key, request.accepted, step)
    landmarks, reading, stored = target
    step("check: examine")
    today = cluster.examiner.examine(stored)
    _check_today(today)
    found = candidate.examine(stored)
    plaintext = candidate.plaintext(found)
    if found.verdict.outcome is not Outcome.READABLE or found.verdict.cause is not None or plaintext is None:
        raise refuse(
            Rule.NOT_READABLE,
            f"under the candidate configuration {display(key)} is {found.verdict.outcome}: {found.verdict.message}",
            hint="find the configuration, or the key, that it was written with",
        )
    identity, warnings = check_writable(
        cluster, target, request.accepted, request.record_paths.directories, step
    )
    step("check: write key")
    sealed = seal(cluster, key, today.directory.group_resource, plaintext)
    # What today's configuration reads without a key is never rewritten, so the value has an envelope now.
    refuse_unencrypted(sealed)
    paths = request.record_paths
    proof = find_proof(cluster, today, identity, directories=paths.directories, audit_log=paths.log_path)
    if not proof and not request.accepted.accepts(Rule.UNDEPLOYED_WRITE_KEY):
        raise refuse(
            Rule.UNDEPLOYED_WRITE_KEY,
            unproven_message(today, sealed),
            hint=f"{how_to_prove(today)}. Or, if you are sure: {acceptance(Rule.UNDEPLOYED_WRITE_KEY)}",
        )
    step("check: API servers")
    servers = check_api_servers(today, identity, request.api, request.accepted)
    step("check: lease")
    lease = require_alive(cluster, stored)
    step("check: places")
    warnings += place_warnings(request.record_paths)
    shown = ReencryptPreview(
        reading=reading,
        found=today,
        candidate=found,
        write_transformer=sealed.transformer,
        proof=proof,
        identity=identity,
        lease=lease,
        servers=servers,
        warnings=tuple(warnings),
    )
    return carry_out(
        cluster,
        request,
        Change(
            verb=Verb.REENCRYPT,
            found=today,
            reading=reading,
            identity=identity,
            servers=servers,
            landmarks=landmarks,
            replaced=shown,
            value=sealed.data,
            lease=stored.lease,
            detail=f"from {found.transformer} to {sealed.transformer}, {digest(sealed.data)}",
        ),
        confirmer,
        preview=lambda: preview(shown),
        step=step,
    )


def _check_today(today: Examination) -> None:
    key, verdict = display(today.stored.key), today.verdict
    if today.opened:
        readable = verdict.outcome is Outcome.READABLE
        raise refuse(
            Rule.READABLE,
            f"today's configuration opens {key} ({verdict.message})",
            hint=f"to rewrite it under today's key, let an API server do it: {_replacement(today)}"
            if readable
            else "another encryption key does not change what is wrong inside it; what can be done: etcdfix scan KEY",
        )
    if verdict.outcome is not Outcome.DECRYPT_FAILURE:
        rule = Rule.NOT_AN_OBJECT if verdict.outcome is Outcome.NOT_AN_OBJECT else Rule.UNDETERMINED
        raise refuse(
            rule,
            f"it is not proven that today's configuration cannot read {key}: {verdict.message}",
            hint="the plugin may answer later; see etcdfix scan",
        )


def _replacement(today: Examination) -> str:
    name, namespace = today.name, today.namespace
    if not name or name.startswith("-") or "/" in name or not (name + namespace).isprintable():
        return "kubectl get -o json, and kubectl replace"
    where = ["-n", namespace] if namespace else []
    words = ["kubectl", "get", str(today.directory.group_resource), name, *where, "-o", "json"]
    return Command(words, feeds=["kubectl", "replace", "-f", "-"]).line(RunOptions())
