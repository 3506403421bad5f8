"""``etcdfix undo``: put back exactly what a change replaced or deleted, guarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.changing import open_change
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.options import CLUSTER_RULES, accept_option, change_options, expectation_options
from etcdfix.cli.output import show_preview
from etcdfix.commands.changing.preview import undo_preview
from etcdfix.commands.undo import UndoRequest, run_undo
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.checks.encryption import looks_enveloped
from etcdfix.rules import Rule


@click.command("undo", cls=ChangingCommand)
@click.argument("backup")
@accept_option(
    Rule.UNLISTED_SOURCE, Rule.CLUSTER_BREAKING, Rule.EXPIRED_LEASE, Rule.OTHER_CLUSTER_ID, *CLUSTER_RULES
)
@change_options
@expectation_options
def command(*, backup: str, **options: Any) -> int:
    """Undo a change: put back exactly the bytes that it replaced or deleted.

    BACKUP is a file that delete, fix or undo has written. The audit log must list it, and what stands at the key now
    must be what the change put there, or nothing. No encryption configuration is needed. What somebody wrote since is
    never replaced: etcdfix fix KEY --from backup:FILE does that where it cannot be read.
    """
    read: list[Backup] = []
    expected = options.pop("expect_value_sha256")  # of the value in the backup, not of the present one

    def named() -> bytes:
        read.append(read_backup(Path(backup).absolute()))
        return read[0].content.key_base64

    with open_change(Verb.UNDO, options, named) as change:
        request = UndoRequest(backup=read[0], value_sha256=expected or "", **change.request)
        outcome = run_undo(
            change.cluster,
            request,
            change.confirmer,
            preview=lambda found: show_preview(undo_preview(found), change.run),
        )
        unread = not change.cluster.configured and looks_enveloped(read[0].content.stored.value)
        return change.teller.tell(outcome, change.run, unread=unread)
