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
    help="Compare with this earlier snapshot instead of member with member: what was added, removed and changed, and "
    "what can no longer be read.",
)  # fmt: skip
@etcd_data_options
@reading_options
@report_options()
def compare(*, with_snapshot: Path | None, **options: Any) -> int:
    """Say which keys are not the same on every member of a live etcd, or at two points in time. Reads only.

    Every key in scope is read from each member by itself, and the copies of a key that differ are examined.

    With --with-snapshot FILE, an earlier snapshot is compared with the live etcd or with another snapshot:
    etcdfix compare --with-snapshot monday.db --snapshot tuesday.db

    Name resources, key prefixes or keys as for scan, or nothing for everything.
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
    help="Look for what this report of etcdfix scan found (-o json or jsonl), instead of scanning.",
)  # fmt: skip
@where_else_options
@look_options()
def copies(*, from_report: Path | None, **options: Any) -> int:
    """Find every copy that still exists of what cannot be read, or was deleted lately. Reads only.

    Run it before you delete anything. Of each object the best copy comes first; -o wide has the command that puts
    each back. GOOD: it reads, and is proven to be of this object. DOUBTFUL: it reads, and something is not certain.
    UNUSABLE: it does not read, or is of another object.

    It always looks at what etcd, the snapshot or kine still keeps, and at our backups. API servers compact etcd every
    five minutes, so look soon. --in and --kubeconfig name more places; a log or snapshot counts only where it has the
    same history as what is stored now.

    Name keys, resources or key prefixes as for scan, or nothing for everything. A key that you name is shown even if
    its value reads.
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
    """Explain why a namespace cannot finish deleting, and in which order to act. Reads only.

    Says whether it is Terminating and since when, which objects cannot be read, in it or elsewhere (each fails every
    LIST of its type and so holds every namespace of the cluster), which pods no kubelet ends, which finalizers hold
    what, which APIs are missing, which webhooks nobody answers and which objects wait for one another; then a numbered
    plan of commands: what holds all namespaces first, then the order of the deletion, pods before the rest. Deletions
    in it are dry runs.
    """
    if not name or "/" in name:
        raise ConfigurationError(f"{name!r} is no name of a namespace", hint="etcdfix namespace shop")
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
    """Check everything that the other commands rest on, and say what to do where something is wrong.

    Endpoints, certificates, versions, members, alarms, space, clocks, history, the encryption configuration and which
    of its keys open something, backup directories and audit log, what the etcd user and the kubeconfig's user may do.

    It only reads etcd. It writes one kind of file: in each backup directory and in the directory of the audit log, a
    probe that is removed again at once.
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
