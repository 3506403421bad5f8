"""``-o table`` and ``-o wide``: for a person at a terminal, at an hour when nobody reads twice."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import BinaryIO

from etcdfix.claims import KEY_NAME_CHECK, PREDECESSOR_CHECK
from etcdfix.report.base import Output, Reporter, fit
from etcdfix.report.formats.text import scan_introduction, shown_transformer
from etcdfix.report.head import counts_as_incomplete, found_line, head_lines
from etcdfix.report.model import Conclusion, Finding, Header, KMSSummary, Summary
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_MOST_STAKES = 3
_WIDTH = 80
_COLUMNS = ("OUTCOME", "CAUSE", "KEY", "WHAT IS WRONG")
_WIDE_COLUMNS = ("OUTCOME", "CAUSE", "KEY", "TRANSFORMER", "MOD REVISION", "BYTES", "API SERVER", "WHAT IS WRONG",
                 "API SERVER'S WORDS")  # fmt: skip


class TableReporter(Reporter):
    """Writes findings as a table, then counts by resource, cause and transformer, then what to do next.

    Rows stop at ``max_rows`` as the API server's list does at 100; counts never stop.

    Args:
        stream: Binary output.
        wide: Add transformer, mod_revision, size, and the API server's behaviour and wording.
        max_rows: The cap.
    """

    def __init__(self, stream: BinaryIO, *, wide: bool, max_rows: int) -> None:
        self._output = Output(stream)
        self._wide = wide
        self._max_rows = max_rows
        self._rows: list[tuple[str, ...]] = []
        self._count = 0
        self._warnings = 0
        self._damaged_names = 0
        self._first_damaged_name: tuple[str, str] | None = None
        self._header: Header | None = None

    def begin(self, header: Header) -> None:
        """Keep the header; it is printed with the source's last word."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Keep one row, up to the cap."""
        self._look_at_name(finding)
        if finding.outcome == "readable":
            self._warnings += 1
            return
        self._count += 1
        if len(self._rows) >= self._max_rows:
            return
        key = safe_text(finding.key)
        row = [finding.outcome, finding.cause or "", key]
        if self._wide:
            row += [
                shown_transformer(finding.transformer), str(finding.mod_revision), str(finding.value_size),
                finding.apiserver,
            ]  # fmt: skip
        row.append(safe_text(finding.message) + (" (known)" if finding.baseline else ""))
        if self._wide:
            row.append(safe_text(finding.upstream_message))
        self._rows.append(tuple(fit(safe_text(cell)) for cell in row))

    def _look_at_name(self, finding: Finding) -> None:
        """Count a key whose own name may be damaged, and keep the first: the API server does not see such objects."""
        details = [e.detail for e in finding.evidence if e.check in {KEY_NAME_CHECK, PREDECESSOR_CHECK}]
        if not details:
            return
        self._damaged_names += 1
        self._first_damaged_name = self._first_damaged_name or (safe_text(finding.key), safe_text(details[0]))

    def end(self, conclusion: Conclusion) -> None:
        """Print everything."""
        assert self._header is not None  # begin() comes first
        line, summary = self._output.line, conclusion.summary
        line(
            found_line(
                self._header,
                summary,
                conclusion.incomplete_reasons,
                interrupted=conclusion.interrupted,
                warnings=self._warned(conclusion),
            )
        )
        self._output.lines(head_lines(summary.at_stake, summary.do_not_restart, summary.next))
        line()
        self._output.lines(scan_introduction(self._header, conclusion.source))
        line()
        if self._rows:
            self._table(_WIDE_COLUMNS if self._wide else _COLUMNS, self._rows, key="KEY")
            if self._count > len(self._rows):
                line(
                    f"shown: {len(self._rows)} of {counted(self._count, 'finding')}; see all with -o json, or "
                    f"--max-causes {self._count}"
                )
            line()
        self._counts(summary)
        self._output.lines(_result(conclusion, self._count, self._warnings))
        if self._first_damaged_name is not None:
            line(
                f"Keys whose own name may be damaged: {self._damaged_names} (-o json or -o yaml shows each). "
                "The first:"
            )
            key, detail = self._first_damaged_name
            line(f"  {key}")
            line(f"    {detail}")
        if summary.by_severity:
            line()
            line("At stake")
            for stake in summary.by_severity[:_MOST_STAKES]:
                what = f"{stake.resource}.{stake.group}" if stake.group else stake.resource
                text = f"{stake.severity}, {counted(stake.count, 'value')} of {what}: {stake.now} {stake.at_restart}"
                self._output.lines(
                    wrap(safe_text(text), _WIDTH, initial_indent="  ", subsequent_indent="    ")
                )
            if len(summary.by_severity) > _MOST_STAKES:
                line(f"  and {len(summary.by_severity) - _MOST_STAKES} more: by_severity of -o json")

    def _warned(self, conclusion: Conclusion) -> int:
        """Return how many keys have a warning and are not wrong."""
        summary = conclusion.summary
        bad = summary.decrypt_failures + summary.decode_failures + summary.inconsistent
        return self._warnings + self._count - bad - summary.undetermined

    def _counts(self, summary: Summary) -> None:
        if summary.by_resource:
            self._table(
                ("RESOURCE", "KEYS", "READABLE", "STALE", "DECRYPT-FAILURE", "DECODE-FAILURE", "INCONSISTENT",
                 "UNDETERMINED"),
                [
                    (
                        safe_text(f"{r.resource}.{r.group}" if r.group else r.resource),
                        *(_number(n) for n in (
                            r.keys, r.readable, r.stale, r.decrypt_failures, r.decode_failures, r.inconsistent,
                            r.undetermined,
                        )),
                    )
                    for r in summary.by_resource
                    if self._wide or r.keys != r.readable or r.stale
                ],
                spare=("READABLE", "STALE"),
            )  # fmt: skip
            healthy = [r for r in summary.by_resource if r.keys == r.readable and not r.stale]
            if healthy and not self._wide:
                keys = sum(r.keys for r in healthy)
                self._output.line(
                    f"and {counted(len(healthy), 'more resource')} with {counted(keys, 'key')}, all readable "
                    "(-o wide lists them)"
                )
            self._output.line()
        if summary.by_cause:
            self._table(
                ("CAUSE", "OUTCOME", "COUNT", "EXAMPLE"),
                [(c.cause, c.outcome, str(c.count), safe_text(c.example)) for c in summary.by_cause],
                key="EXAMPLE",
            )
            self._output.line()
        if summary.by_transformer:
            self._table(
                (
                    "TRANSFORMER", "RULE", "ENCRYPTION KEY", "KEYS", "FAILING", "OF THEM DAMAGED", "UNDETERMINED",
                    "STALE", "FIRST MOD REVISION", "LAST",
                ),
                [
                    (
                        shown_transformer(t.transformer), safe_text(",".join(t.resources)), t.key_fingerprint or "",
                        str(t.keys), _number(t.failures), _number(t.damaged), _number(t.undetermined),
                        _number(t.stale),
                        str(t.first_mod_revision), str(t.last_mod_revision),
                    )
                    for t in summary.by_transformer
                ],
                spare=("STALE", "FIRST MOD REVISION", "LAST"),
            )  # fmt: skip
            self._output.line()
        if summary.kms is not None:
            self._kms(summary.kms)

    def _kms(self, kms: KMSSummary) -> None:
        keys = [key for key in kms.keys if key.key_id_sha256 is not None]
        if keys:
            self._table(
                ("KMS KEY ID", "PROVIDER", "KEYS", "OPENED", "FIRST MOD REVISION", "LAST"),
                [
                    (
                        k.key_id_sha256 or "", shown_transformer(k.transformer), str(k.keys), _number(k.opened),
                        str(k.first_mod_revision), str(k.last_mod_revision),
                    )
                    for k in keys
                ],
            )  # fmt: skip
            self._output.line()
        asked = [plugin for plugin in kms.plugins if plugin.calls]
        for plugin in asked:
            self._output.line(
                f"KMS plugin of {safe_text(plugin.transformer)} at {safe_text(plugin.endpoint)}: {plugin.state}, "
                f"{counted(plugin.calls, 'call')}, {counted(plugin.unwrapped, 'data key')} unwrapped"
                + (f", {plugin.refused} refused" if plugin.refused else "")
                + (f", {plugin.failed} without an answer" if plugin.failed else "")
            )
        if asked:
            self._output.line()

    def _table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        key: str = "",
        spare: Sequence[str] = (),
    ) -> None:
        if rows:
            self._output.table(columns, [[fit(cell) for cell in row] for row in rows], key=key, spare=spare)


