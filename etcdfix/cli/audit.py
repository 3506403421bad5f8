"""``etcdfix audit``: read the record of what was done, check it, and finish what a crash left open."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click
import msgspec

from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import (
    gather_inputs,
    load_encryption,
    main_etcd_options,
    open_plugins,
    open_source,
    reading_options,
    same_again,
    source_options,
    timeout_option,
)
from etcdfix.cli.output import require_output, say
from etcdfix.cli.variables import ChangingCommand
from etcdfix.errors import BackupUnreadable, ConfigurationError, RemediationRefused
from etcdfix.remediation.audit.record import Event, Intent, Link, Operator, Result, Verb, unicode_text
from etcdfix.remediation.audit.verify import (
    HEAD_SUFFIX,
    NO_HEAD_FILE,
    Anchor,
    ChainState,
    Verification,
    parse_link,
    read_records,
    verify,
    without_head,
)
from etcdfix.reports.base import counted
from etcdfix.reports.model import API_VERSION
from etcdfix.storagekey import display
from etcdfix.text.safetext import quote_command, safe_json, safe_text

if TYPE_CHECKING:
    from etcdfix.cli.options import Inputs
    from etcdfix.remediation.cluster_identity import ClusterIdentity
    from etcdfix.remediation.reconcile import Reconciliation
    from etcdfix.sources.etcd.client import EtcdClient
    from etcdfix.text.commands import RepeatedOptions

_Command = Callable[..., Any]

_LONGEST_CELL = 300
_LONGEST_LIST = 20

# Whoever could write the log could write that file too.
_HEAD_FILE_ALONE = (
    "the head file stands beside the log: who rewrote both would not be found; compare with --backup-dir, or with "
    "--expect-head and a head that is kept elsewhere"
)

VERIFY_EXIT_CODES = {
    0: "whole",
    1: "tampered",
    2: "usage or configuration error",
    3: "open intents, a torn last line, or no head file",
    5: "unreadable",
}
RECONCILE_EXIT_CODES = {
    0: "every open intent is settled (or there is none)",
    2: "usage or configuration error",
    3: "an intent stays open, or ended in an anomaly",
    4: "refused: another cluster, or a log that does not hold (wins over 3)",
    5: "etcd or the log cannot be read",
}


_log_argument = click.argument("log", metavar="FILE", type=click.Path(path_type=Path))


def _output_option(*forms: str) -> Callable[[_Command], _Command]:
    return click.option(
        "-o",
        "--output",
        "output",
        type=click.Choice(list(forms)),
        default=forms[0],
        show_default=True,
        envvar="ETCDFIX_OUTPUT",
        help="Form of the output.",
    )


@click.group("audit")
def command() -> None:
    """Show and verify the audit log; say what became of open intents.

    The log is the record of every deletion, restoration and re-encryption, chained by hashes.
    """


@command.command("show")
@_log_argument
@_output_option("table", "json", "jsonl")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    metavar="N",
    envvar="ETCDFIX_LAST",
    help="Only the last N records.  [default: all]",
)
@timeout_option
def show(*, log: Path, output: str, last: int | None) -> int:
    """Print the records of an audit log, as they stand there.

    json is one audit.k8s.io/v1 EventList, jsonl one Event to a line. Nothing is judged: audit verify does that.
    """
    require_output()
    records: Iterable[tuple[Link, Event]] = read_records(log)
    if last is not None:
        records = deque(records, maxlen=last)
    if output == "table":
        rows = [_row(link, event) for link, event in records]
        if rows:
            _table(("RECORD", "TIME", "TYPE", "VERB", "KEY", "OUTCOME", "WHO", "WHY AND WHAT"), rows)
        else:
            click.echo("no records")
    elif output == "jsonl":
        for _, event in records:
            click.echo(safe_json(msgspec.json.encode(event)))
    else:
        _event_list(event for _, event in records)
    return 0


def _event_list(events: Iterable[Event]) -> None:
    """Write one EventList, record by record: a log may be larger than memory."""
    click.echo(
        '{\n  "apiVersion": "audit.k8s.io/v1",\n  "kind": "EventList",\n  "metadata": {},\n  "items": [',
        nl=False,
    )
    before, end = "\n", "]\n}"
    for event in events:
        text = msgspec.json.format(safe_json(msgspec.json.encode(event)), indent=2).decode()
        click.echo(before + indent(text, "    "), nl=False)
        before, end = ",\n", "\n  ]\n}"
    click.echo(end)


def _row(link: Link, event: Event) -> tuple[str, ...]:
    notes = event.annotations
    who = f"{notes.os_user or event.user.username}@{notes.host}"
    if notes.sudo_user:
        who += f" (sudo: {notes.sudo_user})"
    told = [text for text in (notes.reason, notes.detail) if text]
    if notes.intent:
        told.insert(0, f"intent {notes.intent}")
    verb = "delete" if event.verb == Verb.DELETE else event.verb
    cells = (
        str(link.sequence), event.stage_timestamp, notes.type, verb, _key_of(event), notes.outcome or "-", who,
        "; ".join(told),
    )  # fmt: skip
    return tuple(_cell(cell) for cell in cells)


def _key_of(event: Event) -> str:
    try:
        return display(msgspec.convert(event.annotations.key_base64, bytes)) or "-"
    except msgspec.ValidationError:
        return "?"


@command.command("verify", epilog=epilog(VERIFY_EXIT_CODES))
@_log_argument
@click.option(
    "--expect-head",
    metavar="SEQ:SHA256",
    help="A head that was written down elsewhere: every deletion prints one.",
)
@click.option(
    "--backup",
    "backups",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="A backup that must have its intent in this log (may be repeated).",
)
@click.option(
    "--backup-dir",
    "backup_directories",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    help="The same for every backup in a directory that names this log (may be repeated).",
)
@timeout_option
@_output_option("table", "json")
def verify_log(
    *,
    log: Path,
    expect_head: str | None,
    backups: tuple[Path, ...],
    backup_directories: tuple[Path, ...],
    output: str,
) -> int:
    """Check that an audit log is what was written: nothing edited, dropped, reordered, or cut off its end.

    A chain does not show by itself that it once went on. The head file beside the log, backups, and a head that
    somebody wrote down remember its records; what none of them remembers cannot be missed.
    """
    require_output()
    anchors, remarks = _gather_anchors(log, expect_head, backups, backup_directories)
    found = verify(log, anchors=anchors)
    compared = _compared_with(log, anchors)
    if compared and not anchors and found.state is not ChainState.TAMPERED:
        found = msgspec.structs.replace(found, notes=(*found.notes, _HEAD_FILE_ALONE))
    for remark in remarks:
        say(remark)
    if output == "json":
        _json(_verification_document(log, found, compared, remarks))
    else:
        for text in _verification_lines(log, found, _in_short(log, anchors)):
            click.echo(safe_text(text))
    return found.exit_code


def _gather_anchors(
    log: Path, expect_head: str | None, backups: Sequence[Path], directories: Sequence[Path]
) -> tuple[list[Anchor], list[str]]:
    from etcdfix.remediation.backup.file import Backup, read_backup  # noqa: PLC0415
    from etcdfix.remediation.backup.write import anchor_of  # noqa: PLC0415 - only where a backup is named

    anchors = [] if expect_head is None else [Anchor(parse_link(expect_head), "--expect-head")]
    remarks: list[str] = []

    def take(backup: Backup) -> None:
        anchor = anchor_of(backup)
        if anchor is None:
            remarks.append(f"{backup.path} proves nothing: its intent was never confirmed")
        else:
            anchors.append(anchor)

    for path in backups:
        take(read_backup(path))
    ours = os.path.realpath(log)
    for directory in directories:
        others = 0
        for path in _backup_files(directory):
            try:
                backup = read_backup(path)
            except BackupUnreadable as exc:
                remarks.append(f"{exc.message}; it was not compared")
                continue
            if os.path.realpath(backup.intent.audit_log) == ours:
                take(backup)
            else:
                others += 1
        if others:
            remarks.append(
                f"{directory}: {counted(others, 'backup')} of another audit log left out; "
                "--backup compares one all the same"
            )
    return anchors, remarks


def _backup_files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix == ".json")
    except OSError as exc:
        raise ConfigurationError(f"--backup-dir {directory}: {exc.strerror}") from exc


def _compared_with(log: Path, anchors: Sequence[Anchor]) -> list[str]:
    head = log.with_name(log.name + HEAD_SUFFIX)
    return [f"the head file {head}"] * os.path.lexists(head) + [anchor.source for anchor in anchors]


def _in_short(log: Path, anchors: Sequence[Anchor]) -> list[str]:
    """Return the same for a person, who needs no list of backups."""
    backups = [anchor for anchor in anchors if anchor.source.startswith("backup ")]
    shown = _compared_with(log, [anchor for anchor in anchors if anchor not in backups])
    return [*shown, counted(len(backups), "backup")] if backups else shown


def _verification_document(
    log: Path, found: Verification, compared: Sequence[str], remarks: Sequence[str]
) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "AuditVerification",
        "audit_log": unicode_text(str(log)),
        "state": found.state,
        "records": found.records,
        "head": found.head,
        "torn_size": found.torn_size,
        "head_missing": found.head_missing,
        "findings": [
            {**msgspec.structs.asdict(f), "message": unicode_text(f.message)} for f in found.findings
        ],
        "more_findings": found.more_findings,
        "open_intents": sorted(found.open_intents),
        "compared_with": [unicode_text(text) for text in compared],
        "notes": [unicode_text(text) for text in (*found.notes, *remarks)],
    }


def _verification_lines(log: Path, found: Verification, compared: Sequence[str]) -> Iterator[str]:
    words = {
        ChainState.WHOLE: "whole",
        ChainState.TAMPERED: "TAMPERED",
        ChainState.UNFINISHED: "whole, but unfinished",
    }
    known = "open" if found.head_missing and found.state is ChainState.UNFINISHED else words[found.state]
    yield f"{log}: {known}, {counted(found.records, 'record')}, head {found.head}"
    if compared:
        yield f"compared with {' and '.join(filter(None, (', '.join(compared[:-1]), compared[-1])))}"
    else:
        yield "compared with nothing: no head file, no backup, no head that was written down"
    for finding in found.findings:
        yield f"  {finding.kind}: {finding.message}"
    if found.more_findings:
        yield f"  and {found.more_findings} more"
    if found.torn_size:
        yield (
            f"its last line is torn after {counted(found.torn_size, 'byte')}: a write that a crash cut off; "
            "the next writer keeps them aside"
        )
    if found.open_intents:
        numbers = sorted(found.open_intents)
        shown = ", ".join(map(str, numbers[:_LONGEST_LIST])) + (", …" if len(numbers) > _LONGEST_LIST else "")
        yield f"open intents, of which nobody knows what became: {shown}"
        yield f"  next: {quote_command(['etcdfix', 'audit', 'reconcile', str(log)])}"
    if found.head_missing:
        yield NO_HEAD_FILE
        if found.state is not ChainState.TAMPERED:
            yield f"  next: {without_head(log, found.head)}"
    yield from found.notes


@command.command("reconcile", cls=ChangingCommand, epilog=epilog(RECONCILE_EXIT_CODES))
@_log_argument
@source_options
@main_etcd_options
@reading_options
@click.option("--dry-run", is_flag=True, help="Say what would be recorded; change nothing, the log included.")
@click.option(
    "--accept-unknown-cluster",
    is_flag=True,
    help="Go on where nothing tells whether an intent is about this cluster.",
)
@_output_option("table", "json")
def reconcile(*, log: Path, dry_run: bool, accept_unknown_cluster: bool, output: str, **options: Any) -> int:
    """Say what became of every open intent, and record it.

    An intent is open when its process ended before it could record the outcome. Its key is read from the live
    etcd; nothing is written there.
    """
    require_output()
    inputs = gather_inputs(options)
    if inputs.snapshot is not None or inputs.revision:
        raise ConfigurationError(
            "only a live etcd, read now, can tell what became of an intent",
            hint="leave out --snapshot and --revision",
        )
    for notice in inputs.notices:
        say(notice)
    found, refused = _reconcile(log, inputs, dry_run=dry_run, accept_unknown_cluster=accept_unknown_cluster)
    if output == "json":
        _json(_reconciliation_document(log, found, refused, dry_run=dry_run))
    else:
        again = same_again(inputs)
        for text in _reconciliation_lines(log, found, refused, again, dry_run=dry_run):
            click.echo(safe_text(text))
    if refused:
        return 4
    unsettled = any(item.result in {Result.UNKNOWN, Result.ANOMALY} for item in found)
    return 3 if unsettled else 0


def _reconcile(
    log: Path, inputs: Inputs, *, dry_run: bool, accept_unknown_cluster: bool
) -> tuple[list[Reconciliation], list[tuple[Intent, RemediationRefused]]]:
    # grpc is slow to import, and the other audit commands work without it.
    from etcdfix.remediation.audit.log import AuditLog  # noqa: PLC0415
    from etcdfix.remediation.reconcile import predict, read_open_intents, reconcile_intent  # noqa: PLC0415
    from etcdfix.sources.connection import connection_from_options  # noqa: PLC0415
    from etcdfix.sources.etcd.client import EtcdClient  # noqa: PLC0415

    found: list[Reconciliation] = []
    refused: list[tuple[Intent, RemediationRefused]] = []

    def work_through(
        intents: Iterable[Intent], one: Callable[[EtcdClient, Intent, ClusterIdentity], Reconciliation]
    ) -> None:
        intents = tuple(intents)
        cluster = _cluster(inputs, intents)
        client = EtcdClient(connection_from_options(**inputs.connection), on_notice=say)
        try:
            for intent in intents:
                try:
                    found.append(one(client, intent, cluster))
                except RemediationRefused as exc:
                    refused.append((intent, exc))
        finally:
            client.close()

    intents = read_open_intents(log)  # also: a log that is not there is an error, and not made
    if not intents:
        return found, refused
    if dry_run:
        work_through(
            intents,
            lambda client, intent, cluster: predict(
                client, intent, cluster=cluster, accept_unknown_cluster=accept_unknown_cluster
            ),
        )
        return found, refused
    operator = Operator.of_this_process(etcd_user=(inputs.connection.get("user") or "").partition(":")[0])
    with AuditLog.open(log, operator=operator) as opened:
        work_through(
            opened.open_intents(),
            lambda client, intent, cluster: reconcile_intent(
                client,
                opened,
                intent,
                operator,
                cluster=cluster,
                accept_unknown_cluster=accept_unknown_cluster,
            ),
        )
    return found, refused


def _cluster(inputs: Inputs, intents: Iterable[Intent]) -> ClusterIdentity:
    """Return which cluster this is; the backups of the intents may tell where etcd does not."""
    from etcdfix.cli.safety import main_etcd, reading_of  # noqa: PLC0415 - as above
    from etcdfix.examine import Examiner  # noqa: PLC0415 - as above
    from etcdfix.remediation.preflight.checks import Cluster, find_cluster  # noqa: PLC0415 - as above
    from etcdfix.sources.live import LiveSource  # noqa: PLC0415 - as above

    directories = dict.fromkeys(Path(path).parent for intent in intents for path in intent.backups)
    configuration = load_encryption(inputs)
    main = main_etcd(inputs)
    with open_source(inputs, say=say) as source, open_plugins(inputs, configuration) as plugins:
        assert isinstance(source, LiveSource)  # neither a snapshot nor an old revision was let in
        cluster = Cluster(
            source,
            Examiner.of(reading_of(inputs, configuration), plugins),
            main=main,
            main_named=inputs.main_named,
        )
        return find_cluster(cluster, tuple(directories))


def _reconciliation_document(
    log: Path,
    found: Sequence[Reconciliation],
    refused: Sequence[tuple[Intent, RemediationRefused]],
    *,
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "AuditReconciliation",
        "audit_log": unicode_text(str(log)),
        "dry_run": dry_run,
        "intents": [
            {
                **_intent_fields(item.intent),
                "outcome": item.result,
                "detail": unicode_text(item.detail),
                "header_revision": item.header_revision,
                "record": item.record,
                "remarks": [unicode_text(text) for text in item.remarks],
            }
            for item in found
        ],
        "refused": [{**_intent_fields(intent), "reason": exc.message} for intent, exc in refused],
    }


def _intent_fields(intent: Intent) -> dict[str, Any]:
    return {
        "sequence": intent.link.sequence,
        "verb": intent.verb,
        "key": display(intent.subject.key),
        "key_base64": intent.subject.key,
        "backups": intent.backups,
    }


def _reconciliation_lines(
    log: Path,
    found: Sequence[Reconciliation],
    refused: Sequence[tuple[Intent, RemediationRefused]],
    again: RepeatedOptions,
    *,
    dry_run: bool,
) -> Iterator[str]:
    if not found and not refused:
        yield "no open intents"
    for item in found:
        intent = item.intent
        would = "would be " if dry_run else ""
        yield f"intent {intent.link.sequence}, {_verb(intent)} {display(intent.subject.key)}: {would}{item.result}"
        yield f"  {item.detail}"
        for remark in item.remarks:
            yield f"  {remark}"
        if item.record is not None:
            yield f"  recorded as {item.record}"
        yield from _next_steps(log, item, again)
    for intent, exc in refused:
        yield f"intent {intent.link.sequence}, {_verb(intent)} {display(intent.subject.key)}: refused"
        yield f"  {exc.message}"
        if exc.hint:
            yield f"  next: {exc.hint}"


def _next_steps(log: Path, item: Reconciliation, again: RepeatedOptions) -> Iterator[str]:
    intent = item.intent
    if item.result is Result.APPLIED_OR_GONE and intent.verb is Verb.DELETE and intent.backups:
        # The uid of kube-system is read for it too, wherever it is and whatever encrypts it.
        same = [*again.source, *again.layout, *again.reading, *again.changing]
        words = ["etcdfix", "restore", intent.backups[0], *same, "--audit-log", str(log), "--reason", "TEXT"]
        yield f"  to undo it: {quote_command(words)}"
    elif item.result is Result.ANOMALY:
        yield f"  next: {again.scan(intent.subject.key)} -o yaml"
    elif item.result is Result.UNKNOWN:
        yield "  it stays open; run this again when etcd answers"


def _verb(intent: Intent) -> str:
    return "delete" if intent.verb is Verb.DELETE else intent.verb.value


def _json(document: Any) -> None:
    click.echo(msgspec.json.format(safe_json(msgspec.json.encode(document)), indent=2))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from tabulate import tabulate  # noqa: PLC0415 - 20 ms that other formats need not pay

    for line in tabulate(rows, headers=columns, tablefmt="plain", disable_numparse=True).splitlines():
        click.echo(line.rstrip())


def _cell(text: str) -> str:
    safe = safe_text(text)
    return safe if len(safe) <= _LONGEST_CELL else f"{safe[: _LONGEST_CELL - 1]}…"
