"""``etcdfix encryption what-if``: what another configuration would do to everything that is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes
from etcdfix.cli.look import open_look
from etcdfix.cli.options import FILE, reading_options, report_options, source_options, what_to_read
from etcdfix.cli.output import say
from etcdfix.cli.progress import progress_of
from etcdfix.commands.encryption.what_if import WhatIfRequest, what_if
from etcdfix.encryption.config import load_configuration
from etcdfix.report.render import CASE_FORMS

_CODES = reader_codes(
    "nothing becomes unreadable",
    "something becomes unreadable, or loses the key with which it can be repaired",
    usage="usage error, or an API server would refuse one of the configurations",
    incomplete="could not be told: something is undetermined under one of the configurations, or not everything was "
    "read (1 wins)",
)


@click.command("what-if", cls=Command, epilog=_CODES)
@click.option(
    "--new", "new_config", type=FILE, required=True, metavar="FILE",
    envvar="ETCDFIX_NEW",
    help="The EncryptionConfiguration that you want to deploy.",
)  # fmt: skip
@source_options
@reading_options
@report_options(tuple(CASE_FORMS))
def command(*, new_config: Path, **options: Any) -> int:
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
        main_not_read=inputs.file is None and bool(inputs.main_endpoints),
        new=new,
        no_encryption=inputs.no_encryption,
    )
    with open_look(options, inputs, configuration, new, besides=(new_config,)) as look:
        found = what_if(look.source, request, plugins=look.plugins, progress=progress_of(look.source))
        return look.tell_of_everything(found, request.run)
