"""``etcdfix encryption``: what encryption keys are needed for, and what a configuration would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from etcdfix.cli.command import Group
from etcdfix.cli.inputs import NOTHING_NAMED
from etcdfix.cli.keys import wanted_scope
from etcdfix.cli.look import OpenLook, open_look, record_paths, report_place
from etcdfix.cli.options import (
    FILE,
    audit_log_option,
    backup_dirs_option,
    form_option,
    in_option,
    look_options,
    reading_options,
    report_options,
    scope_options,
    source_options,
)
from etcdfix.cli.output import require_output, say
from etcdfix.cli.progress import progress_of
from etcdfix.commands.encryption.check import check_files
from etcdfix.commands.encryption.merge import merge_files, require_new
from etcdfix.commands.encryption.recover import RecoverRequest, recover_configurations
from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.commands.encryption.usage import UsageRequest, encryption_usage
from etcdfix.commands.encryption.what_if import WhatIfRequest, what_if
from etcdfix.commands.opening import open_plugins, open_source
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.encryption.bootstrap import EMPTY_TOKEN, load_token
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.inputs.outputfile import destination
from etcdfix.model.errors import ConfigurationError
from etcdfix.report.configurations import LEVELS
from etcdfix.report.origin import shown_word
from etcdfix.report.render import CASE_FORMS, FORMS, write
from etcdfix.text.commands import RunOptions


@click.group("encryption", cls=Group)
def command() -> None:
    """Check encryption keys and EncryptionConfigurations, before and after a key is lost.

    These commands change nothing in etcd.
    """


def _load(path: Path, name: str) -> EncryptionConfiguration:
    """Return a configuration beside today's, and say what is odd about it."""
    configuration = load_configuration(path)
    for warning in configuration.warnings:
        say(f"{name}: {warning}")
    return configuration


def _whole_fields(look: OpenLook) -> dict[str, Any]:
    """Return the fields of a request that looks at everything, in whichever etcd it is."""
    inputs = look.inputs
    return {
        **look.reading_fields(),
        "overrides": {} if inputs.each_from_its_own else inputs.overrides or {},
        "main_not_read": inputs.file is None and bool(inputs.main_endpoints),
    }


@command.command("usage")
@backup_dirs_option
@in_option((Place.SNAPSHOT,))
@look_options()
def usage(*, backup_dirs: tuple[Path, ...], places: tuple[Named, ...], **options: Any) -> int:
    """Show how many objects need each encryption key, and which keys you can remove. Reads only.

    The answer is true for this etcd at the revision that was read. You cannot remove a key that API servers write with,
    or that a value, an earlier value, a backup (--backup-dir) or a snapshot (--in) needs. While anything is
    undetermined or was not read, you cannot remove any. Name every snapshot that you may restore, and a snapshot of
    each other etcd of the cluster.
    """
    snapshots = tuple(named.path for named in places)
    with open_look(options, each_from_its_own=True, besides=snapshots) as look:
        request = UsageRequest(**_whole_fields(look), backup_directories=backup_dirs, snapshots=snapshots)
        here = msgspec.structs.replace(look.inputs, kine=None, revision=0, salvage=False)
        report, ended = encryption_usage(
            look.source,
            request,
            open_snapshot=lambda path: open_source(msgspec.structs.replace(here, snapshot=path), say=say),
            **look.means,
        )
        return look.tell(report, ended, request.run)


@command.command("try")
@scope_options
@in_option((Place.CANDIDATE,))
@look_options()
def try_(*, places: tuple[Named, ...], **options: Any) -> int:
    """Show which old configuration opens the values that cannot be read today. Reads only.

    etcdfix tries each candidate on every value that does not open with --encryption-config. Without a configuration, it
    tries every encrypted value. "Opens" means that the value decrypts, decodes, and fits its etcd key. "Right key only"
    counts values that a key of the candidate wrote, but that do not open: they are damaged, they were moved, or their
    key has another name now.
    """
    if not places:
        raise ConfigurationError("no candidate was named", hint="name each: --in candidate:FILE")
    wanted = wanted_scope(options)
    names = [shown_word(one.what) for one in places]
    candidates = tuple(
        NamedCandidate(name, _load(one.path, name)) for name, one in zip(names, places, strict=True)
    )
    theirs = [candidate.configuration for candidate in candidates]
    besides = tuple(Path(one.path) for one in theirs)
    with open_look(options, NOTHING_NAMED, *theirs, each_from_its_own=True, besides=besides) as look:
        request = TryRequest(**look.reading_fields(), candidates=candidates, scope=wanted)
        report, ended = try_candidates(look.source, request, **look.means)
        return look.tell(report, ended, request.run)


@command.command("what-if")
@click.option(
    "--new", "new_config", type=FILE, required=True, metavar="FILE", envvar="ETCDFIX_NEW",
    help="The EncryptionConfiguration that you want to deploy.",
)  # fmt: skip
@source_options
@reading_options
@report_options(tuple(CASE_FORMS))
def what_if_(*, new_config: Path, **options: Any) -> int:
    """Show what another configuration would make unreadable, before you deploy it. Reads only.

    etcdfix examines every value with today's configuration (--encryption-config) and with the new one. It says what
    becomes unreadable, readable or stale, by resource and encryption key. It asks the KMS plugins of both.
    """
    new, besides = _load(new_config, str(new_config)), (new_config,)
    with open_look(options, NOTHING_NAMED, new, each_from_its_own=True, besides=besides) as look:
        fields = _whole_fields(look)
        request = WhatIfRequest(**fields, new=new, no_encryption=look.inputs.no_encryption)
        report, ended = what_if(look.source, request, plugins=look.plugins, progress=progress_of(look.source))
        return look.tell(report, ended, request.run)


