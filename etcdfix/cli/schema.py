"""``etcdfix schema``: what a program that reads our reports can rely on."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from etcdfix.cli.command import Command
from etcdfix.errors import ConfigurationError
from etcdfix.reports.schema import SCHEMAS, schema_of


def audit_schema() -> dict[str, Any]:
    """Return the schema of one record of the audit log."""
    from etcdfix.inputs.ownfiles import ANNOTATION_PREFIX, RECORD_API_VERSION, RECORD_KIND  # noqa: PLC0415 - the other schemas need nothing that can write
    from etcdfix.remediation.audit.grounds import Grounds  # noqa: PLC0415 - as above
    from etcdfix.remediation.audit.record import RecordType, Result, Verb  # noqa: PLC0415 - the other schemas need nothing that can write
    from etcdfix.remediation.audit.record_line import Event  # noqa: PLC0415 - as above

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


@click.command("schema", cls=Command)
@click.argument("name", type=click.Choice(list(_ALL)), default="report", metavar="[NAME]")
def command(name: str) -> int:
    """Print the JSON Schema of what a command writes as JSON: of a scan's report (default), or of another document.

    NAME is one of these:

    \b
      report, finding                  etcdfix scan
      history, copies, impact, namespace, orphans, plan, doctor,
      compare, rescue, version
                                       the command of that name
      encryption-usage, encryption-try, encryption-what-if, encryption-lint,
      encryption-diff, encryption-merge, encryption-recover
                                       etcdfix encryption
      change                           delete, restore, reencrypt, repair
      heal                             etcdfix heal
      report-diff, report-merge        etcdfix report
      explain, cause, cause-list       etcdfix explain
      backup-list, backup-verification, backup-pruning
                                       etcdfix backup
      audit                            one record of the audit log

    The schema is generated from the very types that are written. Readers ignore fields that they do not
    know, and treat an outcome that they do not know as undetermined.
    """  # noqa: D301 - the mark of click is the character itself
    if sys.stdout is None:
        raise ConfigurationError("standard output is closed")
    click.echo(msgspec.json.format(msgspec.json.encode(_ALL[name]()), indent=2))
    return 0
