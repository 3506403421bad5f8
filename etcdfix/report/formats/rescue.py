"""Formats of ``etcdfix rescue``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

from etcdfix.model import GroupResource, Outcome
from etcdfix.report.base import Output
from etcdfix.report.formats.machine import write_document, write_yaml
from etcdfix.report.formats.text import shown
from etcdfix.report.rescue_model import SAVED_STATES, Rescued, RescuedObject, RescueKind, RescueReport
from etcdfix.rescued import INDEX_NAME, Fit
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_MOST_GROUPS: Final = 10
_MOST_KEYS: Final = 5
_OUTCOMES: Final = frozenset(Outcome)


def write_table(report: RescueReport, stream: BinaryIO) -> None:
    """Write what is saved in numbers, what to do next, the kinds, the servers, and the objects that are not saved."""
    output = Output(stream)
    output.lines(_head(report))
    output.line()
    heads = ("KIND", "OBJECTS", "SAVED", "BEFORE", "OLDER", "READABLE", "NOT HELD", "REFUSED", "NOT ASKED")
    output.table(heads, [_kind_row(kind) for kind in report.kinds])
    output.line()
    rows = [
        (
            shown(one.server),
            "yes" if one.asked else "no",
            str(one.requests),
            str(one.given),
            safe_text(one.detail) or "-",
        )
        for one in report.servers
    ]
    output.table(
        ("API SERVER", "ASKED", "REQUESTS", "GAVE", "WHAT IT LACKS"), rows, key="WHAT IT LACKS", prose=True
    )
    output.lines(_not_saved(report))
    if report.warnings:
        output.line()
        for warning in report.warnings:
            output.line(f"warning: {safe_text(warning)}")
    if report.incomplete_reasons:
        output.line()
        output.line("INCOMPLETE: not everything is saved as etcd has it.")
        for reason in report.incomplete_reasons:
            output.line(f"  - {safe_text(reason)}")


def _head(report: RescueReport) -> Iterator[str]:
    saved = sum(one.state in SAVED_STATES for one in report.objects)
    needless = sum(one.state is Rescued.READABLE for one in report.objects)
    wanted = len(report.objects) - needless
    more = f"; {counted(needless, 'more object')} can be read and need no rescue" if needless else ""
    yield f"{saved} of {counted(wanted, 'unreadable object')} saved in {safe_text(report.directory)}{more}."
    for why, number in sorted(report.left_out.items()):
        if why not in _OUTCOMES:
            yield f"{counted(number, 'other')} that the report names were not asked for: {why.replace('-', ' ')}"
    yield "Do not restart an API server, and delete none of these objects: either ends what servers still hold."
    uid = shown(report.kube_system_uid or "unknown")
    yield f"etcdfix {report.tool.version} · kube-system uid {uid} · index {safe_text(report.directory)}/{INDEX_NAME}"
    yield f"Digests are on record in {safe_text(report.audit_log)}. The files hold contents unmasked."
    yield from _next(report)


def _next(report: RescueReport) -> Iterator[str]:
    for number, step in enumerate(report.next):
        yield f"{'Next: ' if number == 0 else ''}{safe_text(step.action)}:"
        yield f"  {safe_text(step.command.text)}"
        if step.note:
            yield f"  {safe_text(step.note)}"


def _kind_row(kind: RescueKind) -> tuple[str, ...]:
    numbers = (
        kind.objects, kind.saved, kind.already_saved, kind.older, kind.readable, kind.not_held, kind.refused,
        kind.not_asked,
    )  # fmt: skip
    return shown(GroupResource(kind.group, kind.resource)), *map(str, numbers)


def _not_saved(report: RescueReport) -> Iterator[str]:
    missing = [one for one in report.objects if one.state not in SAVED_STATES | {Rescued.READABLE}]
    older = [one for one in report.objects if one.state in SAVED_STATES and one.fit is Fit.OLDER]
    if missing:
        yield ""
        yield f"Not saved ({len(missing)}):"
        yield from _grouped(
            missing, lambda one: f"{one.state}: {one.detail}" if one.detail else one.state.value
        )
    if older:
        yield ""
        yield f"Saved in an older state than etcd has, without the last write ({len(older)}):"
        yield from _grouped(
            older,
            lambda one: f"saved at {one.resource_version}, in etcd at {one.mod_revision} ({one.server})",
        )


def _grouped(objects: list[RescuedObject], said: Callable[[RescuedObject], str]) -> Iterator[str]:
    """Yield what is said of objects, each once, with the keys of some of which it is said."""
    groups: dict[str, list[RescuedObject]] = {}
    for one in objects:
        groups.setdefault(said(one), []).append(one)
    for text, members in [*groups.items()][:_MOST_GROUPS]:
        yield f"  {safe_text(text)}"
        yield from (f"    {shown(one.key)}" for one in members[:_MOST_KEYS])
        if len(members) > _MOST_KEYS:
            yield f"    … {len(members) - _MOST_KEYS} more; -o json shows them"
    if len(groups) > _MOST_GROUPS:
        yield f"  … {len(groups) - _MOST_GROUPS} more reasons; -o json shows them"


RESCUE_FORMATS: Final[Mapping[str, Callable[[RescueReport, BinaryIO], None]]] = {
    "table": write_table,
    "json": write_document,
    "yaml": write_yaml,
}
"""What ``-o`` takes."""
