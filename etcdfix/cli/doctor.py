"""``etcdfix doctor``: what would keep etcdfix from its work here, or make it doubtful."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.apiserver.servers import APIAccess
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes, report_exit_code
from etcdfix.cli.look import read_files
from etcdfix.cli.options import FILE, audit_log_option, backup_dirs_option, look_options, what_to_read
from etcdfix.cli.places import record_paths
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import report_place
from etcdfix.commands.doctor import Doctor
from etcdfix.commands.opening import open_plugins
from etcdfix.report.render import CASE_FORMS

_CODES = reader_codes(
    "nothing failed; there may be warnings",
    "a check failed; an etcd that cannot be reached is one",
    incomplete="nothing failed, and something could not be told",
    source="",
)


@click.command("doctor", cls=Command, epilog=_CODES)
@look_options(tuple(CASE_FORMS))
@click.option("--kubeconfig", type=FILE, metavar="FILE", envvar="ETCDFIX_KUBECONFIG",
              help="Ask the API server of the cluster whether its user may delete what cannot be read.")  # fmt: skip
@click.option("--context", metavar="NAME", envvar="ETCDFIX_CONTEXT", help="Context of the kubeconfig.")
@backup_dirs_option()
@audit_log_option()
def command(*, kubeconfig: Path | None, context: str | None, **options: Any) -> int:
    """Check everything that the other commands rest on, and say what to do where something is wrong.

    Endpoints, certificates, versions, members, alarms, space, clocks, history, the encryption configuration and which
    of its keys open something, backup directories and audit log, what the etcd user and the kubeconfig's user may do.

    It only reads etcd. It writes one kind of file: in each backup directory and in the directory of the audit log, a
    probe that is removed again at once.
    """
    if context is not None and kubeconfig is None:
        raise click.UsageError("--context needs --kubeconfig")
    inputs, configuration = what_to_read(options)
    api = APIAccess(kubeconfig, context) if kubeconfig is not None else None
    with (
        report_place(options["output_file"], (*read_files(inputs), kubeconfig), options["output"]) as place,
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
