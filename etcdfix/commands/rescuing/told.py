"""What a rescue tells: what became of each object, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from etcdfix.apiserver.memory import Memory, Remembered
from etcdfix.commands.rescuing.targets import Target
from etcdfix.copies.rescued import Fit, SavedObject, fit_of
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.storagekey import display
from etcdfix.report.model import Remedy
from etcdfix.report.rescue import Rescued, RescuedObject
from etcdfix.text import commands
from etcdfix.text.commands import Part, RunOptions
from etcdfix.text.safetext import key_base64, key_word

_MOST_KEYS: Final = 5
_DENIED: Final = frozenset({Memory.DENIED, Memory.UNKNOWN_USER, Memory.OTHER_OBJECT})
_EMPTY: Final = frozenset({Memory.NOT_HELD, Memory.CACHE_LOST, Memory.READ_ERROR, Memory.NOT_SERVED})


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


def without_any(target: Target, said: Sequence[tuple[str, Remembered]]) -> RescuedObject:
    """Return what it means that no server gave an object: the most hopeful of what they said."""
    words = {found.word for _server, found in said}
    state = Rescued.NOT_HELD
    if words - _DENIED - _EMPTY:
        state = Rescued.NOT_ASKED
    elif words & _DENIED:
        state = Rescued.REFUSED
    detail = "; ".join(f"{server}: {found.detail or found.word.value}" for server, found in said)
    return outcome_of(target, state, detail=detail)


def outcome_of(
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
    of_report = words[0] == "--from-report"
    not_said = any(one.state in {Rescued.NOT_ASKED, Rescued.REFUSED} for one in objects.values())
    older = any(one.fit is Fit.OLDER for one in objects.values())
    saved = [key for key, one in objects.items() if one.state is Rescued.SAVED and one.fit is not Fit.OLDER]
    missing = [key for key, one in objects.items() if one.state is Rescued.NOT_HELD]
    if not_said or older or (missing and not all_asked):
        yield Remedy(
            "Run the same command again for what is missing, once every server answers: it goes on where this one "
            "ended",
            commands.rescue(words, directory),
        )
    if not_said:
        return
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
    if missing:
        yield Remedy(
            "What is in no server's memory may have copies elsewhere",
            commands.copies(
                *(words if of_report else map(key_word, missing[:_MOST_KEYS])), options=(Part.ASKING,)
            ),
        )
