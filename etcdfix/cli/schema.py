"""``etcdfix schema``: what a program that reads our reports can rely on."""

from __future__ import annotations

import sys
from textwrap import fill
from typing import Any

import click
import msgspec

from etcdfix.cli.command import Command
from etcdfix.errors import ConfigurationError
from etcdfix.report.schema import SCHEMAS, schema_of


def audit_schema() -> dict[str, Any]:
    """Return the schema of one record of the audit log."""
    # The other schemas need nothing that can write.
    from etcdfix.inputs.ownfiles import ANNOTATION_PREFIX, RECORD_API_VERSION, RECORD_KIND  # noqa: PLC0415 - said above
    from etcdfix.remediation.audit.grounds import Grounds  # noqa: PLC0415 - said above
    from etcdfix.remediation.audit.record import RecordType, Result, Verb  # noqa: PLC0415 - said above
    from etcdfix.remediation.audit.record_line import Event  # noqa: PLC0415 - said above

    schema = schema_of(Event, f"{RECORD_KIND} of {RECORD_API_VERSION}, as the audit log of etcdfix holds it")
    event = schema["$defs"]["Event"]["properties"]
    event["kind"], event["apiVersion"] = {"const": RECORD_KIND}, {"const": RECORD_API_VERSION}
    event["verb"] = {"enum": [verb.value for verb in Verb]}
    notes = schema["$defs"]["Annotations"]["properties"]
    notes[ANNOTATION_PREFIX + "type"] = {"enum": [kind.value for kind in RecordType]}
    notes[ANNOTATION_PREFIX + "outcome"] = {"enum": [result.value for result in Result]}
    (inside,), parts = msgspec.json.schema_components([Grounds], ref_template="#/$defs/{name}")
    schema["$defs"] |= parts
    notes[ANNOTATION_PREFIX + "grounds"] = {
        "type": "string", "contentMediaType": "application/json", "contentSchema": inside
    }  # fmt: skip
    notes[ANNOTATION_PREFIX + "sequence"] = {"type": "string", "pattern": "^[1-9][0-9]*$"}
    notes[ANNOTATION_PREFIX + "previous"] = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
    return schema


_ALL = {**SCHEMAS, "audit": audit_schema}


_HELP = f"""\
Print the JSON Schema of what a command writes as JSON: of a scan's report (default), or of another document.

NAME is one of these; change is what delete, fix and undo write, audit is one record of the audit log:

\b
{fill(", ".join(_ALL), 76, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)}

The schema is generated from the very types that are written. Readers ignore fields that they do not
know, and treat an outcome that they do not know as undetermined.
"""


@click.command("schema", cls=Command, help=_HELP)
@click.argument("name", type=click.Choice(list(_ALL)), default="report", metavar="[NAME]")
def command(name: str) -> int:
    """Print one schema."""
    if sys.stdout is None:
        raise ConfigurationError("standard output is closed")
    click.echo(msgspec.json.format(msgspec.json.encode(_ALL[name]()), indent=2))
    return 0
