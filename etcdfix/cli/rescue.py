"""``etcdfix rescue``: save what running API servers still have in memory of objects that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from etcdfix.cli.command import Command
from etcdfix.cli.inputs import gather_inputs, what_to_read
from etcdfix.cli.keys import is_key, named_key, wanted_namespace
from etcdfix.cli.look import api_access, record_paths, report_exit_code, report_place
from etcdfix.cli.options import (
    FILE,
    access_options,
    audit_log_option,
    namespace_options,
    reading_options,
    report_options,
    source_options,
    syslog_option,
)
from etcdfix.cli.output import require_output, say, say_incomplete
from etcdfix.cli.progress import with_progress
from etcdfix.commands.opening import open_examiner, open_source
from etcdfix.commands.render_report import run_of
from etcdfix.commands.rescue import RescueRequest, run_rescue
from etcdfix.commands.rescuing.objects import Target, targets_in, targets_of_keys, targets_of_report
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.scope import ScopeRequest, builtin_key, parse_object, split_words
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.saved_report import SavedReport, load_report


@click.command("rescue", cls=Command)
@click.argument("words", nargs=-1, metavar="[RESOURCE|TYPE/NAME|KEY]...")
@namespace_options
@click.option(
    "--from-report", type=FILE, metavar="FILE",
    help="Save every object that this report of etcdfix scan (json) calls unreadable.",
)  # fmt: skip
@click.option(
    "--rescued", type=FILE, required=True, metavar="DIR",
    help="Directory for the files. It is created with mode 0700. An earlier rescue in it goes on.",
)  # fmt: skip
@access_options
@audit_log_option
@syslog_option
@source_options
@reading_options
@report_options()
def command(
    *,
    words: tuple[str, ...],
    from_report: Path | None,
    rescued: Path,
    **options: Any,
) -> int:
    """Save objects that cannot be read from the memory of running API servers. Reads only.

    An API server that ran when an encryption key was lost still holds the objects in memory. A restart ends that, and
    so does one deletion of an unreadable object. Restart nothing, delete nothing, and run this first.

    If you name a RESOURCE, etcdfix saves each of its objects that does not open in etcd. If you name a KEY, or
    TYPE/NAME of a built-in type, it does not look into etcd first.

    etcdfix asks each server for a few objects in the ordinary way. If a server reads them, only a configuration is
    wrong, and the command stops. Otherwise it asks for each object, ten a second, until a server returns the version
    that etcd holds. Each answer is one file with mode 0600. THE FILES HOLD THE CONTENTS, ALSO OF SECRETS. The audit log
    records the start and the digest of each file. Nothing is written to etcd or to the API.

    You can stop the command at any time. Run it again to go on.
    """
    if bool(words) is (from_report is not None):
        raise click.UsageError("name what to save: RESOURCE, TYPE/NAME or KEY, or --from-report FILE")
    namespace = wanted_namespace(options, key=all(map(is_key, words)))
    require_output()
    api = api_access(options)
    if api is None:
        raise click.UsageError(
            "name as whom to ask: --kubeconfig FILE; its server is asked, and those beside it"
        )
    places = record_paths(options)
    request = RescueRequest(
        targets=[],
        words=words,
        api=api,
        cluster=ClusterIdentity(),
        directory=rescued,
        places=places,
    )
    if from_report is not None:
        request = _of_report(request, load_report(from_report))
    else:
        request = _of_words(request, options, namespace or "")
    result = run_rescue(request, say=say, progress=_progress)
    with report_place(options, (from_report, api.kubeconfig)) as place:
        place.show(result.report, request.run)
    for warning in result.report.warnings:
        say(f"warning: {warning}")
    say_incomplete(result.report.incomplete_reasons)
    return report_exit_code(result.report, result.ended)


def _of_words(request: RescueRequest, options: dict[str, Any], namespace: str) -> RescueRequest:
    parts = [part for word in request.words for part in ([word] if is_key(word) else split_words(word))]
    kinds = tuple(part for part in parts if not is_key(part) and "/" not in part)
    scope = ScopeRequest(kinds, (), (namespace,) if namespace else ())
    if kinds:
        inputs, configuration = what_to_read(options, scope)
    else:
        inputs, configuration = gather_inputs(options, scope), None
    layout = StorageLayout(inputs.etcd_prefix)
    keys = [
        named_key(part) if is_key(part) else builtin_key(parse_object(part, namespace), layout)
        for part in parts
        if part not in kinds
    ]
    targets = {target.key: target for target in targets_of_keys(keys, layout)}
    cluster = request.cluster
    if kinds:
        with (
            open_source(inputs, say=say) as source,
            open_examiner(source, inputs, configuration) as examiner,
        ):
            targets |= {target.key: target for target in targets_in(source, examiner, scope)}
            cluster = ClusterIdentity.by_uid(examiner.kube_system_uid(source) or "")
    return msgspec.structs.replace(
        request,
        targets=[targets[key] for key in sorted(targets)],
        cluster=cluster,
        run=inputs.run_options(api=request.api, places=request.places),
    )


def _of_report(request: RescueRequest, report: SavedReport) -> RescueRequest:
    """Return what a report names, with the options under which it was made, as far as it tells."""
    run = msgspec.structs.replace(run_of(report), servers=request.api.words)
    return msgspec.structs.replace(
        request,
        targets=targets_of_report(report),
        words=("--from-report", report.path),
        cluster=ClusterIdentity.by_uid(report.header.source.kube_system_uid or ""),
        report=report,
        run=request.places.repeated_in(run),
    )


def _progress(items: Iterable[Target], count: int) -> Iterable[Target]:
    return with_progress(items, estimate=count, label="objects", every=1)