@command.command("check")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--fail-on", type=click.Choice(LEVELS), default="warning", show_default=True,
    help="Lowest level that leads to exit code 1.",
)  # fmt: skip
@report_options(tuple(CASE_FORMS))
def check(*, files: tuple[Path, ...], fail_on: str, **options: Any) -> int:
    """Check EncryptionConfigurations, and compare several. Reads only these files.

    An error is what API servers refuse, or what one file writes and another cannot read. A warning is a file that
    protects or reads less than it seems to: identity comes first, no rule names secrets, a key can be guessed, two keys
    have one name. The rest is advice. No key material is shown.

    Name the files of your control-plane nodes, or one file before and after a change. etcdfix compares them resource by
    resource, by the fingerprints of the keys that write and read.
    """
    with report_place(options, files) as place:
        report = check_files(files)
        place.show(report)
    failing = LEVELS[: LEVELS.index(fail_on) + 1]
    return int(any(one.level in failing for one in report.findings))


@command.command("merge")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="TODAY OTHER...")
@click.option(
    "--output-file", type=FILE, required=True, metavar="FILE", help="The new file. It must not exist."
)
@audit_log_option
@form_option(FORMS, help_text="Form of the report on standard output.")
def merge(*, files: tuple[Path, ...], output_file: Path, audit_log: Path | None, output: str) -> int:
    """Merge EncryptionConfigurations into one file that reads everything that any of them reads.

    Name today's file first. Its write keys stay the write keys, and the keys of the other files come below them. If two
    keys have one name and different bytes, the new file has both, and the report says so. Nothing in etcd is changed.

    The new file holds keys and gets mode 0600. You can read with it (--encryption-config, --in candidate:FILE). etcdfix
    changes nothing with it before API servers write with it. The audit log records the merge. If you name --audit-log
    and it cannot be written, no file is written.
    """
    require_new(output_file, audit_log)
    require_output()
    report = merge_files(
        files,
        output_file,
        lambda: destination(output_file, files, private=True),
        audit_log=audit_log,
    )
    with destination(None, ()) as stream:
        write(report, output, stream, RunOptions())
        stream.flush()
    return 0


@command.command("recover")
@scope_options
@click.option(
    "--token-file", "token_files", type=FILE, multiple=True, required=True, metavar="FILE",
    envvar="ETCDFIX_TOKEN_FILE",
    help="File with the token of a server; - for standard input (may be repeated). On a server: "
    "/var/lib/rancher/k3s/server/token, or /var/lib/rancher/rke2/server/token.",
)  # fmt: skip
@in_option((Place.LOG, Place.SNAPSHOT))
@click.option(
    "--save-dir", type=FILE, metavar="DIR", envvar="ETCDFIX_SAVE_DIR",
    help="Write each configuration to a file in this directory, with mode 0600.  [default: write nothing]",
)  # fmt: skip
@audit_log_option
@source_options
@reading_options
@report_options()
def recover(
    *,
    token_files: tuple[Path, ...],
    places: tuple[Named, ...],
    save_dir: Path | None,
    audit_log: Path | None,
    **options: Any,
) -> int:
    """Recover EncryptionConfigurations that k3s or RKE2 keep in the datastore. Reads only.

    Servers of k3s and RKE2 keep their files under /bootstrap/, encrypted with the server's token. A snapshot and the
    token give the encryption keys back. etcdfix reads every value that is still there, also those of deleted keys. Then
    it tries each configuration on the values that do not open with --encryption-config, or on every encrypted value.

    That data also holds the keys of every CA. etcdfix takes out EncryptionConfigurations only, and never shows a token
    or a key. The annotation encryption-config-hash of the Nodes names the configuration that the servers run with.

    You can give servers the files of --save-dir as they are. etcdfix changes nothing with such a file before API
    servers write with it. The audit log records the recovery.
    """
    wanted = wanted_scope(options)
    logs = [named for named in places if named.place is Place.LOG]
    if logs and options["kine"] is not None:
        raise ConfigurationError(
            f"--in {logs[0]} is a log of etcd, and --kine reads SQLite: no log of one is of the other",
            hint="leave one of them out",
        )
    tokens = [load_token(path) for path in token_files]
    for warning in (warning for token in tokens for warning in token.warnings):
        say(warning)
    records = record_paths({"audit_log": audit_log})
    with open_look(options, wanted, besides=token_files) as look:
        inputs, configuration = look.inputs, look.configuration
        request = RecoverRequest(
            **look.reading_fields(places=records),
            tokens=(*(form for token in tokens for form in token.tokens), EMPTY_TOKEN),
            token_files=tuple(token.path for token in tokens),
            scope=wanted,
            places=places,
            save_dir=save_dir,
            audit_log=audit_log,
            etcd_user=inputs.etcd_user,
        )
        report, ended = recover_configurations(
            look.source,
            request,
            lambda *recovered: open_plugins(inputs, configuration, *recovered),
            progress=progress_of(look.source),
        )
        return look.tell(report, ended, request.run)