def _number(value: int) -> str:
    return str(value) if value else "-"


def _result(conclusion: Conclusion, findings: int, warnings: int) -> list[str]:
    summary = conclusion.summary
    bad = summary.decrypt_failures + summary.decode_failures + summary.inconsistent
    parts = [f"{counted(summary.keys, 'key')} examined", f"{summary.readable} readable"]
    if summary.stale:
        parts.append(f"{summary.stale} of them stale")
    parts += [f"{bad} unreadable or inconsistent", f"{summary.undetermined} undetermined"]
    lines = [", ".join(parts) + f", {summary.not_objects} not an object."]
    if summary.known_findings:
        lines.append(f"Known from the baseline: {summary.known_findings} of {counted(findings, 'finding')}.")
    if warnings:
        lines.append(f"Readable, but with a warning: {warnings} (-o json or -o yaml shows it).")
    if conclusion.interrupted:
        lines.append("INTERRUPTED: keys after the last one shown were not examined.")
    if not conclusion.complete:
        lacks = counts_as_incomplete(summary, conclusion.incomplete_reasons)
        lines.append(
            "INCOMPLETE: this scan did not see or could not decide everything."
            if lacks
            else "Known from the baseline: this scan could not decide everything."
        )
        lines += [f"  - {safe_text(reason)}" for reason in conclusion.incomplete_reasons]
    return lines
