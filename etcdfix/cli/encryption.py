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

    Nothing here changes anything in etcd.
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
    """Show which encryption key is needed by how many objects, and which you can remove. Reads only.

    The answer holds for this etcd at the revision that was read. No key can be removed that API servers write with, or
    that values, earlier values, backups (--backup-dir) or snapshots need, or while anything is undetermined or was not
    read. Name every snapshot that you may restore, and one of each other etcd of the cluster (--in).
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
    """Show which candidate opens which of the values that cannot be read today. Reads only.

    Every value that does not open with --encryption-config is tried with each candidate; without a configuration, every
    encrypted value. "Opens" means that the value opens, decodes, and fits its etcd key. "Right key only" counts values
    that were written with a key of the candidate, but do not open: they are damaged, were moved, or name the key
    otherwise.
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

    Every value is examined with today's configuration (--encryption-config) and with the new one. The report says what
    becomes unreadable, readable or stale, by resource and encryption key. The KMS plugins of both are asked.
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
    help="The least bad level that makes the exit code 1.",
)  # fmt: skip
@report_options(tuple(CASE_FORMS))
def check(*, files: tuple[Path, ...], fail_on: str, **options: Any) -> int:
    """Check EncryptionConfigurations, and compare them where you name several. Reads the files alone.

    An error is what API servers refuse, or what one file writes and another file cannot read. A warning is a file that
    does not protect, or does not read, what it seems to: identity first, secrets in no rule, a key that can be guessed,
    two keys of one name. The rest is advice. No key material is shown.

    Several files are those of your control-plane nodes, or one file before and after a change. They are compared
    resource by resource, by the fingerprints of the keys that write and read.
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
@form_option(FORMS, help_text="Form of what is said about it on standard output.")
def merge(*, files: tuple[Path, ...], output_file: Path, audit_log: Path | None, output: str) -> int:
    """Merge EncryptionConfigurations into one file that reads everything that any of them reads.

    Name today's file first: its write keys stay the write keys. The keys of the other files come below them. Two keys
    of one name with different bytes are both kept, and the report says what was decided. Nothing in etcd is changed.

    The new file holds keys and gets mode 0600. You can read with it (--encryption-config, --in candidate:FILE),
    but etcdfix changes nothing while it is the --encryption-config. The audit log takes a record, where it can be
    written; where --audit-log names it, nothing is written without.
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
    help="A file with the token of a server, - for standard input (may be repeated). On a server it is "
    "/var/lib/rancher/k3s/server/token, or the same under rke2.",
)  # fmt: skip
@in_option((Place.LOG, Place.SNAPSHOT))
@click.option(
    "--save-dir", type=FILE, metavar="DIR", envvar="ETCDFIX_SAVE_DIR",
    help="Write each configuration to a file in this directory of your own, mode 0600.  [default: write nothing]",
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
    """Recover EncryptionConfigurations that k3s or RKE2 keep in the datastore, and show what each of them opens.

    Servers of k3s and RKE2 keep their files under /bootstrap/, encrypted with the server's token. A snapshot and the
    token give the encryption keys back. Every value that is still kept there is read, also those of deleted keys. Each
    configuration is then tried on what does not open with --encryption-config; without one, on every encrypted value.

    Only EncryptionConfigurations are taken out of that data, which also holds the keys of every CA. No token and no key
    is ever shown. The Nodes' annotation encryption-config-hash names the configuration that the servers run with.

    Servers can be given what --save-dir writes as it is. etcdfix changes nothing by it (--encryption-config) before
    API servers write with it. The audit log takes a record, as for encryption merge.
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
