"""``scan -o html``: one file for the incident call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Final

from etcdfix.model import Outcome
from etcdfix.reports.base import Reporter, fit
from etcdfix.reports.formats.page import (
    MOST_ROWS,
    SEVERITIES,
    Block,
    Column,
    Fold,
    Grid,
    Page,
    Section,
    Table,
    Text,
    badge_of,
    ways,
    ways_block,
    write_page,
)
from etcdfix.reports.formats.text import scan_introduction, shown_transformer
from etcdfix.reports.head import counts_as_incomplete, found_line
from etcdfix.reports.model import (
    Conclusion,
    Finding,
    Header,
    LostKey,
    SharedWords,
    Summary,
    ValueKind,
)
from etcdfix.reports.next_steps import next_steps
from etcdfix.text.words import counted

_COLUMNS: Final = (
    Column("Severity", "mark", choose=True, order=SEVERITIES),
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
_MOST_KINDS: Final = 500
_RESERVED_ROWS: Final = 1_000
"""So many more find a place, each of a kind that the page has not enough of yet."""
_ENOUGH: Final = 20
_APISERVER: Final = {
    "corrupt": "calls it corrupt",
    "serves": "serves it",
    "serves-empty": "serves an empty object",
    "breaks-list": "serves it, and JSON LISTs that contain it fail",
    "not-asked": "is not asked for it",
}


class HTMLReporter(Reporter):
    """Writes a page of its own.

    Findings stop at :data:`~etcdfix.reports.formats.page.MOST_ROWS`, but for a few of each kind; counts never do.

    Args:
        stream: Binary output.
        most: So many findings find a place.
    """

    def __init__(self, stream: BinaryIO, *, most: int = MOST_ROWS) -> None:
        self._stream = stream
        self._most = most
        self._grid = Grid(
            "findings", "Findings", _COLUMNS, facts=_FACTS, sort="Severity", most=most + _RESERVED_ROWS
        )
        self._kinds: Counter[tuple[str | None, str, str]] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._left_out = 0
        self._header: Header | None = None

    def begin(self, header: Header) -> None:
        """Keep the header until the source's last word is known."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Put one aside, where there is room."""
        if self._take(finding):
            self._add(
                finding, finding.message, [_evidence(finding), ways_block("Ways out", finding.remedies)]
            )

    def finding_of_lost_key(self, finding: Finding, shared: SharedWords) -> None:
        """Put one aside that says the same as many others, which stands in the page once."""
        if self._take(finding):
            many = Block(
                "evidence", "What was checked", [(e.check, e.result, e.detail) for e in shared.evidence]
            )
            ways = Block("text", "Ways out", [(_OF_A_LOST_KEY,)])
            self._add(finding, shared.message, [many, _evidence(finding, "Of this value alone"), ways])

    def _take(self, finding: Finding) -> bool:
        """Count a finding, and say whether the page takes it."""
        self._outcomes[finding.outcome] += 1
        kind = (finding.cause, finding.group, finding.resource)
        known = kind in self._kinds or len(self._kinds) < _MOST_KINDS
        few = known and self._kinds[kind] < _ENOUGH
        shown = self._grid.shown
        taken = shown < self._most or (few and shown < self._most + _RESERVED_ROWS)
        if not taken:
            self._left_out += 1
        elif known:
            self._kinds[kind] += 1
        return taken

    def _add(self, finding: Finding, message: str, blocks: Iterable[Block]) -> None:
        cells = (
            finding.severity or "", finding.outcome, finding.cause or "", _resource(finding.group, finding.resource),
            (finding.key, message), finding.mod_revision,
        )  # fmt: skip
        self._grid.add(cells, _facts(finding), blocks)

    def end(self, conclusion: Conclusion) -> None:
        """Write the page."""
        assert self._header is not None  # begin() comes first
        summary = conclusion.summary
        if self._left_out:
            self._grid.notes.append(
                f"{self._left_out} of {counted(sum(self._outcomes.values()), 'finding')} are not in this page. It has "
                f"{self._grid.shown}: the first by etcd key, and some of each cause and resource. Counts are of "
                "all; -o json has every finding."
            )
        undecided = not conclusion.complete or bool(summary.undetermined)
        badge, tone = badge_of(summary.severity, undecided=undecided)
        warnings = sum(self._outcomes[outcome] for outcome in (Outcome.READABLE, Outcome.NOT_AN_OBJECT))
        page = Page(
            title=f"etcdfix scan: {badge}",
            badge=badge,
            tone=tone,
            headline=found_line(
                self._header,
                summary,
                conclusion.incomplete_reasons,
                interrupted=conclusion.interrupted,
                warnings=warnings,
            ),
            lines=[summary.at_stake] if summary.at_stake else [],
            warning=summary.do_not_restart,
            next=summary.next,
            incomplete=_reasons(conclusion)
            if counts_as_incomplete(summary, conclusion.incomplete_reasons)
            else None,
            sections=list(self._sections(conclusion)),
            foot=scan_introduction(self._header, conclusion.source),
        )
        write_page(page, self._stream)

    def _sections(self, conclusion: Conclusion) -> Iterator[Section]:
        summary = conclusion.summary
        if summary.key_loss:
            yield _losses(summary.key_loss)
        if self._grid.count:
            yield Section("Findings", [self._grid])
        steps = next_steps(summary, of_kine=conclusion.source.type == "kine")
        if steps:
            yield Section(
                "What to do, in this order", [Text([f"{n}. {step}" for n, step in enumerate(steps, start=1)])]
            )
        yield Section("All counts", list(_tables(summary)))


