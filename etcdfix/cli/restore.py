"""``etcdfix restore``: put a value back, guarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.change_output import Teller, change_output_option
from etcdfix.cli.confirm import Terminal
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import (
    configuration_of,
    gather_inputs,
    main_etcd_options,
    reading_options,
    target_options,
)
from etcdfix.cli.output import require_output, say
from etcdfix.cli.progress import progress_of
from etcdfix.cli.safety import (
    EXIT_CODES,
    acceptances,
    api_access,
    change_options,
    member_options,
    named_digest,
    one_key,
    record_paths,
    require_reason,
    risk_options,
    show,
)
from etcdfix.cli.variables import ChangingCommand
from etcdfix.operations.change.candidate import Candidate
from etcdfix.operations.change.preview import restore_preview_lines
from etcdfix.operations.change.restore import RestoreRequest, run_restore
from etcdfix.operations.opening import open_cluster
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.preflight.noencryption import looks_enveloped

_PATH = click.Path(path_type=Path)


@click.command("restore", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("backup_or_key", required=False, metavar="[BACKUP|KEY]")
@click.option(
    "--from-snapshot",
    type=_PATH,
    metavar="FILE",
    help="Take the value of KEY from this snapshot instead of a backup.",
)
@click.option(
    "--from-revision", type=click.IntRange(min=1), metavar="N",
    help="Take the value that KEY had at this revision, if etcd still keeps it.",
)  # fmt: skip
@click.option(
    "--replace-mod-revision", type=click.IntRange(min=1), metavar="N",
    help="Replace what is there now, if it stands at this mod revision and could be deleted, "
    "or was put there instead of this backup.",
)  # fmt: skip
@click.option(
    "--accept-unlisted-source",
    is_flag=True,
    help="Take a value that is no backup of this audit log, or a revision of which nothing shows that it is of the "
    "same object.",
)
@click.option(
    "--expect-value-sha256", "candidate_sha256", metavar="sha256:HEX", default="",
    help="Refuse unless the value to put back has this digest. With the digest that the deletion printed, a backup "
    "whose audit log is lost or broken restores by itself.",
)  # fmt: skip
@click.option("--without-lease", is_flag=True, help="Put it back without the lease that it had.")
@change_options
@change_output_option
@member_options
@risk_options
@target_options
@main_etcd_options
@reading_options
def command(
    *,
    backup_or_key: str | None,
    key_base64: str | None,
    from_snapshot: Path | None,
    from_revision: int | None,
    output: str,
    **options: Any,
) -> int:
    """Put a value back at its key: from a backup, a snapshot, or an earlier revision.

    BACKUP is a file that delete, restore, reencrypt or repair has written: the undo, for which no encryption
    configuration is needed. With --from-snapshot or --from-revision name the KEY instead. The key must be absent, or
    --replace-mod-revision says what may be replaced.
    """
    require_reason(options)
    require_output()
    if from_snapshot is not None and from_revision is not None:
        raise click.UsageError("--from-snapshot and --from-revision name two different sources")
    with Teller(
        Verb.RESTORE, output, dry_run=options["dry_run"], cluster_name=options["cluster_name"]
    ) as teller:
        return _restore(teller, backup_or_key, key_base64, from_snapshot, from_revision, options)


def _restore(
    teller: Teller,
    backup_or_key: str | None,
    key_base64: str | None,
    from_snapshot: Path | None,
    from_revision: int | None,
    options: dict[str, Any],
) -> int:
    api = api_access(options)
    if from_snapshot is None and from_revision is None:
        if backup_or_key is None or key_base64 is not None:
            raise click.UsageError("name the BACKUP, or a key with --from-snapshot FILE or --from-revision N")
        candidate = Candidate.of_file(Path(backup_or_key))
        key = candidate.stored.key
    else:
        key = one_key(backup_or_key, key_base64)
        candidate = None
    teller.key = key
    inputs = gather_inputs(options, key=key)
    with open_cluster(inputs, configuration_of, say=say) as cluster:
        if candidate is None:
            candidate = (
                Candidate.of_snapshot(cluster, key, from_snapshot)
                if from_snapshot is not None
                else Candidate.of_revision(cluster, key, from_revision or 0)
            )
        outcome = run_restore(
            cluster,
            RestoreRequest(
                candidate=candidate,
                reason=options["reason"],
                replace_mod_revision=options["replace_mod_revision"],
                unlisted_source=options["accept_unlisted_source"],
                value_sha256=named_digest(options["candidate_sha256"]),
                without_lease=options["without_lease"],
                accepted=acceptances(options),
                record_paths=record_paths(options),
                api=api,
                etcd_user=inputs.etcd_user,
                dry_run=options["dry_run"],
            ),
            Terminal(yes=options["yes"]),
            preview=lambda shown: show(restore_preview_lines(cluster, shown), err=True),
            progress=progress_of(cluster.source),
        )
        unread = not cluster.configured and looks_enveloped(candidate.stored.value)
        return teller.tell(Result.RESTORED, outcome, inputs.same_again(), unread=unread)
