"""``etcdfix encryption recover``: a lost EncryptionConfiguration out of the datastore of k3s or RKE2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.opened import read_files
from etcdfix.cli.options import FILE, reading_options, source_options, what_to_read
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.output_options import report_options
from etcdfix.cli.places import record_paths
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import report_place
from etcdfix.cli.scope import scope_options, wanted_scope
from etcdfix.encryption.server_token import EMPTY_TOKEN, load_token
from etcdfix.errors import ConfigurationError
from etcdfix.operations.look.encryption.bootstrap_log import read_logs
from etcdfix.operations.look.encryption.recover import RecoverRequest, find_configurations, try_recovered
from etcdfix.operations.look.encryption.recovered_files import save_configurations
from etcdfix.operations.opening import open_plugins, open_source

MEANINGS: dict[int, str] = {
    ExitCode.NOTHING_WRONG: "recovered, and together they open everything that was tried",
    ExitCode.FINDINGS: "nothing was recovered, or something is opened by none of them",
    ExitCode.USAGE: "usage or configuration error; a token file that cannot be read",
    ExitCode.INCOMPLETE: "could not be told, or not everything was read (wins over 1)",
    4: "--save-dir is not safe, or the audit log that was named cannot take the record: nothing was written, or the "
    "error says what was",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **{int(code): text for code, text in ENDED_EARLY.items()},
}


@click.command("recover", cls=Command, epilog=epilog(MEANINGS))
@scope_options
@click.option(
    "--token-file", "token_files", type=FILE, multiple=True, required=True, metavar="FILE",
    envvar="ETCDFIX_TOKEN_FILE",
    help="A file with the token of a server, - for standard input (may be repeated). On a server it is "
    "/var/lib/rancher/k3s/server/token, or the same under rke2.",
)  # fmt: skip
@click.option(
    "--wal", "logs", type=FILE, multiple=True, metavar="DIR",
    help="Look into this write-ahead log, too: a member's member/wal, live or copied, with snap/db beside it; one for "
    "each member. It may reach further back than a compaction.",
)  # fmt: skip
@click.option(
    "--save-dir", type=FILE, metavar="DIR", envvar="ETCDFIX_SAVE_DIR",
    help="Write what is recovered here, mode 0600, one file each; the directory is yours alone.  [default: nothing is "
    "written]",
)  # fmt: skip
@click.option(
    "--audit-log", type=FILE, metavar="FILE", envvar="ETCDFIX_AUDIT_LOG",
    help="With --save-dir: record it here, or write nothing.  [default: audit.jsonl in /var/lib/etcdfix for root, else "
    "in $XDG_STATE_HOME/etcdfix; without it where that cannot be written, and this is said]",
)  # fmt: skip
@source_options
@reading_options
@report_options()
def command(
    *,
    scope: tuple[str, ...],
    token_files: tuple[Path, ...],
    logs: tuple[Path, ...],
    save_dir: Path | None,
    audit_log: Path | None,
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    output: str,
    output_file: Path | None,
    **options: Any,
) -> int:
    """Recover EncryptionConfigurations that k3s or RKE2 kept in the datastore, and say what each of them opens.

    Servers of k3s and RKE2 keep their files in the datastore too, under /bootstrap/, encrypted with the server's token.
    So a snapshot and the token give the encryption keys back. Every value that is still kept there is looked at, those
    of deleted keys too, and with --wal those of a write-ahead log. Each configuration is tried as etcdfix encryption
    try does it, on what does not open with --encryption-config (without one: on everything that is encrypted);
    nothing is written for that.

    The data there holds the keys of every CA of the cluster: the EncryptionConfiguration is taken out of it, and
    nothing else. Neither a token nor its place in the datastore is ever shown; encryption keys are named by
    fingerprints.

    The Nodes' annotation encryption-config-hash names the configuration that the servers run with; only that one is
    today's. The others open what was written with them. A snapshot that was taken during a rotation may lack the new
    key.

    With --save-dir, each configuration is written to a file, which is marked: no command of etcdfix changes anything by
    it, but it may be a --candidate-config, and the --encryption-config of every command that only looks.
    """
    wanted = wanted_scope(scope, namespaces, all_namespaces=all_namespaces)
    inputs, configuration = what_to_read(options, scope=wanted)
    if logs and inputs.kine is not None:
        raise ConfigurationError(
            "--wal is of etcd, and --kine of SQLite: no log of one is of the other",
            hint="leave one of them out",
        )
    tokens = [load_token(path) for path in token_files]
    for token in tokens:
        for warning in token.warnings:
            say(warning)
    request = RecoverRequest(
        **inputs.reading_fields(configuration, places=record_paths({"audit_log": audit_log})),
        tokens=(*(form for token in tokens for form in token.tokens), EMPTY_TOKEN),
        token_files=tuple(token.path for token in tokens),
        scope=wanted,
        write_ahead_logs=tuple(map(str, logs)),
    )
    with (
        open_source(inputs, say=say) as source,
        report_place(output_file, (*read_files(inputs), *token_files), output) as place,
    ):
        logged = read_logs(logs, source, request, request.tokens, progress=progress_of(source))
        found = find_configurations(source, request, logged)
        saved = None
        if save_dir is not None:
            saved = save_configurations(
                found,
                save_dir,
                source.describe(),
                audit_log=audit_log.absolute() if audit_log is not None else None,
                etcd_user=inputs.etcd_user,
            )
        with open_plugins(inputs, configuration, *found.usable) as plugins:
            report, ended = try_recovered(
                source, request, found, saved=saved, plugins=plugins, progress=progress_of(source)
            )
        place.show(report, request.run)
    say_incomplete(report.incomplete_reasons)
    if ended is not None:
        return ended.exit_code
    if not report.complete:
        return ExitCode.INCOMPLETE
    everything = report.tried is not None and report.opened == report.tried
    return ExitCode.NOTHING_WRONG if everything else ExitCode.FINDINGS
