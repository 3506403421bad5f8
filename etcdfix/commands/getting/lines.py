"""What ``get`` says beside its output: what is wrong with a value, why nothing was found, and what to do next."""

from __future__ import annotations

from collections.abc import Callable

from etcdfix.commands.get import DEFAULT_NAMESPACE, GetRequest, GetResult
from etcdfix.commands.getting.output import WRONG
from etcdfix.in_scope import why_missing
from etcdfix.model import Outcome, ReadableRevision
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report.advice.ways import first_way
from etcdfix.report.objects import Form, Shown, message_of
from etcdfix.report.tally import Stakes
from etcdfix.resource_words import is_cluster_scoped
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text.commands import scan
from etcdfix.text.words import counted

_MOST_LINES = 20


class Lines:
    """Says what is wrong with a value: one line each in a list, with the way out for a single one."""

    def __init__(
        self,
        request: GetRequest,
        *,
        say: Callable[[str], None],
        say_next: Callable[[str, str], None],
        quiet: bool = False,
    ) -> None:
        self._request, self._say, self._next, self._quiet = request, say, say_next, quiet
        self._run = request.run
        self._count = 0
        self._stakes = Stakes(past=self._run.of_the_past)

    def of(self, shown: Shown, written: bool, readable: ReadableRevision | None) -> None:
        """Say what there is to say of a value."""
        if self._quiet:
            return
        found, many = shown.found, self._request.wanted.many
        key, verdict = display(found.stored.key), found.verdict
        if verdict.outcome in WRONG:
            self._stakes.add(found)
            cause = f" ({verdict.cause.value})" if verdict.cause is not None else ""
            told = message_of(found, secret=shown.secret and not self._request.reveal)
            line = f"{key}: {verdict.outcome.value}{cause}: {told}"
            if many:
                place = "" if written else "; not in the list"
                if written and shown.irreplaceable:
                    place = "; its resourceVersion is no number, so no API server takes it"
                self._line(line + place)
                return
            if shown.form is Form.SALVAGE and written:
                self._say("NOT THE OBJECT: this is what is left of it")
            self._say(line)
            self._way_out(shown, readable)
            if shown.irreplaceable and not shown.masked:
                self._say("do not pipe this into kubectl: the object is not the one that its key names")
        elif shown.problem:
            self._line(f"{key}: {shown.problem}, {counted(len(found.stored.value), 'byte')}")
            if not many:
                self._next("--raw writes its bytes to a file", "")
        elif verdict.outcome is Outcome.NOT_AN_OBJECT:
            self._line(f"{key}: no API object; it is bookkeeping, or outside {self._request.layout.prefix}")

    def _way_out(self, shown: Shown, readable: ReadableRevision | None) -> None:
        for line in self._stakes.lines():
            self._say(line)
        first = first_way(ways_at_hand(shown.found, self._run, readable))
        if first is None:
            return
        command = first.command.line(self._run)
        if shown.whole and not shown.irreplaceable and "kubectl replace" in command:
            self._next("kubectl replace -f - heals the object with this output", "")
        else:
            self._next(first.action, command)

    def not_found(self, source: Source) -> None:
        """Say that nothing was found, and why that may be."""
        wanted, layout = self._request.wanted, self._request.layout
        if wanted.key is not None:
            self._say(f"nothing is stored under {display(wanted.key)}")
        for named in wanted.objects:
            what = f"{named.resource} {', '.join(map(repr, named.names))}: not found" if named.names else ""
            self._say((what or f"no {named.resource}") + self._where(named.resource))
        hint = why_missing(source, layout, wanted.key)
        if hint:
            self._next(hint, "")
        elif not wanted.all_namespaces and any(self._where(named.resource) for named in wanted.objects):
            self._next("-A looks in all namespaces", "")

    def end(self, result: GetResult, source: Source) -> None:
        """Say what the whole output lacks."""
        if self._count > _MOST_LINES:
            self._say(f"and {self._count - _MOST_LINES} more: -o wide lists 100")
        lines = self._stakes.lines() if self._request.wanted.many else []
        for line in lines:
            self._say(line)
        if lines:
            self._next("see what each needs", scan(*self._request.wanted.types).line(self._run))
        for problem in result.problems:
            self._say(f"incomplete: {problem}")
        if result.masked:
            masked = counted(result.masked, "value")
            self._say(f"{masked} masked: do not pipe this into kubectl; --reveal shows them")
        if result.ended is not None:
            self._say(f"{result.ended.reason} before the end: what is shown is not everything")
        elif not result.seen and result.problems:
            self._say("nothing was found, and not everything could be read")
        elif not result.seen:
            self.not_found(source)
        else:
            for resource, name in result.missing:
                self._say(f"{resource} {name!r}: not found{self._where(resource)}")

    def _where(self, resource: str) -> str:
        wanted = self._request.wanted
        if is_cluster_scoped(resource):
            return ""
        if wanted.all_namespaces:
            return " in any namespace"
        return f" in namespace {wanted.namespace or DEFAULT_NAMESPACE}"

    def _line(self, text: str) -> None:
        self._count += 1
        if self._count <= _MOST_LINES:
            self._say(text)
