"""``etcdfix doctor``: what would keep etcdfix from its work here, or make it doubtful."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.apiserver.servers import APIAccess
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog, report_exit_code
from etcdfix.cli.opened import read_files
from etcdfix.cli.options import FILE, jobs_option, reading_options, source_options, what_to_read
from etcdfix.cli.output_options import report_options
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import report_place
from etcdfix.commands.doctor import Doctor
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.opening import open_plugins
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.render import CASE_FORMS

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing failed; there may be warnings",
    ExitCode.FINDINGS: "a check failed; an etcd that cannot be reached is one",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "nothing failed, and something could not be told",
    **ENDED_EARLY,
}


@click.command("doctor", cls=Command, epilog=epilog(MEANINGS))
@source_options
@reading_options
@jobs_option
@click.option("--kubeconfig", type=FILE, metavar="FILE", envvar="ETCDFIX_KUBECONFIG",
              help="Ask the API server of the cluster whether its user may delete what cannot be read.")  # fmt: skip
@click.option("--context", metavar="NAME", envvar="ETCDFIX_CONTEXT", help="Context of the kubeconfig.")
@click.option("--backup-dir", "backup_dirs", type=FILE, multiple=True, metavar="DIR", envvar="ETCDFIX_BACKUP_DIR",
              help="Where backups would go (may be repeated).  [default: as for delete]")  # fmt: skip
@click.option("--audit-log", type=FILE, metavar="FILE", envvar="ETCDFIX_AUDIT_LOG",
              help="The record that would be written to.  [default: as for delete]")  # fmt: skip
@report_options(tuple(CASE_FORMS))
def command(
    *,
    kubeconfig: Path | None,
    context: str | None,
    backup_dirs: tuple[Path, ...],
    audit_log: Path | None,
    output: str,
    output_file: Path | None,
    jobs: Jobs,
    **options: Any,
) -> int:
    """Check everything that the other commands rest on, and say what to do where something is wrong.

    Endpoints, certificates, versions, members, alarms, space, clocks, history, the encryption configuration and which
    of its keys open something, backup directories and audit log, what the etcd user and the kubeconfig's user may do.

    It only reads etcd. It writes one kind of file: in each backup directory and in the directory of the audit log, a
    probe that is removed again at once.
    """
    if context is not None and kubeconfig is None:
        raise click.UsageError("--context needs --kubeconfig")
    inputs, configuration = what_to_read(options)
    log = audit_log.absolute() if audit_log is not None else None
    with (
        report_place(output_file, (*read_files(inputs), kubeconfig), output) as place,
        open_plugins(inputs, configuration) as plugins,
    ):
        doctor = Doctor(
            inputs=inputs,
            configuration=configuration,
            places=RecordPaths(tuple(path.absolute() for path in backup_dirs), log),
            api=APIAccess(kubeconfig, context) if kubeconfig is not None else None,
            plugins=plugins,
            progress=progress_of,
            jobs=jobs,
        )
        report = doctor.examine()
        place.show(report, inputs.run_options())
    return report_exit_code(report, doctor.ended)
