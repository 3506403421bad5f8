"""``etcdfix encryption recover``: a lost EncryptionConfiguration out of the datastore of k3s or RKE2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes, report_exit_code
from etcdfix.cli.keys import scope_options, wanted_scope
from etcdfix.cli.look import read_files
from etcdfix.cli.options import (
    FILE,
    audit_log_option,
    reading_options,
    report_options,
    source_options,
    what_to_read,
)
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.places import in_option, record_paths
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import report_place
from etcdfix.commands.encryption.recover import RecoverRequest, recover_configurations
from etcdfix.commands.opening import open_plugins, open_source
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.encryption.server_token import EMPTY_TOKEN, load_token
from etcdfix.errors import ConfigurationError

_CODES = reader_codes(
    "recovered, and together they open everything that was tried",
    "nothing was recovered, or something is opened by none of them",
    usage="usage or configuration error; a token file that cannot be read",
    incomplete="could not be told, or not everything was read (wins over 1)",
    refused="--save-dir is not safe, or the audit log that was named cannot take the record: nothing was written, or "
    "the error says what was",
)


@click.command("recover", cls=Command, epilog=_CODES)
@scope_options
@click.option(
    "--token-file", "token_files", type=FILE, multiple=True, required=True, metavar="FILE",
    envvar="ETCDFIX_TOKEN_FILE",
    help="A file with the token of a server, - for standard input (may be repeated). On a server it is "
    "/var/lib/rancher/k3s/server/token, or the same under rke2.",
)  # fmt: skip
@in_option((Place.LOG, Place.SNAPSHOT))
@click.option(
    "--save-dir", type=FILE, metavar="DIR", envvar="ETCDFIX_SAVE_DIR",
    help="Write each configuration to a file in this directory of your own, mode 0600.  [default: write nothing]",
)  # fmt: skip
@audit_log_option(
    "With --save-dir: record it here, or write nothing.  [default: audit.jsonl in /var/lib/etcdfix for root, else "
    "in $XDG_STATE_HOME/etcdfix; no record where that cannot be written]"
)
@source_options
@reading_options
@report_options()
def command(
    *,
    token_files: tuple[Path, ...],
    places: tuple[Named, ...],
    save_dir: Path | None,
    audit_log: Path | None,
    **options: Any,
) -> int:
    """Recover EncryptionConfigurations that k3s or RKE2 keep in the datastore, and show what each of them opens.

    Servers of k3s and RKE2 keep their files under /bootstrap/, encrypted with the server's token. A snapshot and the
    token give the encryption keys back. Every value that is still kept there is read, also those of deleted keys. Each
    configuration is then tried on what does not open with --encryption-config; without one, on every encrypted value.

    Only EncryptionConfigurations are taken out of that data, which also holds the keys of every CA. No token and no key
    is ever shown. The Nodes' annotation encryption-config-hash names the configuration that the servers run with.

    With --save-dir each configuration is written to a file. You can read with it (--encryption-config, --in
    candidate:FILE), but etcdfix changes nothing while it is the --encryption-config.
    """
    wanted = wanted_scope(options)
    inputs, configuration = what_to_read(options, scope=wanted)
    logs = [named for named in places if named.place is Place.LOG]
    if logs and inputs.kine is not None:
        raise ConfigurationError(
            f"--in {logs[0]} is a log of etcd, and --kine reads SQLite: no log of one is of the other",
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
        places=places,
        save_dir=save_dir,
        audit_log=audit_log,
        etcd_user=inputs.etcd_user,
    )
    besides = (*read_files(inputs), *token_files)
    with (
        open_source(inputs, say=say) as source,
        report_place(options["output_file"], besides, options["output"]) as place,
    ):
        report, ended = recover_configurations(
            source,
            request,
            lambda *recovered: open_plugins(inputs, configuration, *recovered),
            progress=progress_of(source),
        )
        place.show(report, request.run)
    say_incomplete(report.incomplete_reasons)
    return report_exit_code(report, ended)
