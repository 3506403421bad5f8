"""``etcdfix encryption what-if``: what another configuration would do to everything that is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.cluster_index import nothing_examined
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.opened import open_all
from etcdfix.cli.options import FILE, reading_options, source_options, what_to_read
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.output_options import report_options
from etcdfix.cli.progress import progress_of
from etcdfix.commands.encryption.what_if import WhatIfRequest, what_if
from etcdfix.encryption.config import load_configuration
from etcdfix.report.render import CASE_FORMS

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing becomes unreadable",
    ExitCode.FINDINGS: "something becomes unreadable, or loses the key with which it can be repaired",
    ExitCode.USAGE: "usage error, or an API server would refuse one of the configurations",
    ExitCode.INCOMPLETE: "could not be told: something is undetermined under one of the configurations (1 wins), "
    "or not everything was read",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **ENDED_EARLY,
}


@click.command("what-if", cls=Command, epilog=epilog(MEANINGS))
@click.option(
    "--new", "new_config", type=FILE, required=True, metavar="FILE",
    envvar="ETCDFIX_NEW",
    help="The EncryptionConfiguration that you want to deploy.",
)  # fmt: skip
@source_options
@reading_options
@report_options(tuple(CASE_FORMS))
def command(*, new_config: Path, output: str, output_file: Path | None, **options: Any) -> int:
    """Show what another configuration would make unreadable, before you deploy it. Reads only.

    Every value is examined with today's configuration (--encryption-config) and with the new one. The report says what
    becomes unreadable, readable or stale, by resource and encryption key. The KMS plugins of both are asked.
    """
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    new = load_configuration(new_config)
    for warning in new.warnings:
        say(f"{new_config}: {warning}")
    request = WhatIfRequest(
        **inputs.reading_fields(configuration),
        overrides={} if inputs.each_from_its_own else inputs.overrides or {},
        overrides_known=inputs.overrides is not None,
        main_not_read=inputs.file is None and bool(inputs.main_endpoints),
        new=new,
        no_encryption=inputs.no_encryption,
    )
    with open_all(inputs, output_file, output, configuration, new, besides=(new_config,)) as (
        source,
        place,
        plugins,
    ):
        found = what_if(source, request, plugins=plugins, progress=progress_of(source))
        whole, report = found.whole, found.report
        if not whole.below_prefix:
            nothing_examined(request.layout, whole.problems, whole.ended, whole.suggested_prefixes)
        place.show(report, request.run)
    say_incomplete(report.incomplete_reasons)
    if whole.ended is not None:
        return whole.ended.exit_code
    if whole.problems:
        return ExitCode.INCOMPLETE
    if report.loses:
        return ExitCode.FINDINGS
    return ExitCode.NOTHING_WRONG if report.complete else ExitCode.INCOMPLETE
