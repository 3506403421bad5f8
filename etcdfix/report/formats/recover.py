"""Formats of ``encryption recover``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

from etcdfix.report.base import Output
from etcdfix.report.formats.encryption import rest, rule_words, write_group
from etcdfix.report.formats.machine import write_document, write_yaml
from etcdfix.report.formats.text import incomplete, introduction, shown, shown_transformer
from etcdfix.report.head import head_lines
from etcdfix.report.recover_model import (
    BootstrapValue,
    EncryptionRecoverReport,
    NamedByNodes,
    RecoveredConfiguration,
)
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_NOTHING: Final = (
    ("other-token", "belongs to another token than those that were given", "belong to other tokens than were given"),
    ("damaged", "is damaged", "are damaged"),
    ("not-understood", "opens, and is not what k3s and RKE2 write", "open, and are not what k3s and RKE2 write"),
    ("not-enabled", "opens and holds no configuration: encryption was not enabled",
     "open and hold no configuration: encryption was not enabled"),
    ("lock", "is an empty lock: a server was about to write", "are empty locks: a server was about to write"),
)  # fmt: skip
_STATES: Final = {
    "recovered": "holds",
    "other-token": "not opened: of another token",
    "damaged": "damaged",
    "not-understood": "not understood",
    "not-enabled": "opens, holds no configuration",
    "lock": "empty: a lock",
}
_TOKEN_FORMS: Final = {"as-given": "as given", "empty": "that is empty"}
_NAMED: Final = {
    NamedByNodes.ALL: "yes: all",
    NamedByNodes.SOME: "some",
    NamedByNodes.NONE: "no",
    NamedByNodes.UNKNOWN: "unknown",
}


def write_recover(report: EncryptionRecoverReport, stream: BinaryIO, max_rows: int) -> None:
    """Write what was recovered and what it opens, then where it was found, and what the Nodes say."""
    output = Output(stream)
    for sentence in _headline(report):
        output.prose(sentence)
    output.lines(incomplete(report))
    output.lines(head_lines("", "", report.next))
    output.line()
    output.line(introduction(report))
    if report.configurations:
        _write_configurations(output, report, max_rows)
    for group in report.groups[:max_rows]:
        output.line()
        write_group(output, group)
    rest(output, len(report.groups), max_rows, "encryption key")
    _write_values(output, report, max_rows)
    _write_nodes(output, report, max_rows)
    if report.notes:
        output.line()
    for note in report.notes:
        output.prose(f"- {shown(note)}")
    _write_files(output, report)


def _headline(report: EncryptionRecoverReport) -> Iterator[str]:
    usable = [one for one in report.configurations if one.usable]
    if usable:
        yield f"RECOVERED: {counted(len(usable), 'EncryptionConfiguration')}"
        what = "not known to open today" if report.encryption_config is not None else "that are encrypted"
        if report.tried is None:
            yield "They were tried on nothing: the values could not be read"
        elif report.tried:
            one = len(usable) == 1
            yield (
                f"{'It opens' if one else 'Together they open'} {report.opened} of "
                f"{counted(report.tried, 'value')} {what}"
            )
        else:
            yield f"There are no values {what}"
        return
    yield f"NOTHING RECOVERED: {safe_text('; '.join(_why_nothing(report)))}"


def _why_nothing(report: EncryptionRecoverReport) -> Iterator[str]:
    if not report.values:
        yield (
            "no key lies under /bootstrap/, so no server of k3s or RKE2 keeps its files here"
            if not report.incomplete_reasons
            else "no value was seen under /bootstrap/, and not everything could be read"
        )
        return
    counts = Counter(value.state for value in report.values)
    yield f"{counted(report.bootstrap_keys, 'key')} under /bootstrap/, {counted(len(report.values), 'value')} kept"
    for state, single, plural in _NOTHING:
        if counts[state]:
            yield f"{counts[state]} {single if counts[state] == 1 else plural}"
    if report.configurations:
        yield f"{counted(len(report.configurations), 'configuration')} there, refused by API servers"


def _write_configurations(output: Output, report: EncryptionRecoverReport, max_rows: int) -> None:
    output.line()
    output.table(
        ("CONFIGURATION", "NAMED BY NODES", "HELD HERE", "MOD REVISIONS", "STAGE", "OPENS", "RIGHT KEY ONLY",
         "UNDETERMINED", "FILE CHANGED", "DIGEST"),
        [_row(report, one) for one in report.configurations[:max_rows]],
        spare=("DIGEST", "FILE CHANGED", "UNDETERMINED"),
    )  # fmt: skip
    rest(output, len(report.configurations), max_rows, "configuration")
    for one in report.configurations[:max_rows]:
        for rule in one.rules:
            keys = ", ".join(
                f"{shown_transformer(key.transformer)}{f' ({key.key_fingerprint})' if key.key_fingerprint else ''}"
                for key in rule.keys
            )
            output.prose(f"{one.name}, {rule_words(rule.resources)}: {keys}; the first one writes", "  ")


def _row(report: EncryptionRecoverReport, one: RecoveredConfiguration) -> tuple[str, ...]:
    revisions = "unknown"
    if one.last_mod_revision is not None:
        same = one.first_mod_revision == one.last_mod_revision
        revisions = f"{'' if same else f'{one.first_mod_revision} to '}{one.last_mod_revision}"
    stage = one.stage or "-"
    return (
        one.name,
        _NAMED[one.named_by_nodes],
        one.confidence,
        f"{revisions} (current)" if one.current else revisions,
        shown(stage if one.stage_fits is not False else f"{stage} of another file"),
        _opens(report, one),
        str(one.right_key),
        str(one.undetermined),
        shown(one.file_time or "-"),
        one.sha256,
    )


def _opens(report: EncryptionRecoverReport, one: RecoveredConfiguration) -> str:
    if not one.usable:
        return "refused by API servers"
    return f"{one.opens} of {report.tried}" if report.tried is not None else "not tried"


def _write_values(output: Output, report: EncryptionRecoverReport, max_rows: int) -> None:
    if not report.values:
        return
    output.line()
    output.table(
        ("BOOTSTRAP VALUE", "MOD REVISION", "FOUND IN", "WHAT IT IS"),
        [_value_row(value) for value in report.values[:max_rows]],
        prose=True,
    )
    rest(output, len(report.values), max_rows, "value")


def _value_row(value: BootstrapValue) -> tuple[str, ...]:
    what = _STATES[value.state]
    if value.configuration is not None:
        what += f" {value.configuration}"
    if value.token_form is not None and value.token_form in _TOKEN_FORMS:
        what += f", opened by the token {_TOKEN_FORMS[value.token_form]}"
    if value.form == "contents":
        what += ", in the form of old releases"
    revision = "unknown" if value.mod_revision is None else str(value.mod_revision)
    if value.mod_revision is not None and value.confidence != "certain":
        revision += f" ({value.confidence})"
    found_in = "etcd" if value.log_index is None else f"write-ahead log, entry {value.log_index}"
    return (
        value.key,
        revision,
        f"{found_in}, current" if value.current else found_in,
        f"{what}: {safe_text(value.reason)}" if value.reason else what,
    )


def _write_nodes(output: Output, report: EncryptionRecoverReport, max_rows: int) -> None:
    if not report.nodes:
        output.line()
        output.prose(
            "No Node names the configuration that its server runs with (annotation encryption-config-hash): which of "
            "these is today's cannot be told"
            if report.configurations
            else "No Node has the annotation encryption-config-hash of a server that encrypts"
        )
        return
    output.line()
    output.table(
        ("NODE", "STAGE", "NAMES"),
        [
            (shown(node.node), shown(node.stage), node.configuration or node.sha256)
            for node in report.nodes[:max_rows]
        ],
    )
    rest(output, len(report.nodes), max_rows, "Node")


def _write_files(output: Output, report: EncryptionRecoverReport) -> None:
    written = [(one, one.file) for one in report.configurations if one.file is not None]
    if not written:
        return
    output.line()
    for one, file in written:
        output.line(f"WRITTEN: {one.name} is {shown(file.path)}  {file.sha256}")
    output.prose(
        "They hold encryption keys (mode 0600), and they are marked: etcdfix changes nothing by them. They may be a "
        "--candidate-config, and the --encryption-config of what only looks."
    )
    for record in report.audit_records:
        output.line(f"Recorded: {shown(record.path)}, record {record.sequence} ({record.hash})")
    if report.no_record:
        output.prose(f"NOT RECORDED in an audit log: {safe_text(report.no_record)}")


RECOVER_FORMATS: Final[Mapping[str, Callable[[EncryptionRecoverReport, BinaryIO, int], None]]] = {
    "table": write_recover,
    "json": write_document,
    "yaml": write_yaml,
}
