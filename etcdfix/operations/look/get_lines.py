"""What ``get`` says beside its output: what is wrong with a value, why nothing was found, and what to do next."""

from __future__ import annotations

from collections.abc import Callable

from etcdfix.model import Outcome, ReadableRevision
from etcdfix.operations.look.get import DEFAULT_NAMESPACE, GetRequest, GetResult
from etcdfix.operations.look.missing import why_missing
from etcdfix.report.head import Stakes, stakes_of
from etcdfix.report.next_steps import first_way_out
from etcdfix.report.printers.objects import Form, Shown, message_of
from etcdfix.report.remedies import ways_out
from etcdfix.report.ways import WayKind
from etcdfix.resource_words import is_cluster_scoped
from etcdfix.sources.base import Source, has_keys
from etcdfix.storagekey import display
from etcdfix.text.words import counted
from etcdfix.verdicts.examination import Examination

WRONG = frozenset(
    {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.INCONSISTENT, Outcome.UNDETERMINED}
)
_MOST_LINES = 20


_TOLD_BESIDES = {WayKind.PUT_BACK, WayKind.SAVE, WayKind.RESCUE, WayKind.REPAIR}


class Lines:
    """Says what is wrong with a value: one line each in a list, with the way out for a single one.

    Args:
        request: What is shown.
        say: Takes a line.
        say_next: Takes what to do next, and a command for that, "" for none.
        quiet: The list says itself what is wrong.
    """

    def __init__(
        self,
        request: GetRequest,
        *,
        say: Callable[[str], None],
        say_next: Callable[[str, str], None],
        quiet: bool = False,
    ) -> None:
        self._request = request
        self._again = request.same_again
        self._say = say
        self._next = say_next
        self._quiet = quiet
        self._count = 0
        self._stakes = Stakes(past=self._again.of_the_past)

    def of(self, shown: Shown, written: bool) -> None:
        """Say what there is to say of a value; ``written``: the output shows something of it."""
        found = shown.found
        many = self._request.wanted.many
        hidden = shown.secret and not self._request.reveal
        if found.verdict.outcome in WRONG:
            if many:
                place = "" if written else "; not in the list"
                if written and shown.irreplaceable:
                    place = "; not for kubectl: it has no resourceVersion"
                if not self._quiet:
                    self._line(_verdict(found, secret=hidden) + place)
                self._stakes.add(found)
                return
            if shown.form is Form.SALVAGE and written:
                self._say("NOT THE OBJECT: what is shown is what is left of it")
            whole = shown.whole and not shown.irreplaceable
            self.explain(found, secret=hidden, readable=shown.readable, object_shown=whole)
            if shown.irreplaceable and not shown.masked:
                self._say("do not pipe this into kubectl: the object is not the one that its key names")
        elif shown.problem:
            self._line(
                f"{display(found.stored.key)}: {shown.problem}, {counted(len(found.stored.value), 'byte')}"
            )
            if not many:
                self._next("--raw writes its bytes to a file", "")
        elif found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            prefix = self._request.layout.prefix
            self._line(f"{display(found.stored.key)}: no object of the API: bookkeeping, or outside {prefix}")

    def explain(
        self,
        found: Examination,
        *,
        secret: bool,
        readable: ReadableRevision | None = None,
        object_shown: bool = False,
    ) -> None:
        """Say what is wrong and at stake with a value, the first way out, and the earlier revision that still reads."""
        self._say(_verdict(found, secret=secret))
        for line in stakes_of([found], past=self._again.of_the_past).lines():
            self._say(line)
        ways = ways_out(found, self._again, readable=readable)
        first = first_way_out(ways)
        also = [way.remedy for way in ways if way.remedy != first and way.kind in _TOLD_BESIDES]
        for remedy in [*filter(None, [first]), *also]:
            if object_shown and "kubectl replace" in remedy.command.text:
                self._next("kubectl replace -f - heals the object with this output", "")
            else:
                self._next(remedy.action, remedy.command.text)

    def not_found(self, source: Source) -> None:
        """Say that nothing was found, and what may be the reason."""
        wanted, layout = self._request.wanted, self._request.layout
        if wanted.key is not None:
            self._say(f"nothing is stored under {display(wanted.key)}")
            hint = why_missing(source, layout, wanted.key)
            if hint:
                self._next(hint, "")
            return
        for named in wanted.objects:
            where = self._where(named.resource)
            if named.names:
                self._say(f"{named.resource} {', '.join(map(repr, named.names))}: not found{where}")
            else:
                self._say(f"no {named.resource}{where}")
        if not has_keys(source, layout):
            self._next(
                f"no key at all starts with {layout.prefix}: check --etcd-prefix, and that this is the right etcd",
                "",
            )
        elif not wanted.all_namespaces and any(self._where(named.resource) for named in wanted.objects):
            other = "-A looks in all namespaces"
            self._next(
                other if wanted.namespace else "-n NAMESPACE names another namespace, -A all of them", ""
            )

    def end(self, result: GetResult, source: Source) -> None:
        """Say what came of all of it."""
        if self._count > _MOST_LINES:
            self._say(f"and {self._count - _MOST_LINES} more; -o table lists all")
        for line in self._stakes.lines():
            self._say(line)
        if self._stakes:
            self._next("see what each needs", self._again.scan_of(self._request.wanted.types))
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


def _verdict(found: Examination, *, secret: bool) -> str:
    cause = f" ({found.verdict.cause.value})" if found.verdict.cause is not None else ""
    return f"{display(found.stored.key)}: {found.verdict.outcome.value}{cause}: {message_of(found, secret=secret)}"
