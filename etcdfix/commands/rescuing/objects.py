"""Which objects a rescue asks API servers for, what became of each, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from etcdfix.apiserver.memory import Memory, Remembered
from etcdfix.apiserver.objects import APIObject
from etcdfix.copies.rescued import SavedObject
from etcdfix.examine.one import Examiner
from etcdfix.examine.scope import resolved, values_in
from etcdfix.examine.verdicts.deletability import FAILED, KMS_DOUBTS
from etcdfix.model.errors import ConfigurationError, RefusedByRule
from etcdfix.model.model import GroupResource
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import NO_OBJECTS, StorageLayout, api_path, display
from etcdfix.report.model import Remedy
from etcdfix.report.rescue import Rescued, RescuedObject
from etcdfix.report.saved_report import SavedReport
from etcdfix.sources.base import Source
from etcdfix.text import commands
from etcdfix.text.commands import Part, RunOptions
from etcdfix.text.safetext import key_base64, key_word


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One object to ask for.

    Attributes:
        thing: As a request names it; its version is "" where only the server can tell.
        kind: That it must be; "" where only a CRD can tell.
        mod_revision: Of the etcd key; 0 where nothing says it.
    """

    key: bytes
    thing: APIObject
    kind: str
    mod_revision: int = 0

    @property
    def resource(self) -> GroupResource:
        """Group and plural resource."""
        return GroupResource(self.thing.group, self.thing.resource)


def targets_of_keys(keys: Iterable[bytes], layout: StorageLayout) -> list[Target]:
    """Return the objects of etcd keys; of their values nothing is known; raises ConfigurationError."""
    found = []
    for key in sorted({*keys}):
        target = _target(layout, key)
        if target is None:
            raise ConfigurationError(
                f"{display(key)} holds no object that a request to an API server can name",
                hint="name the complete etcd key of one object; use --etcd-prefix if the prefix is not /registry",
            )
        found.append(target)
    return found


def targets_in(source: Source, examiner: Examiner, scope: ScopeRequest) -> list[Target]:
    """Return the objects of a scope whose values do not read; raises ConfigurationError or SourceError."""
    targets = []
    for stored in values_in(source, resolved(scope, examiner, source).ranges, []):
        found = examiner.examine(stored)
        if _is_wanted(found.verdict.outcome, found.verdict.cause):
            targets.append(_target(examiner.layout, stored.key, stored.mod_revision))
    return _some(targets)


def targets_of_report(report: SavedReport) -> list[Target]:
    """Return the unreadable objects of a report; raises ConfigurationError."""
    layout = StorageLayout(report.header.scope.etcd_prefix)
    return _some(
        _target(layout, key, value.mod_revision)
        for key, value in report.findings.items()
        if _is_wanted(value.outcome, value.cause)
    )


def _is_wanted(outcome: str, cause: str | None) -> bool:
    return outcome in FAILED or cause in KMS_DOUBTS


def _some(targets: Iterable[Target | None]) -> list[Target]:
    found = {target.key: target for target in targets if target is not None}
    if not found:
        raise ConfigurationError(
            "no object is unreadable that API servers could be asked for",
            hint="a rescue is for decrypt-failure and decode-failure; --encryption-config FILE tells what opens",
        )
    return [found[key] for key in sorted(found)]


def _target(layout: StorageLayout, key: bytes, mod_revision: int = 0) -> Target | None:
    """Return the object of an etcd key; None where no request can name one."""
    where = layout.split(key)
    directory = where.directory
    thing = APIObject(directory.group, directory.version, directory.resource, where.namespace, where.name)
    path = api_path(thing.group, thing.version or "v1", thing.resource, thing.namespace, thing.name)
    if directory.codec in NO_OBJECTS or not where.well_formed or not path:
        return None
    return Target(key=key, thing=thing, kind=directory.kind, mod_revision=mod_revision)


# -- what is told

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
        older=int(saved.resource_version) < target.mod_revision,
        file=saved.file,
        sha256=saved.sha256,
        server=saved.server,
    )


def next_steps(
    words: Sequence[str], objects: Mapping[bytes, RescuedObject], directory: str, *, all_asked: bool
) -> Iterator[Remedy]:
    """Yield what to do next."""
    of_report = words[0] == "--from-report"
    not_said = any(one.state in {Rescued.NOT_ASKED, Rescued.REFUSED} for one in objects.values())
    older = any(one.older for one in objects.values())
    saved = [key for key, one in objects.items() if one.state is Rescued.SAVED and not one.older]
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