_OF_A_LOST_KEY: Final = (
    "Its encryption key is lost: the ways out are the same for all of its values, and stand above."
)


def _reasons(conclusion: Conclusion) -> list[str]:
    first = ["It was interrupted: keys after the last one shown were not examined."]
    return [*(first if conclusion.interrupted else []), *conclusion.incomplete_reasons]


def _resource(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def _evidence(finding: Finding, title: str = "What was checked") -> Block:
    return Block("evidence", title, [(e.check, e.result, e.detail) for e in finding.evidence])


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


def _losses(losses: Sequence[LostKey]) -> Section:
    parts: list[Text | Fold] = []
    for lost in losses:
        key = f" ({lost.key_fingerprint})" if lost.key_fingerprint else ""
        first, last = lost.first_mod_revision, lost.last_mod_revision
        written = f"mod_revision {first}" + (f" to {last}" if last != first else "")
        whose = f"{shown_transformer(lost.transformer)}{key}, rule {lost.rule or 'none'}"
        what = f"{', '.join(lost.resources)}; written at {written}."
        lines = [f"{lost.failures} of {counted(lost.of, 'value')} under {whose}, cannot be read: {what}"]
        lines += dict.fromkeys(f"They are {words.message}." for words in lost.shared if words.message)
        parts.append(Text([fit(line, 2_000) for line in lines]))
        if lost.remedies:
            parts.append(Fold(f"Ways out for all {lost.failures} of them", [ways(lost.remedies)]))
    title = (
        "An encryption key is lost, or the configuration lacks it: delete none of its values"
        if len(losses) == 1
        else f"{len(losses)} encryption keys are lost, or the configuration lacks them: delete none of their values"
    )
    return Section(title, parts, "loss")


# ------------------------------------------------------------------------------------------------------ tables


def _tables(summary: Summary) -> Iterator[Table]:
    yield Table(
        "Everything that was examined",
        ("Keys", *_OUTCOMES, "No objects"),
        [_numbers(summary.keys, summary.readable, summary.stale, summary.decrypt_failures, summary.decode_failures,
                  summary.inconsistent, summary.undetermined, summary.not_objects)],
        range(8),
    )  # fmt: skip
    if summary.by_severity:
        yield Table(
            "At stake",
            ("Severity", "Resource", "Values", "Now", "At the next start of an API server"),
            [
                (s.severity, _resource(s.group, s.resource), str(s.count), s.now, s.at_restart)
                for s in summary.by_severity
            ],
            (2,),
        )
    if summary.by_resource:
        yield Table(
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
        yield Table(
            "By cause",
            ("Cause", "Outcome", "Count", "Example"),
            [(c.cause, c.outcome, str(c.count), fit(c.example)) for c in summary.by_cause],
            (2,),
        )
    if summary.by_transformer:
        yield Table(
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


def _kms(summary: Summary) -> Iterator[Table]:
    assert summary.kms is not None
    if summary.kms.keys:
        yield Table(
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
        yield Table(
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
