"""``etcdfix doctor``: what would keep etcdfix from its work here, or make it doubtful."""

from __future__ import annotations

from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.inputs import what_to_read
from etcdfix.cli.look import api_access, read_files, record_paths, report_exit_code, report_place
from etcdfix.cli.options import (
    access_options,
    audit_log_option,
    backup_dirs_option,
    look_options,
)
from etcdfix.cli.progress import progress_of
from etcdfix.commands.doctor import Doctor
from etcdfix.commands.opening import open_plugins
from etcdfix.report.render import CASE_FORMS


@click.command("doctor", cls=Command)
@look_options(tuple(CASE_FORMS))
@access_options
@backup_dirs_option
@audit_log_option
def command(**options: Any) -> int:
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
