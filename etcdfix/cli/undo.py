"""``etcdfix undo``: put back exactly what a change replaced or deleted, guarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.accepting import accept_option
from etcdfix.cli.changing import etcd_options, open_change
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import change_output_option
from etcdfix.cli.output import show_preview
from etcdfix.cli.safety import CLUSTER_RULES, DIGEST, EXIT_CODES, change_options
from etcdfix.commands.undo import UndoRequest, run_undo
from etcdfix.operations.change.preview import undo_preview
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.preflight.noencryption import looks_enveloped
from etcdfix.rules import Rule


@click.command("undo", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("backup")
@click.option(
    "--expect-mod-revision", type=click.IntRange(min=1), metavar="N",
    help="Refuse unless what the change put stands at this mod_revision.",
)  # fmt: skip
@click.option(
    "--expect-value-sha256", "value_sha256", type=DIGEST, metavar="sha256:HEX",
    help="Refuse unless the value to put back has this digest. With the digest that the change printed, a backup whose "
    "audit log is lost or broken is undone by itself.",
)  # fmt: skip
@change_options
@change_output_option
@accept_option(
    Rule.UNLISTED_SOURCE, Rule.CLUSTER_BREAKING, Rule.EXPIRED_LEASE, Rule.OTHER_CLUSTER_ID, *CLUSTER_RULES
)
@etcd_options
def command(*, backup: str, value_sha256: str | None, **options: Any) -> int:
    """Undo a change: put back exactly the bytes that it replaced or deleted.

    BACKUP is a file that delete, fix or undo has written. The audit log must list it, and what stands at the key now
    must be what the change put there, or nothing. No encryption configuration is needed. What somebody wrote since is
    never replaced: etcdfix fix KEY --from backup:FILE does that where it cannot be read.
    """
    read: list[Backup] = []

    def named() -> bytes:
        read.append(read_backup(Path(backup).absolute()))
        return read[0].content.key_base64

    with open_change(Verb.UNDO, options, named) as change:
        request = UndoRequest(
            backup=read[0], value_sha256=value_sha256 or "", run=change.run, **change.request
        )
        outcome = run_undo(
            change.cluster,
            request,
            change.confirmer,
            preview=lambda one, why: show_preview(undo_preview(one, why), change.run),
        )
        unread = not change.cluster.configured and looks_enveloped(read[0].content.stored.value)
        return change.teller.tell(outcome, change.run, unread=unread)
