"""What became of the objects of a rescue, as it is published, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from etcdfix.apiserver.all_servers import Absent
from etcdfix.apiserver.ask_memory import ServerMemory
from etcdfix.apiserver.memory import Memory, Remembered
from etcdfix.commands.rescuing.targets import Target
from etcdfix.errors import RefusedByRule
from etcdfix.report.model import Remedy
from etcdfix.report.rescue import Rescued, RescuedObject, RescueServer
from etcdfix.rescued import Fit, SavedObject, fit_of
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.text import commands
from etcdfix.text.commands import Part, RunOptions
from etcdfix.text.safetext import key_base64, key_word
from etcdfix.text.words import counted

_MOST_KEYS: Final = 5
_DENIED: Final = frozenset({Memory.DENIED, Memory.UNKNOWN_USER, Memory.OTHER_OBJECT})
_EMPTY: Final = frozenset({Memory.NOT_HELD, Memory.CACHE_LOST, Memory.READ_ERROR, Memory.NOT_SERVED})
_LACKS: Final = {
    Rescued.NOT_HELD: "not in the memory of any server that could be asked",
    Rescued.REFUSED: "refused",
    Rescued.NOT_ASKED: "not asked for to the end: may still be held, run again",
}


def next_steps(
    words: Sequence[str], objects: Mapping[bytes, RescuedObject], directory: str, *, all_asked: bool
) -> Iterator[Remedy]:
    """Yield what to do next.

    Args:
        words: Of the command line: what was to be saved.
        objects: By etcd key.
        directory: Where they are saved.
        all_asked: Every server that was found could be asked.
    """
    states = {one.state for one in objects.values()}
    of_report = words[0] == "--from-report"
    once_more = commands.rescue(words, directory)
    not_said = bool(states & {Rescued.NOT_ASKED, Rescued.REFUSED})
    older = any(one.fit is Fit.OLDER for one in objects.values())
    if not_said or older:
        yield Remedy(
            "Run the same command again for what is missing: it goes on where this one ended", once_more
        )
    if not_said:
        return
    saved = [key for key, one in objects.items() if one.state is Rescued.SAVED and one.fit is not Fit.OLDER]
    missing = [key for key, one in objects.items() if one.state is Rescued.NOT_HELD]
    if saved and of_report:
        yield Remedy(
            "Plan what becomes of each: API servers can write anew what they hold",
            commands.plan(words[1], "PLAN", rescued=directory),
        )
    elif saved:
        each = "" if len(saved) == 1 else ", one after the other"
        yield Remedy(
            f"Have an API server write the objects anew, from memory{each}: a dry run first",
            commands.fix_from_memory(saved[0], directory),
        )
    if missing and not all_asked and not older:
        action = "A server that could not be asked may still hold what is missing: let it answer, and run this again"
        yield Remedy(action, once_more)
    if missing:
        yield Remedy(
            "What is in no server's memory may have copies elsewhere",
            commands.copies(
                *(words if of_report else map(key_word, missing[:_MOST_KEYS])), options=(Part.ASKING,)
            ),
        )


def without_any(target: Target, said: Sequence[tuple[str, Remembered]]) -> RescuedObject:
    """Return what it means that no server gave an object: the most hopeful of what they said."""
    words = {found.word for _server, found in said}
    state = Rescued.NOT_HELD
    if words - _DENIED - _EMPTY:
        state = Rescued.NOT_ASKED
    elif words & _DENIED:
        state = Rescued.REFUSED
    detail = "; ".join(f"{server}: {found.detail or found.word.value}" for server, found in said)
    return rescued_object(target, state, detail=detail)


def rescued_object(
    target: Target, state: Rescued, saved: SavedObject | None = None, detail: str = ""
) -> RescuedObject:
    """Return one object with what became of it."""
    one = RescuedObject(
        key=display(target.key),
        key_base64=key_base64(target.key),
        group=target.thing.group,
        resource=target.thing.resource,
        namespace=target.thing.namespace,
        name=target.thing.name,
        state=state,
        mod_revision=target.mod_revision,
        detail=detail,
    )
    if saved is None:
        return one
    return msgspec.structs.replace(
        one,
        resource_version=saved.resource_version,
        fit=fit_of(saved.resource_version, target.mod_revision),
        file=saved.file,
        sha256=saved.sha256,
        server=saved.server,
    )


def reasons_of(objects: Iterable[RescuedObject]) -> Iterator[str]:
    """Yield why not everything is saved as etcd has it, one clause each."""
    counts: Counter[str] = Counter()
    lacking: Counter[tuple[str, str]] = Counter()
    for one in objects:
        counts[one.group_resource] += 1
        what = "saved in an older state than etcd has" if one.fit is Fit.OLDER else _LACKS.get(one.state)
        if what is not None:
            lacking[one.group_resource, what] += 1
    for (name, what), count in lacking.items():
        yield f"{count} of {counted(counts[name], 'object')} of {name} {what}"


def servers_of(
    asked: Iterable[ServerMemory], given: Mapping[str, int], absent: Iterable[Absent]
) -> list[RescueServer]:
    """Return the servers that were asked, and those that could not be."""
    told = [
        RescueServer(
            server=one.address,
            asked=True,
            requests=one.requests,
            given=given.get(one.address, 0),
            detail=one.lost_words(),
        )
        for one in asked
    ]
    return told + [RescueServer(server=one.server, asked=False, detail=one.why) for one in absent]


def reads_it(server: str, target: Target, run: RunOptions) -> RefusedByRule:
    """Return the refusal of a rescue that nobody needs."""
    text = f"the API server at {server} reads {target.thing} from etcd: it needs no rescue"
    hint = "get it through the API; nothing was saved"
    if target.mod_revision:
        text += ", and the configuration by which it was called unreadable is wrong or old"
        hint = (
            "compare with that server's --encryption-provider-config, --etcd-servers and --etcd-prefix; then: "
            f"{commands.scan().line(run)}"
        )
    return refuse(Rule.CONFIGURATION_WRONG, text, hint=hint)
