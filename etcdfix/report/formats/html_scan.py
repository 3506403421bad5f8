"""``scan -o html``: one file for the incident call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final, NamedTuple

from etcdfix.model import Outcome
from etcdfix.report.base import Reporter, fit
from etcdfix.report.formats.page import Block, Column, Rows, write_page
from etcdfix.report.formats.text import scan_introduction, shown_transformer
from etcdfix.report.head import counts_as_incomplete, found_line
from etcdfix.report.model import (
    Conclusion,
    Finding,
    FindingEvidence,
    Header,
    LostKey,
    Remedy,
    SharedWords,
    Summary,
    ValueKind,
)
from etcdfix.text.words import counted

_MOST_ROWS: Final = 10_000
"""More make a page that no browser likes."""
_TONES: Final = {"breaks-now": "bad", "breaks-at-restart": "bad", "one-object": "warn"}
"""Severities, the worst first, and how bad each is."""
_COLUMNS: Final = (
    Column("Severity", "mark", choose=True, order=tuple(_TONES)),
    Column("Outcome", choose=True),
    Column("Cause", choose=True),
    Column("Resource", choose=True, minor=True),
    Column("Etcd key, and what is wrong", "key"),
    Column("Mod revision", "number", minor=True),
)
_FACTS: Final = (
    "Namespace", "Name", "Key, base64", "API server", "Its words", "Confidence", "Encryption key", "Says it is",
    "Value", "Version", "Create revision", "Readable until", "KMS key id", "Lease", "Known from the baseline",
)  # fmt: skip
_OUTCOMES: Final = (
    "Readable", "Stale", "Decrypt failures", "Decode failures", "Inconsistent", "Undetermined",
)  # fmt: skip
_APISERVER: Final = {
    "corrupt": "calls it corrupt",
    "serves": "serves it",
    "serves-empty": "serves an empty object",
    "breaks-list": "serves it, and JSON LISTs that contain it fail",
    "not-asked": "is not asked for it",
}
_OF_A_LOST_KEY: Final = (
    "Its encryption key is lost: the ways out are the same for all of its values, and stand above."
)


class HTMLReporter(Reporter):
    """Writes a page of its own. Its list stops at 10,000 findings, counts never do.

    Args:
        stream: Binary output.
        most: So many findings find a place.
    """

    def __init__(self, stream: BinaryIO, *, most: int = _MOST_ROWS) -> None:
        self._stream = stream
        self._rows = Rows(_COLUMNS, _FACTS, most)
        self._outcomes: Counter[str] = Counter()
        self._header: Header | None = None

    def begin(self, header: Header) -> None:
        """Keep the header until the source's last word is known."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Put one aside, where there is room."""
        ways = Block("ways", "Ways out", [(r.action, r.command.text, r.note) for r in finding.remedies])
        self._add(finding, finding.message, _evidence(finding.evidence), ways)

    def finding_of_lost_key(self, finding: Finding, shared: SharedWords) -> None:
        """Put one aside that says the same as many others, which stands in the page once."""
        own = _evidence(finding.evidence, "Of this value alone")
        ways = Block("text", "Ways out", [(_OF_A_LOST_KEY,)])
        self._add(finding, shared.message, _evidence(shared.evidence), own, ways)

    def _add(self, finding: Finding, message: str, *blocks: Block) -> None:
        self._outcomes[finding.outcome] += 1
        cells = (
            finding.severity or "", finding.outcome, finding.cause or "", _resource(finding.group, finding.resource),
            (finding.key, message), finding.mod_revision,
        )  # fmt: skip
        self._rows.add(cells, _facts(finding), blocks)

    def end(self, conclusion: Conclusion) -> None:
        """Write the page."""
        assert self._header is not None  # begin() comes first
        summary = conclusion.summary
        badge, tone = _badge(conclusion)
        warnings = sum(self._outcomes[outcome] for outcome in (Outcome.READABLE, Outcome.NOT_AN_OBJECT))
        incomplete = counts_as_incomplete(summary, conclusion.incomplete_reasons)
        write_page(
            self._stream,
            self._rows,
            badge=badge,
            tone=tone,
            headline=found_line(
                self._header,
                summary,
                conclusion.incomplete_reasons,
                interrupted=conclusion.interrupted,
                warnings=warnings,
            ),
            at_stake=summary.at_stake,
            warning=summary.do_not_restart,
            next=summary.next,
            incomplete=_reasons(conclusion) if incomplete else None,
            losses=[*map(_loss, summary.key_loss)],
            steps=[],
            tables=[*_tables(summary)],
            foot=scan_introduction(self._header, conclusion.source),
        )


def _badge(conclusion: Conclusion) -> tuple[str, str]:
    """Return the worst severity in a word, and its tone."""
    severity = conclusion.summary.severity
    if severity is not None:
        return severity, _TONES.get(severity, "unknown")
    undecided = not conclusion.complete or conclusion.summary.undetermined
    return ("not decided", "unknown") if undecided else ("nothing wrong", "good")


def _reasons(conclusion: Conclusion) -> list[str]:
    first = ["It was interrupted: keys after the last one shown were not examined."]
    return [*(first if conclusion.interrupted else []), *conclusion.incomplete_reasons]


