"""``etcdfix impact -o html``: one file to attach to a ticket; no scripts, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import BinaryIO

from etcdfix.graph.model import Decision, User
from etcdfix.reports.base import Output
from etcdfix.reports.formats.deletion_forecast import heading, state, verb, wait_cells
from etcdfix.reports.formats.impact_table import ABSENT, BASIS, STOPS, UNSEEN, grade
from etcdfix.reports.formats.text import incomplete, introduction, shown
from etcdfix.reports.head import head_lines
from etcdfix.reports.impact_model import ImpactReport
from etcdfix.text.words import counted

_MOST_ROWS = 10_000
_DEEPEST = 20
_BEHIND = 3

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.grade { display: inline-block; padding: .1rem .6rem; border-radius: .3rem; color: #fff; background: #666; }
.none { background: #4d7c4d; } .low { background: #8a6d00; } .high { background: #b3401a; }
.cluster-breaking { background: #8b0020; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; }
td, th { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
th { font-weight: 600; white-space: nowrap; } code, pre { font: 13px/1.4 ui-monospace, monospace; }
pre { background: #8882; padding: .5rem; white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; }
.muted { opacity: .75; } .stop { color: #c4331d; font-weight: 600; } li { margin: .5rem 0; }
.notice { border-left: .3rem solid #b3401a; padding-left: .8rem; }
"""
# Even a hole in the escaping could load and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_html(report: ImpactReport, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the report as a page of its own; each list stops at ten thousand rows."""
    output = Output(stream)
    for line in _page(report):
        output.line(line)


def _page(report: ImpactReport) -> Iterator[str]:
    title = f"{verb(report).capitalize()} {shown(report.object.key)}"
    yield "<!DOCTYPE html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>"
    for line in head_lines(report.at_stake, report.do_not_restart, report.next):
        yield f'<p class="notice">{_text(line, cut=False)}</p>'
    yield f"<h1>{_grade(report.risk, grade(report))} {_text(title)}</h1>"
    if report.reasons:
        yield from _table((), [(_grade(r.risk), _text(r.text)) for r in report.reasons])
    else:
        yield "<p>No reference that etcdfix follows leads to it.</p>"
    yield from _doubts(report)
    yield "<h2>What it is</h2>"
    yield from _table((), _facts(report))
    yield from _deletion(report)
    yield from _dependents(report)
    yield from _users(report)
    if report.finalizers and not (report.deletion is not None and report.deletion.possible):
        yield "<h2>Finalizers that an unsafe deletion skips</h2>"
        yield from _table(
            ("Finalizer", "Left undone", "Leaks", "Known"),
            [
                (
                    _code(f.name),
                    _text(f.consequence + (f" ({f.owner})" if f.owner else "")),
                    '<span class="stop">yes</span>' if f.leaks else "no",
                    _text(f.confidence),
                )
                for f in report.finalizers
            ],
        )
    if report.consequences:
        yield "<h2>What is special about it</h2>"
        yield from (f"<p>{_text(sentence)}</p>" for sentence in report.consequences)
    if report.remedies:
        yield "<h2>What to do next</h2><ol>"
        for remedy in report.remedies:
            command = f"<pre>{_text(remedy.command, cut=False)}</pre>" if remedy.command else ""
            note = f'<div class="muted">{_text(remedy.note)}</div>' if remedy.note else ""
            yield f"<li>{_text(remedy.action)}{command}{note}</li>"
        yield "</ol>"
    yield f'<p class="muted">{_text(introduction(report))} · {_text(report.generated_at)}</p>'
    yield "</body></html>"


def _doubts(report: ImpactReport) -> Iterator[str]:
    lines = list(incomplete(report))
    if report.unreadable_elsewhere or report.undetermined_elsewhere:
        lines.append(
            f"Not counted: whatever refers to it from {counted(report.unreadable_elsewhere, 'other object')} that "
            f"cannot be read and {report.undetermined_elsewhere} that could not be judged."
        )
    if lines:
        yield f'<p class="notice">{"<br>".join(map(_text, lines))}</p>'


def _facts(report: ImpactReport) -> Iterator[tuple[str, str]]:
    finding, known = report.finding, report.last_known
    yield "object", _text(shown(report.object))
    if report.object.key_base64 is not None:
        yield "key, base64", _code(report.object.key_base64)
    if finding is None:
        yield "stored", _text(UNSEEN if report.exists is None else ABSENT)
    else:
        cause = f" ({finding.cause})" if finding.cause is not None else ""
        yield "stored", _text(f"{finding.outcome}{cause}: {finding.message}" if cause else finding.outcome)
    basis = BASIS[known.basis].format(known.mod_revision)
    yield (
        "uid",
        f"{_code(known.uid or 'unknown')} {_text(f'({known.confidence}, {basis})' if known.uid else basis)}",
    )
    if known.conflicting_uids:
        yield (
            "other uids",
            "<br>".join(f"{_code(u)} ×{n}" for u, n in list(known.conflicting_uids.items())[:5]),
        )
    if report.namespace_terminating is not None:
        yield "namespace", _text(f"Terminating since {report.namespace_terminating or 'some time'}")
    if report.node:
        yield "node", _text(report.node)
    if report.secret is not None:
        yield "type", _text(report.secret.type or "unknown")
        in_use = (
            "opted out" if report.secret.opted_out else "in use" if report.secret.protected else "not in use"
        )
        yield "KEP-2639", _text(in_use)


