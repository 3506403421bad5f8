"""``etcdfix restore``: put a value back, guarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.accepting import accept_option
from etcdfix.cli.changing import OpenChange, etcd_options, open_change
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import FILE
from etcdfix.cli.output import show_preview
from etcdfix.cli.output_options import change_output_option
from etcdfix.cli.progress import progress_of
from etcdfix.cli.safety import (
    CLUSTER_RULES,
    DIGEST,
    EXIT_CODES,
    REPLACING_RULES,
    change_options,
    key_lost_option,
    one_key,
)
from etcdfix.operations.change.candidate import Candidate, RestoreRequest
from etcdfix.operations.change.from_log import of_log
from etcdfix.operations.change.preview import restore_preview
from etcdfix.operations.change.restore import run_restore
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.preflight.noencryption import looks_enveloped
from etcdfix.rules import Rule

_SOURCES = ("from_snapshot", "from_revision", "from_wal", "from_object", "from_key")


@click.command("restore", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("backup_or_key", metavar="BACKUP|KEY")
@click.option(
    "--from-snapshot",
    type=FILE,
    metavar="FILE",
    help="Take the value of KEY from this snapshot instead of a backup; with --from-revision, the one it had then.",
)
@click.option(
    "--from-revision", type=click.IntRange(min=1), metavar="N",
    help="Take the value that KEY had at this revision, if etcd still keeps it.",
)  # fmt: skip
@click.option(
    "--from-wal",
    type=FILE,
    metavar="DIR",
    help="Take the newest write of KEY that reads from this write-ahead log: a member's member/wal, or a copy.",
)
@click.option(
    "--entry", type=click.IntRange(min=1), metavar="INDEX",
    help="With --from-wal: take the write of this entry. Needed for one that etcd may have refused.",
)  # fmt: skip
@click.option(
    "--from-object",
    type=FILE,
    metavar="FILE",
    help="Take the object in this file: JSON as the API gave it, or a file of etcdfix rescue. It is written as JSON, "
    "under today's write key.",
)
@click.option(
    "--from-key",
    metavar="OTHER",
    help="Take the bytes of this etcd key, where a tag shows that they were written for KEY. OTHER stays as it is.",
)
@click.option(
    "--replace-mod-revision", type=click.IntRange(min=1), metavar="N",
    help="Replace what is there now, if it stands at this mod revision and could be deleted, "
    "or was put there instead of this backup.",
)  # fmt: skip
@click.option(
    "--expect-value-sha256", "candidate_sha256", type=DIGEST, metavar="sha256:HEX",
    help="Refuse unless the value to put back has this digest. With the digest that the deletion printed, a backup "
    "whose audit log is lost or broken restores by itself.",
)  # fmt: skip
@change_options
@change_output_option
@accept_option(
    *REPLACING_RULES,
    Rule.UNLISTED_SOURCE,
    Rule.UNKNOWN_UID,
    Rule.EXPIRED_LEASE,
    Rule.OTHER_CLUSTER_ID,
    *CLUSTER_RULES,
)
@key_lost_option
@etcd_options
def command(*, backup_or_key: str, **options: Any) -> int:
    """Put a value back at its key, wherever a good copy of it is.

    BACKUP is a file that delete, restore, reencrypt or repair has written: the undo, for which no encryption
    configuration is needed. For every other source name the KEY, and one of --from-snapshot, --from-revision,
    --from-wal, --from-object and --from-key. What comes from there must be readable, and of the object that is at the
    key or was there last. The key must be absent, or --replace-mod-revision says what may be replaced; a value that
    reads is never replaced.
    """  # fmt: skip
    backup: list[Candidate] = []

    def named() -> bytes:
        if _source_of(options):
            return one_key(backup_or_key, options)
        backup.append(Candidate.of_file(Path(backup_or_key)))
        return backup[0].stored.key

    with open_change(Verb.RESTORE, options, named) as change:
        cluster = change.cluster
        candidate = backup[0] if backup else _candidate(change, options)
        outcome = run_restore(
            cluster,
            RestoreRequest(
                candidate=candidate,
                replace_mod_revision=options["replace_mod_revision"],
                value_sha256=options["candidate_sha256"] or "",
                run=change.run,
                **change.request,
            ),
            change.confirmer,
            preview=lambda shown: show_preview(restore_preview(cluster, shown), change.run),
            progress=change.progress,
        )
        unread = not cluster.configured and looks_enveloped(candidate.stored.value)
        return change.teller.tell(outcome, change.run, unread=unread)


def _source_of(options: dict[str, Any]) -> str:
    """Return the option that names a source, "" for none."""
    given = [name for name in _SOURCES if options[name] is not None]
    if given == ["from_snapshot", "from_revision"]:
        given = given[:1]
    if len(given) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in given[:2])
        raise click.UsageError(f"{first} and {second} name two different sources")
    if options["entry"] is not None and given != ["from_wal"]:
        raise click.UsageError("--entry names an entry of a write-ahead log: give --from-wal DIR")
    return given[0] if given else ""


def _candidate(change: OpenChange, options: dict[str, Any]) -> Candidate:
    cluster, key = change.cluster, change.key
    match _source_of(options):
        case "from_snapshot":
            return Candidate.of_snapshot(
                cluster, key, options["from_snapshot"], options["from_revision"] or 0
            )
        case "from_revision":
            return Candidate.of_revision(cluster, key, options["from_revision"])
        case "from_wal":
            return of_log(
                cluster,
                key,
                options["from_wal"],
                options["entry"],
                progress=progress_of(cluster.source),
                run=change.run,
            )
        case "from_object":
            return Candidate.of_object(cluster, key, options["from_object"])
        case _:
            return Candidate.of_key(cluster, key, one_key(options["from_key"], options))
