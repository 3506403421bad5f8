"""``etcdfix compare``, ``copies``, ``doctor`` and ``namespace``: looks at the whole of an etcd."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.inputs import what_to_read
from etcdfix.cli.keys import wanted_scope
from etcdfix.cli.look import (
    ExitCode,
    api_access,
    open_look,
    read_files,
    record_paths,
    refuse_unseen,
    report_exit_code,
    report_place,
    where_to_look,
)
from etcdfix.cli.options import (
    FILE,
    access_options,
    audit_log_option,
    backup_dirs_option,
    etcd_data_options,
    look_options,
    reading_options,
    report_options,
    scope_options,
    where_else_options,
)
from etcdfix.cli.output import say
from etcdfix.cli.progress import progress_of
from etcdfix.commands.compare import compare_members, compare_sources
from etcdfix.commands.copies import CopiesRequest, find_copies
from etcdfix.commands.doctor import Doctor
from etcdfix.commands.namespace import concerns_namespace, has_findings, namespace_report, terminating_names
from etcdfix.commands.opening import nothing_examined, open_plugins
from etcdfix.model.errors import ConfigurationError, ObjectNotFound
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.origin import shown_word
from etcdfix.report.render import CASE_FORMS
from etcdfix.report.saved_report import load_report
from etcdfix.sources.base import has_keys
from etcdfix.sources.live import LiveSource
from etcdfix.sources.snapshot import SnapshotSource


@click.command("compare", cls=Command)
@scope_options
@click.option(
    "--with-snapshot", type=FILE, metavar="FILE",
    help="Compare with this earlier snapshot, not member with member. You see what was added, removed and changed, and "
    "what can no longer be read.",
)  # fmt: skip
@etcd_data_options
@reading_options
@report_options()
def compare(*, with_snapshot: Path | None, **options: Any) -> int:
    """Show which keys differ between the members of etcd, or between two moments. Reads only.

    etcdfix reads every key in scope from each member, and examines the copies that differ.

    With --with-snapshot FILE it compares an earlier snapshot with the live etcd or with another snapshot: etcdfix
    compare --with-snapshot monday.db --snapshot tuesday.db

    Name resources, key prefixes or keys as for scan. Without names, it compares everything.
    """
    wanted = wanted_scope(options)
    if options["snapshot"] is not None and with_snapshot is None:
        raise ConfigurationError(
            "a snapshot is the copy of one member: there is nothing to compare it with",
            hint="name an earlier one with --with-snapshot FILE, or the live etcd with --endpoints",
        )
    with open_look(options, wanted, besides=(with_snapshot,)) as look:
        reading = look.inputs.reading(look.configuration)
        means: dict[str, Any] = {"plugins": look.plugins, "progress": progress_of(look.source)}
        if with_snapshot is None:
            assert isinstance(look.source, LiveSource)  # what open_source gives without a snapshot
            report, ended = compare_members(
                look.source, reading, wanted, revision=look.inputs.revision, say=say, **means
            )
        else:
            path = shown_word(str(with_snapshot))
            with SnapshotSource(with_snapshot, salvage=look.inputs.salvage) as earlier:
                report, ended = compare_sources(
                    earlier, look.source, reading, wanted, earlier_path=path, **means
                )
        if not report.keys and report.complete and not has_keys(look.source, reading.layout):
            raise nothing_examined(look.source, reading.layout)
        return look.tell(report, ended, reading.run)


@click.command("copies", cls=Command)
@scope_options
@click.option(
    "--from-report", type=FILE, metavar="FILE",
    help="Look for what this report of etcdfix scan found (json or jsonl).",
)  # fmt: skip
@where_else_options
@look_options()
def copies(*, from_report: Path | None, **options: Any) -> int:
    """Find every copy of objects that cannot be read, or were deleted lately. Reads only.

    Run this before you delete anything. The best copy of each object comes first. -o wide shows the command that puts a
    copy back. GOOD: the copy reads, and it is proven to be of this object. DOUBTFUL: it reads, but something is not
    certain. UNUSABLE: it does not read, or it is of another object.

    etcdfix always looks into what etcd, the snapshot or kine still holds, and into its backups. API servers compact
    etcd every five minutes, so look soon. --in and --kubeconfig add places. A log or snapshot counts only if it has the
    same history as etcd.

    Name keys, resources or key prefixes as for scan. Without names, it looks for everything. If you name a key, you see
    its copies although its value reads.
    """
    wanted = wanted_scope(options)
    if from_report is not None and not wanted.everything:
        raise click.UsageError("--from-report names the objects already: leave the others out")
    report = load_report(from_report) if from_report is not None else None
    records, places = record_paths(options), where_to_look(options)
    keys = report.findings if report is not None else ()
    with open_look(options, wanted, keys=keys, besides=(from_report,), places=places.named) as look:
        request = CopiesRequest(
            **look.reading_fields(api=places.api, places=records),
            scope=wanted,
            report=report,
            places=places,
            records=records,
        )
        result = find_copies(look.source, request, candidates=look.candidates, **look.means)
        if result.nothing_there:
            reasons = result.report.incomplete_reasons
            raise result.ended or nothing_examined(look.source, request.layout, reasons)
        return look.tell(result.report, result.ended, request.run)


@click.command("namespace", cls=Command)
@click.argument("name")
@look_options()
def namespace(*, name: str, **options: Any) -> int:
    """Explain why a namespace does not finish deleting, and in which order to act. Reads only.

    You see whether the namespace is Terminating and since when, and what holds it: objects that cannot be read (each
    one fails every LIST of its type, in all namespaces), pods that no kubelet ends, finalizers, missing APIs, webhooks
    that do not answer, and objects that wait for one another. A numbered list of commands follows: first what holds all
    namespaces, then this one, pods before the rest. A deletion in the list is a dry run.
    """
    if not name or "/" in name:
        raise ConfigurationError(f"{name!r} is not a namespace name", hint="etcdfix namespace shop")
    with open_look(options, each_from_its_own=True) as look:
        concerns = concerns_namespace(StorageLayout(look.inputs.etcd_prefix), name)
        found, report = look.index(concerns, partial(namespace_report, name=name))
        if report is None:
            refuse_unseen(f"namespace {name!r}", found.index.problems, found.ended)
            hint = (
                f"these are Terminating: {', '.join(dying[:5])}"
                if (dying := terminating_names(found))
                else ""
            )
            raise ObjectNotFound(f"namespace {name!r}: not found, and nothing is in it", hint=hint)
        code = look.tell(report, found.ended, found.request.run)
    # What is Active does not hang, though something in it may be held.
    return code if code != ExitCode.FINDINGS or has_findings(report) else ExitCode.NOTHING_WRONG


@click.command("doctor", cls=Command)
@look_options(tuple(CASE_FORMS))
@access_options
@backup_dirs_option
@audit_log_option
def doctor(**options: Any) -> int:
    """Check everything that the other commands need, and say what to do about what is wrong.

    It checks endpoints, certificates, versions, members, alarms, space, clocks, history, the encryption configuration
    and which of its keys open something, backup directories, the audit log, and the rights of the etcd user and of the
    kubeconfig's user.

    It only reads etcd. In each backup directory and beside the audit log, it writes a file and removes it.
    """
    api = api_access(options)
    inputs, configuration = what_to_read(options)
    with (
        report_place(options, (*read_files(inputs), options["kubeconfig"])) as place,
        open_plugins(inputs, configuration) as plugins,
    ):
        doctor = Doctor(
            inputs=inputs,
            configuration=configuration,
            places=record_paths(options),
            api=api,
            plugins=plugins,
            progress=progress_of,
            jobs=options["jobs"],
        )
        report = doctor.examine()
        place.show(report, inputs.run_options())
    return report_exit_code(report, doctor.ended)