def _deletion(report: ImpactReport) -> Iterator[str]:
    found = report.deletion
    if found is None:
        return
    yield f"<h2>{_text(heading(found))}</h2>"
    yield f"<p>{_text(state(found))}</p>"
    if found.waits:
        yield from _table(
            ("Held up by", "Ended by", "Waits for", "Holds", "Objects"),
            [
                (
                    _text(held),
                    _text(ended),
                    _text(text),
                    "the object too" if w.holds_object else "",
                    _text(names),
                )
                for w in found.waits
                for held, ended, text, names in [wait_cells(w, report.object)]
            ],
        )
    yield from (f"<p>{_text(note)}</p>" for note in found.notes)


def _dependents(report: ImpactReport) -> Iterator[str]:
    yield "<h2>What the garbage collector does</h2>"
    counts = {action: count for action, count in report.dependents.counts.items() if count}
    columns = ("Dependent", "What happens", "Remarks")
    if counts:
        yield f"<p>{_text(', '.join(f'{count} {action}' for action, count in counts.items()))}</p>"
        tree = report.dependents.tree
        yield from _table(columns, map(_dependent, tree[:_MOST_ROWS]))
        yield from _more(len(tree))
    else:
        yield "<p>Nothing that can be read is owned by it.</p>"
    caught_up = report.dependents.caught_up
    if caught_up:
        yield "<p>What it then catches up with:</p>"
        yield from _table(columns, map(_dependent, caught_up[:_MOST_ROWS]))
        yield from _more(len(caught_up))
    yield from (f"<p>{_text(warning)}</p>" for warning in report.dependents.warnings)


def _dependent(entry: Decision) -> tuple[str, str, str]:
    indent = min(entry.depth - 1, _DEEPEST) * 1.5
    remarks = [f"{o.kind} {o.name}: {o.reason}" for o in entry.owners if o.reason][:_BEHIND]
    if entry.stays:
        remarks.append(f"only Terminating: waits for {entry.stays}")
    elif entry.after_finalizers:
        remarks.append(f"after {', '.join(entry.after_finalizers)}")
    if entry.already_terminating:
        remarks.append("was being deleted already")
    if entry.uncertain:
        remarks.append(entry.uncertain)
    action = _text(entry.action + (f" ({entry.propagation})" if entry.propagation else ""))
    mark = f'<span class="stop">{action}</span>' if entry.action == "cascade-deleted" else action
    name = f'<div style="padding-left: {indent:g}em">{_text(shown(entry.object))}</div>'
    return name, mark, "<br>".join(map(_text, remarks))


def _users(report: ImpactReport) -> Iterator[str]:
    yield "<h2>Who uses it</h2>"
    if not report.user_count:
        yield "<p>Nothing that can be read refers to it.</p>"
        return
    rows: list[User] = [user for group in report.users for user in group.users]
    yield from _table(("How", "User", "Without it", "Field"), map(_user, rows[:_MOST_ROWS]))
    yield from _more(report.user_count, min(_MOST_ROWS, len(rows)))


def _user(user: User) -> tuple[str, str, str, str]:
    effect = f"{STOPS[user.stops]}: {user.consequence}" if user.stops is not None else ""
    optional = user.optional and user.stops is None
    marks = {
        "optional": optional,
        "by template": user.template,
        "likely, not certain": user.heuristic,
        "pods made from it later": user.in_pod_template,
    }
    notes = [mark for mark, present in marks.items() if present]
    if user.behind_count:
        notes.append(f"{counted(user.behind_count, 'pod')} behind it")
    text = "; ".join([effect, *notes] if effect else notes)
    mark = f'<span class="stop">{_text(text)}</span>' if user.stops == "yes" else _text(text)
    return _text(user.role), _text(shown(user.object)), mark, _code(user.path)


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table; cells are markup already."""
    yield "<table>"
    if columns:
        yield f"<tr>{''.join(f'<th>{escape(column)}</th>' for column in columns)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</table>"


def _more(count: int, most: int = _MOST_ROWS) -> Iterator[str]:
    if count > most:
        yield f'<p class="muted">… {count - most} of {count} not shown; -o json shows them.</p>'


def _grade(risk: str, words: str = "") -> str:
    return f'<span class="grade {escape(risk)}">{escape(words or risk)}</span>'


def _code(text: str) -> str:
    return f"<code>{_text(text)}</code>"


def _text(text: str, *, cut: bool = True) -> str:
    """Return foreign text as markup: nothing in it is a tag, an attribute or an entity."""
    return escape(shown(text) if cut else text)