def _resource(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def _evidence(found: Sequence[FindingEvidence], title: str = "What was checked") -> Block:
    return Block("evidence", title, [(e.check, e.result, e.detail) for e in found])


def _facts(finding: Finding) -> Sequence[str]:
    kind, until = finding.group_version_kind, finding.readable_until
    key_id, lease = finding.kms_key_id_sha256, finding.lease
    encryption = shown_transformer(finding.transformer)
    if finding.key_fingerprint is not None:
        encryption += f" ({finding.key_fingerprint})"
    if finding.rule is not None:
        encryption += f" of {finding.rule}"
    said = f"{kind.group}/{kind.version} {kind.kind}".lstrip("/") if isinstance(kind, ValueKind) else ""
    return (
        finding.namespace,
        finding.name,
        finding.key_base64 or "",
        _APISERVER.get(finding.apiserver, finding.apiserver),
        finding.upstream_message,
        finding.confidence + (", may pass by itself" if finding.transient else ""),
        encryption,
        said,
        f"{counted(finding.value_size, 'byte')}, {finding.value_sha256}",
        str(finding.version),
        str(finding.create_revision),
        until if isinstance(until, str) else "",
        key_id if isinstance(key_id, str) else "",
        lease if isinstance(lease, str) else "",
        "yes" if finding.baseline else "",
    )


class _Loss(NamedTuple):
    """What is said of a lost encryption key, of how many values, and their ways out."""

    lines: list[str]
    failures: int
    remedies: Sequence[Remedy]


def _loss(lost: LostKey) -> _Loss:
    key = f" ({lost.key_fingerprint})" if lost.key_fingerprint else ""
    first, last = lost.first_mod_revision, lost.last_mod_revision
    written = f"mod_revision {first}" + (f" to {last}" if last != first else "")
    whose = f"{shown_transformer(lost.transformer)}{key}, rule {lost.rule or 'none'}"
    what = f"{', '.join(lost.resources)}; written at {written}."
    lines = [f"{lost.failures} of {counted(lost.of, 'value')} under {whose}, cannot be read: {what}"]
    lines += dict.fromkeys(f"They are {words.message}." for words in lost.shared if words.message)
    return _Loss([fit(line, 2_000) for line in lines], lost.failures, lost.remedies)


class _Table(NamedTuple):
    """A short table, and which of its columns hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()


def _tables(summary: Summary) -> Iterator[_Table]:
    yield _Table(
        "Everything that was examined",
        ("Keys", *_OUTCOMES, "No objects"),
        [_numbers(summary.keys, summary.readable, summary.stale, summary.decrypt_failures, summary.decode_failures,
                  summary.inconsistent, summary.undetermined, summary.not_objects)],
        range(8),
    )  # fmt: skip
    if summary.by_severity:
        yield _Table(
            "At stake",
            ("Severity", "Resource", "Values", "Now", "At the next start of an API server"),
            [
                (s.severity, _resource(s.group, s.resource), str(s.count), s.now, s.at_restart)
                for s in summary.by_severity
            ],
            (2,),
        )
    if summary.by_resource:
        yield _Table(
            "By resource",
            ("Resource", "Keys", *_OUTCOMES),
            [
                (_resource(r.group, r.resource), *_numbers(r.keys, r.readable, r.stale, r.decrypt_failures,
                                                           r.decode_failures, r.inconsistent, r.undetermined))
                for r in summary.by_resource
            ],
            range(1, 8),
        )  # fmt: skip
    if summary.by_cause:
        yield _Table(
            "By cause",
            ("Cause", "Outcome", "Count", "Example"),
            [(c.cause, c.outcome, str(c.count), fit(c.example)) for c in summary.by_cause],
            (2,),
        )
    if summary.by_transformer:
        yield _Table(
            "By encryption key",
            ("Transformer", "Rule", "Encryption key", "Values", "Failing", "Of them damaged", "Undetermined", "Stale",
             "First mod revision", "Last"),
            [
                (shown_transformer(t.transformer), ", ".join(t.resources), t.key_fingerprint or "",
                 *_numbers(t.keys, t.failures, t.damaged, t.undetermined, t.stale, t.first_mod_revision,
                           t.last_mod_revision))
                for t in summary.by_transformer
            ],
            range(3, 10),
        )  # fmt: skip
    if summary.kms is not None:
        yield from _kms(summary)


def _kms(summary: Summary) -> Iterator[_Table]:
    assert summary.kms is not None
    if summary.kms.keys:
        yield _Table(
            "KMS key ids",
            ("Provider", "Key id", "Values", "Opened", "First mod revision", "Last"),
            [
                (shown_transformer(k.transformer), k.key_id_sha256 or "(many)",
                 *_numbers(k.keys, k.opened, k.first_mod_revision, k.last_mod_revision))
                for k in summary.kms.keys
            ],
            range(2, 6),
        )  # fmt: skip
    if summary.kms.plugins:
        yield _Table(
            "KMS plugins",
            ("Provider", "Endpoint", "State", "Calls", "Unwrapped", "Refused", "Without an answer", "Its words"),
            [
                (shown_transformer(p.transformer), p.endpoint, p.state,
                 *_numbers(p.calls, p.unwrapped, p.refused, p.failed), fit(p.message))
                for p in summary.kms.plugins
            ],
            range(3, 7),
        )  # fmt: skip


def _numbers(*numbers: int) -> tuple[str, ...]:
    return tuple(str(number) if number else "–" for number in numbers)
