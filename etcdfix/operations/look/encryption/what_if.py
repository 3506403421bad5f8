"""What another EncryptionConfiguration would do to everything that is stored: before it is deployed, not after."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.encryption.config import EncryptionConfiguration
from etcdfix.encryption.config_rules import parse_group_resource
from etcdfix.encryption.transformer import ConfiguredKey, Transformers
from etcdfix.errors import ConfigurationError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, View, examine_each, no_progress
from etcdfix.model import GroupResource, Outcome, ServerBehaviour
from etcdfix.operations.look.encryption.whole import MAIN_NOT_READ, DeploymentRequest, Whole, may_be_enveloped
from etcdfix.report.encryption_model import (
    ConfigurationChange,
    ValueChange,
    WhatIfReport,
    WriteKey,
    WriteKeyChange,
)
from etcdfix.report.model import Remedy
from etcdfix.report.origin import report_origin, shown_configuration
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text.commands import NO_COMMAND, Command, RepeatedOptions, piped
from etcdfix.text.safetext import quote_command
from etcdfix.text.words import counted
from etcdfix.verdicts.causes import CURABLE_BY_CONFIGURATION, Cause
from etcdfix.verdicts.deletability import FAILED, IDENTITY, LOST_KEY
from etcdfix.verdicts.examination import Examination

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_MOST_EXAMPLES: Final = 5
_TODAY, _NEW = 0, 1


class WhatIfRequest(DeploymentRequest, frozen=True, kw_only=True):
    """Everything that decides what is compared.

    Attributes:
        new: The configuration in question.
        no_encryption: Today nothing is encrypted at rest, so that there is no configuration.
    """

    new: EncryptionConfiguration
    no_encryption: bool = False


class WhatIf(msgspec.Struct, frozen=True):
    """What came out: the report, and how the look at everything went."""

    report: WhatIfReport
    whole: Whole


class _State(Enum):
    READS = 1
    CORRUPT = 2
    UNKNOWN = 3


class _Seen(NamedTuple):
    """What one configuration makes of a value."""

    state: _State
    stale: bool
    opened: bool
    resource: GroupResource
    transformer: str
    key: str
    cause: Cause | None
    repairable: bool


class _Group(NamedTuple):
    change: ConfigurationChange
    resource: GroupResource
    transformer: str
    key: str
    cause: str | None


class _Losing(NamedTuple):
    """A value that loses its way back; one for which a repair is known comes first."""

    without_repair: bool
    key: bytes


class _Counted(msgspec.Struct):
    count: int
    examples: list[str]


def what_if(
    source: Source,
    request: WhatIfRequest,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> WhatIf:
    """Examine every value under today's configuration and under a new one, while everything is read once.

    Args:
        source: Where the values are.
        request: The two configurations.
        plugins: The KMS plugins of both; None to ask none.
        progress: Counts the values for a display.

    Raises:
        ConfigurationError: Nobody said which configuration is today's.
        SourceError: Nothing could be read.
    """
    if request.configuration is None and not request.no_encryption:
        raise ConfigurationError(
            "what changes can be told only from today's configuration",
            hint="name it with --encryption-config FILE; or, if nothing is encrypted today: --no-encryption",
        )
    today = Examiner.of_cluster(source, request, plugins)
    new = Examiner.of_cluster(source, msgspec.structs.replace(request, configuration=request.new), plugins)
    assert new.transformers is not None  # it has a configuration
    today.know_names(new.transformers.names)
    if today.transformers is not None:
        new.know_names(today.transformers.names)
    comparing = _Comparing()
    cluster = today.kube_system_uid(source)
    ending = examine_each((today, new), source.current(b""), comparing.take, progress=progress)
    whole = Whole.of(source, ending, comparing.objects)
    totals = comparing.totals
    changes = [
        ValueChange(
            change=group.change,
            group=group.resource.group,
            resource=group.resource.resource,
            transformer=group.transformer,
            key_fingerprint=group.key if group.key.startswith("fp:") else None,
            kms_key_id_sha256=group.key if group.key.startswith("sha256:") else None,
            cause=group.cause,
            count=found.count,
            examples=found.examples,
        )
        for group, found in sorted(comparing.groups.items(), key=_order)
    ]
    write_keys = list(_write_keys(request, today.transformers, new.transformers, comparing.resources))
    reasons = whole.incomplete_reasons(0, _not_compared(request, today.transformers, new.transformers))
    if comparing.enveloped_elsewhere:
        reasons.append(
            f"not compared: {counted(comparing.enveloped_elsewhere, 'encrypted value')} outside the storage prefix "
            f"{request.layout.prefix} (--etcd-prefix)"
        )
    lost, untold = totals[ConfigurationChange.BECOMES_UNREADABLE], totals[ConfigurationChange.UNDETERMINED]
    if untold:
        reasons.append(f"undetermined under one of the configurations: {counted(untold, 'value')}")
    report = WhatIfReport(
        **report_origin(source.describe(), request.configuration, cluster),
        new_config=shown_configuration(request.new),
        values=comparing.objects,
        becomes_unreadable=lost,
        loses_its_way_back=totals[ConfigurationChange.LOSES_ITS_WAY_BACK],
        stays_unreadable=totals[ConfigurationChange.STAYS_UNREADABLE],
        becomes_readable=totals[ConfigurationChange.BECOMES_READABLE],
        becomes_stale=totals[ConfigurationChange.BECOMES_STALE],
        no_longer_stale=totals[ConfigurationChange.NO_LONGER_STALE],
        undetermined=untold,
        changes=changes,
        write_keys=write_keys,
        warnings=[
            *_made_for_reading(request.new),
            *_not_judged(comparing.not_judged_today),
            *_warnings(changes, write_keys),
        ],
        next=_next(
            changes,
            write_keys,
            request.same_again,
            comparing.losing,
            judged=not comparing.not_judged_today,
        ),
        complete=not reasons,
        incomplete_reasons=reasons,
    )
    return WhatIf(report, whole)


def _not_compared(request: WhatIfRequest, today: Transformers | None, new: Transformers) -> Iterator[str]:
    if request.main_not_read:
        yield MAIN_NOT_READ
    for resource, said in request.unread_etcds:
        if not _are_same(_keys_of(today, resource), _keys_of(new, resource)):
            yield said


class _Comparing:
    """Joins what both configurations make of each value. What waits for the other one is a few words, and no value."""

    def __init__(self) -> None:
        self.objects = 0
        self.enveloped_elsewhere = 0
        self.not_judged_today = 0
        self.losing: _Losing | None = None
        self.groups: dict[_Group, _Counted] = {}
        self.totals = dict.fromkeys(ConfigurationChange, 0)
        self.resources: dict[GroupResource, None] = {}
        self._waiting: dict[bytes, tuple[int, _Seen]] = {}

    def take(self, number: int, found: Examination, _view: View) -> None:
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            self.enveloped_elsewhere += number == _TODAY and may_be_enveloped(found.stored.value)
            return
        key, seen = found.stored.key, _seen(found)
        other = self._waiting.pop(key, None)
        if other is None:
            self._waiting[key] = number, seen
            return
        self.objects += 1
        if len(self.resources) < MAX_NAMES:
            self.resources[seen.resource] = None
        before, after = (other[1], seen) if number == _NEW else (seen, other[1])
        change = _change(before, after)
        if change is None:
            return
        self.totals[change] += 1
        if change is ConfigurationChange.BECOMES_UNREADABLE and before.state is _State.UNKNOWN:
            self.not_judged_today += 1
        if change is ConfigurationChange.LOSES_ITS_WAY_BACK:
            losing = _Losing(not before.repairable, key)
            self.losing = min(self.losing or losing, losing)
        group = _Group(
            change,
            before.resource,
            before.transformer,
            before.key,
            after.cause.value if after.cause else None,
        )
        if group not in self.groups and len(self.groups) >= MAX_NAMES:
            group = _Group(change, GroupResource("", OTHERS), "", "", None)
        counted_here = self.groups.setdefault(group, _Counted(0, []))
        counted_here.count += 1
        insort(counted_here.examples, display(key))
        del counted_here.examples[_MOST_EXAMPLES:]


def _seen(found: Examination) -> _Seen:
    verdict = found.verdict
    state = _State.READS
    if verdict.outcome is Outcome.UNDETERMINED:
        state = _State.UNKNOWN
    elif verdict.outcome in FAILED and verdict.apiserver is not ServerBehaviour.SERVES_EMPTY:
        state = _State.CORRUPT
    return _Seen(
        state,
        found.stale,
        found.opened,
        found.directory.group_resource,
        found.transformer,
        found.encryption_keys[0].key if len(found.encryption_keys) == 1 else "",
        verdict.cause,
        found.repair is not None,
    )


def _loses_its_way_back(before: _Seen, after: _Seen) -> bool:
    """Say of a value that is unreadable under both whether a key goes with which something can be done about it."""
    if before.cause is Cause.KEY_RENAMED:
        return after.cause is not Cause.KEY_RENAMED
    maybe_right_key = before.cause not in LOST_KEY or before.cause is Cause.AUTHENTICATION_FAILED
    return (before.repairable and not after.repairable) or (
        maybe_right_key and after.cause in LOST_KEY and after.cause is not before.cause
    )


def _change(before: _Seen, after: _Seen) -> ConfigurationChange | None:
    """Return what happens to a value; None for nothing."""
    states = before.state, after.state
    if _State.UNKNOWN in states:
        same_key = (before.transformer, before.key) == (after.transformer, after.key)
        if before.opened and after.opened and same_key:
            return None  # what comes out is the same, whatever it is
        if states == (_State.UNKNOWN, _State.READS):
            return ConfigurationChange.BECOMES_READABLE
        if states == (_State.UNKNOWN, _State.CORRUPT) and after.cause in CURABLE_BY_CONFIGURATION:
            # Its plugin may open it today; the new configuration has nothing that could.
            return ConfigurationChange.BECOMES_UNREADABLE
        return ConfigurationChange.UNDETERMINED
    if states == (_State.READS, _State.CORRUPT):
        return ConfigurationChange.BECOMES_UNREADABLE
    if states == (_State.CORRUPT, _State.READS):
        return ConfigurationChange.BECOMES_READABLE
    if states == (_State.CORRUPT, _State.CORRUPT):
        if _loses_its_way_back(before, after):
            return ConfigurationChange.LOSES_ITS_WAY_BACK
        return ConfigurationChange.STAYS_UNREADABLE
    if before.stale == after.stale:
        return None
    return ConfigurationChange.BECOMES_STALE if after.stale else ConfigurationChange.NO_LONGER_STALE


def _order(item: tuple[_Group, _Counted]) -> tuple[int, int, tuple[object, ...]]:
    group, found = item
    return (
        list(ConfigurationChange).index(group.change),
        -found.count,
        (*group.resource, group.transformer, group.key),
    )


def _write_keys(
    request: WhatIfRequest, today: Transformers | None, new: Transformers, seen: Iterable[GroupResource]
) -> Iterator[WriteKeyChange]:
    """Yield each resource whose write key changes."""
    named = [
        parse_group_resource(entry)
        for config in (request.configuration, request.new)
        for rule in (config.rules if config is not None else ())
        for entry in rule.resources
        if entry and "*" not in entry
    ]
    for resource in sorted(dict.fromkeys([*seen, *named])):
        if not resource.resource:
            continue
        keys_today, keys_new = _keys_of(today, resource), _keys_of(new, resource)
        if _is_same(keys_today[0], keys_new[0]):
            continue
        yield WriteKeyChange(
            group=resource.group,
            resource=resource.resource,
            today=_write_key(keys_today[0]),
            new=_write_key(keys_new[0]),
            today_reads_new=any(_is_same(key, keys_new[0]) for key in keys_today),
            new_reads_today=any(_is_same(key, keys_today[0]) for key in keys_new),
        )


_UNENCRYPTED: Final = Transformers({}, frozenset()).for_resource(GroupResource("", "")).keys


def _keys_of(transformers: Transformers | None, resource: GroupResource) -> Sequence[ConfiguredKey]:
    return transformers.for_resource(resource).keys if transformers is not None else _UNENCRYPTED


def _are_same(some: Sequence[ConfiguredKey], others: Sequence[ConfiguredKey]) -> bool:
    return len(some) == len(others) and all(map(_is_same, some, others))


def _is_same(one: ConfiguredKey, other: ConfiguredKey) -> bool:
    return (one.transformer, one.key_fingerprint) == (other.transformer, other.key_fingerprint)


def _write_key(key: ConfiguredKey) -> WriteKey:
    return WriteKey(transformer=key.transformer, key_fingerprint=key.key_fingerprint or None)


def _made_for_reading(new: EncryptionConfiguration) -> Iterator[str]:
    if new.made_by:
        yield (
            f"etcdfix encryption {new.made_by} made the new configuration, for reading: look at which provider comes "
            "first for each resource before it is deployed, then remove the mark."
        )


def _not_judged(count: int) -> Iterator[str]:
    if count:
        yield (
            f"Today's configuration does not tell whether {counted(count, 'value')} can be read: a KMS plugin may open "
            "them today. The new configuration has nothing that opens them."
        )


def _warnings(changes: Iterable[ValueChange], write_keys: Iterable[WriteKeyChange]) -> Iterator[str]:
    plain = sum(
        change.count
        for change in changes
        if change.change == ConfigurationChange.BECOMES_UNREADABLE
        and change.cause == Cause.PLAINTEXT_NOT_ALLOWED
    )
    if plain:
        yield (
            f"{counted(plain, 'value')} {'is' if plain == 1 else 'are'} stored unencrypted, and the new configuration "
            "has no identity provider for them: keep it, as the last one, until all of them were written again."
        )
    for key in write_keys:
        where, new, today = f"{GroupResource(key.group, key.resource)}", key.new, key.today
        if not key.today_reads_new:
            yield (
                f"{where}: API servers that still run with today's configuration cannot read what is written with "
                f"{_called(new)}. Deploy it on all of them as a further key first; make it the first one after that."
            )
        if not key.new_reads_today:
            yield (
                f"{where}: API servers that still run with today's configuration write with {_called(today)}, which "
                "the new configuration does not read."
            )
        if new.transformer == IDENTITY:
            yield f"{where}: new values will be stored unencrypted."


def _called(key: WriteKey) -> str:
    return f"{key.transformer} ({key.key_fingerprint})" if key.key_fingerprint else key.transformer


def _next(
    changes: Iterable[ValueChange],
    write_keys: Iterable[WriteKeyChange],
    again: RepeatedOptions,
    losing: _Losing | None,
    *,
    judged: bool,
) -> Remedy | None:
    """Return the one thing to do next; None where there is nothing to do."""
    unread = {(key.group, key.resource) for key in write_keys if not key.new_reads_today}
    by_change: dict[ConfigurationChange, list[ValueChange]] = {}
    for change in changes:
        by_change.setdefault(ConfigurationChange(change.change), []).append(change)
    lost = by_change.get(ConfigurationChange.BECOMES_UNREADABLE, [])
    if lost:
        what = (
            "Do not deploy this configuration. Keep the encryption keys that are listed, after the first one"
        )
        written_again = all(
            (one.group, one.resource) not in unread and one.transformer not in {"", OTHERS} for one in lost
        )
        if not judged or not written_again:
            return Remedy(what, NO_COMMAND, "")
        resources = _resources(lost)
        return Remedy(
            f"{what}; or have an API server write {resources} again under today's write key, and run this again",
            Command(text=_rewrite(resources)),
            "",
        )
    if losing is not None:
        return Remedy(
            "Do not deploy this configuration. Values that cannot be read today need a key that it lacks: repair them "
            "first, or keep the key",
            Command(
                text=again.explain(losing.key)
                if losing.without_repair or again.of_kine
                else again.repair(losing.key)
            ),
            "",
        )
    if ConfigurationChange.UNDETERMINED in by_change:
        return Remedy("Do not deploy this configuration before every value could be told", NO_COMMAND, "")
    stale = by_change.get(ConfigurationChange.BECOMES_STALE)
    if stale:
        resources = _resources(stale)
        return Remedy(
            f"Once every API server runs with the new configuration, have one write {resources} again; no key may go "
            "before that",
            Command(text=_rewrite(resources)),
            "",
        )
    return None


def _resources(changes: Iterable[ValueChange]) -> str:
    """Return all resources of some changes, as kubectl takes several."""
    named = (str(GroupResource(one.group, one.resource)) for one in changes if one.resource != OTHERS)
    return ",".join(dict.fromkeys(named))


def _rewrite(resources: str) -> str:
    words = ["kubectl", "get", resources, "-A", "-o", "json"]
    if not resources:
        return ""
    return piped(quote_command(words), ["kubectl", "replace", "-f", "-"])
