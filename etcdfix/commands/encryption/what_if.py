"""What another EncryptionConfiguration would do to everything that is stored: before it is deployed, not after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.commands.encryption.whole import (
    MAIN_NOT_READ,
    DeploymentRequest,
    keep_example,
    may_be_enveloped,
    why_not_whole,
    write_again,
)
from etcdfix.encryption.config_model import EncryptionConfiguration, parse_group_resource
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.all import Progress, examine_each, no_progress
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.catalogue import CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED, LOST_KEY
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.model.errors import ConfigurationError, EndedEarly
from etcdfix.model.model import GroupResource, KeyOfRule, Outcome, ServerBehaviour
from etcdfix.model.providers import IDENTITY
from etcdfix.report.document import Step
from etcdfix.report.encryption import (
    ConfigurationChange,
    ValueChange,
    WhatIfReport,
    WriteKeyChange,
    key_fields,
)
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import report_origin, shown_word
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.sources.base import Source
from etcdfix.text.commands import explain
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_TODAY, _NEW = 0, 1
_UNENCRYPTED: Final = Transformers({}, frozenset())


class WhatIfRequest(DeploymentRequest, frozen=True, kw_only=True):
    """Everything that decides what is compared."""

    new: EncryptionConfiguration
    no_encryption: bool = False


def what_if(
    source: Source,
    request: WhatIfRequest,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> tuple[WhatIfReport, EndedEarly | None]:
    """Examine every value under today's configuration and a new one; return what ended that early, too."""
    if request.configuration is None and not request.no_encryption:
        raise ConfigurationError(
            "what changes can be told only from today's configuration",
            hint="name it with --encryption-config FILE; or, if nothing is encrypted today: --no-encryption",
        )
    today = Examiner.of_cluster(source, request, plugins)
    new = Examiner.of_cluster(source, msgspec.structs.replace(request, configuration=request.new), plugins)
    before, after = today.transformers or _UNENCRYPTED, new.transformers or _UNENCRYPTED
    today.know_names(after.names)
    new.know_names(before.names)
    comparing = _Comparing()
    cluster = today.kube_system_uid(source)
    ending = examine_each((today, new), source.current(b""), comparing.take, progress=progress)
    reasons = why_not_whole(source, request.layout, ending, comparing.objects)
    changes = sorted(comparing.groups.values(), key=lambda one: (-one.count, one.resource, one.label))
    changes.sort(key=lambda one: list(ConfigurationChange).index(one.change))
    write_keys = list(_write_keys(request, before, after, comparing.resources))
    reasons += [MAIN_NOT_READ] if request.main_not_read else []
    reasons += (
        said for resource, said in request.unread_etcds if _keys(before, resource) != _keys(after, resource)
    )
    if comparing.enveloped_elsewhere:
        values = counted(comparing.enveloped_elsewhere, "encrypted value")
        reasons.append(
            f"not compared: {values} outside the storage prefix {request.layout.prefix} (--etcd-prefix)"
        )
    if untold := comparing.counts[ConfigurationChange.UNDETERMINED]:
        reasons.append(f"undetermined under one of the configurations: {counted(untold, 'value')}")
    report = WhatIfReport(
        **report_origin(source.describe(), request.configuration, cluster),
        new_config=ReportConfiguration(shown_word(request.new.path), request.new.sha256),
        values=comparing.objects,
        counts=comparing.counts,
        changes=changes,
        write_keys=write_keys,
        warnings=list(_warnings(comparing.not_judged_today, write_keys)),
        next=_next(changes, write_keys, comparing),
        complete=not reasons,
        incomplete_reasons=reasons,
    )
    return report, ending.ended


class _State(Enum):
    """What API servers do with a value."""

    READS = 1
    CORRUPT = 2
    UNKNOWN = 3


class _Seen(NamedTuple):
    """A few words on one value under one configuration; ``name`` is the key that it counts under."""

    state: _State
    stale: bool
    opened: bool
    resource: GroupResource
    name: KeyName
    cause: Cause | None
    repairable: bool

    @classmethod
    def of(cls, found: Examination) -> _Seen:
        verdict, keys = found.verdict, found.encryption_keys
        state = _State.READS
        if verdict.outcome is Outcome.UNDETERMINED:
            state = _State.UNKNOWN
        elif verdict.outcome in FAILED and verdict.apiserver is not ServerBehaviour.SERVES_EMPTY:
            state = _State.CORRUPT
        name = KeyName(found.rule, found.transformer, keys[0].key if len(keys) == 1 else "")
        resource, repairable = found.directory.group_resource, found.repair is not None
        return cls(state, found.stale, found.opened, resource, name, verdict.cause, repairable)


def _change(before: _Seen, after: _Seen) -> ConfigurationChange | None:
    """Return what another configuration does to a value, or None where nothing changes."""
    states = before.state, after.state
    if _State.UNKNOWN in states:
        if before.opened and after.opened and before.name[1:] == after.name[1:]:
            return None  # what comes out is the same, whatever it is
        if states == (_State.UNKNOWN, _State.READS):
            return ConfigurationChange.BECOMES_READABLE
        if states == (_State.UNKNOWN, _State.CORRUPT) and after.cause in CURABLE_BY_CONFIGURATION:
            # Its plugin may open it today; the new configuration has nothing that could.
            return ConfigurationChange.BECOMES_UNREADABLE
        return ConfigurationChange.UNDETERMINED
    if before.state is not after.state:
        reads = after.state is _State.READS
        return ConfigurationChange.BECOMES_READABLE if reads else ConfigurationChange.BECOMES_UNREADABLE
    if before.state is _State.CORRUPT:
        lost = _loses_its_way_back(before, after)
        return ConfigurationChange.LOSES_ITS_WAY_BACK if lost else ConfigurationChange.STAYS_UNREADABLE
    if before.stale == after.stale:
        return None
    return ConfigurationChange.BECOMES_STALE if after.stale else ConfigurationChange.NO_LONGER_STALE


def _loses_its_way_back(before: _Seen, after: _Seen) -> bool:
    """Say of a value that is unreadable under both whether a key goes with which something can be done about it."""
    if before.cause is Cause.KEY_RENAMED:
        return after.cause is not Cause.KEY_RENAMED
    maybe_right_key = before.cause not in LOST_KEY or before.cause is Cause.AUTHENTICATION_FAILED
    return (before.repairable and not after.repairable) or (
        maybe_right_key and after.cause in LOST_KEY and after.cause is not before.cause
    )


class _Comparing:
    """Joins what both configurations make of each value. What waits for the other one is a few words, and no value."""

    def __init__(self) -> None:
        self.objects = 0
        self.enveloped_elsewhere = 0
        self.not_judged_today = 0
        self.losing = b""  # the first etcd key whose value loses its way back
        self.groups: dict[object, ValueChange] = {}
        self.counts: dict[str, int] = dict.fromkeys(ConfigurationChange, 0)
        self.resources: dict[GroupResource, None] = {}
        self._waiting: dict[bytes, tuple[int, _Seen]] = {}

    def take(self, number: int, found: Examination) -> None:
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            self.enveloped_elsewhere += number == _TODAY and may_be_enveloped(found.stored.value)
            return
        key, seen = found.stored.key, _Seen.of(found)
        other = self._waiting.pop(key, None)
        if other is None:
            self._waiting[key] = number, seen
            return
        self.objects += 1
        if len(self.resources) < MAX_NAMES:
            self.resources[seen.resource] = None
        before, after = (other[1], seen) if number == _NEW else (seen, other[1])
        change = _change(before, after)
        if change is not None:
            self._count(key, change, before, after.cause)

    def _count(self, key: bytes, change: ConfigurationChange, before: _Seen, cause: Cause | None) -> None:
        self.counts[change] += 1
        if change is ConfigurationChange.BECOMES_UNREADABLE and before.state is _State.UNKNOWN:
            self.not_judged_today += 1
        if change is ConfigurationChange.LOSES_ITS_WAY_BACK:
            self.losing = min(self.losing or key, key)
        resource, name = str(before.resource), before.name
        if (change, resource, name, cause) not in self.groups and len(self.groups) >= MAX_NAMES:
            resource, name, cause = OTHERS, KeyName("", "", ""), None
        place = change, resource, name, cause
        if place not in self.groups:
            self.groups[place] = ValueChange(
                **key_fields(name), change=change, resource=resource, cause=cause.value if cause else None
            )
        self.groups[place].count += 1
        keep_example(self.groups[place].examples, key)


def _write_keys(
    request: WhatIfRequest, today: Transformers, new: Transformers, seen: Iterable[GroupResource]
) -> Iterator[WriteKeyChange]:
    rules = [rule for config in (request.configuration, request.new) if config for rule in config.rules]
    named = [parse_group_resource(entry) for rule in rules for entry in rule.resources if "*" not in entry]
    for resource in sorted({*seen, *named}):
        keys_today, keys_new = _keys(today, resource), _keys(new, resource)
        if resource.resource and keys_today[0] != keys_new[0]:
            yield WriteKeyChange(
                resource=str(resource),
                today=keys_today[0],
                new=keys_new[0],
                today_reads_new=keys_new[0] in keys_today,
                new_reads_today=keys_today[0] in keys_new,
            )


def _keys(transformers: Transformers, resource: GroupResource) -> list[KeyOfRule]:
    return [key.named for key in transformers.for_resource(resource).keys]


def _warnings(not_judged: int, write_keys: Iterable[WriteKeyChange]) -> Iterator[str]:
    if not_judged:
        yield (
            f"A KMS plugin may open {counted(not_judged, 'value')} today, but it was not asked or did not answer. The "
            "new configuration has nothing that opens them."
        )
    for key in write_keys:
        if not key.today_reads_new:
            yield (
                f"{key.resource}: API servers with today's configuration cannot read what {key.new} writes. Deploy it "
                "on all of them below the write key first. Make it the first key after that."
            )
        if not key.new_reads_today:
            yield (
                f"{key.resource}: API servers with today's configuration write with {key.today}, which the new "
                "configuration does not read."
            )
        if key.new.transformer == IDENTITY:
            yield f"{key.resource}: new values will be stored unencrypted."


def _next(
    changes: Iterable[ValueChange], write_keys: Iterable[WriteKeyChange], comparing: _Comparing
) -> Step | None:
    def found(change: ConfigurationChange) -> tuple[str, bool]:
        """Return the resources of a change, as kubectl takes several; and whether all their keys are known."""
        rows = [one for one in changes if one.change is change]
        names = dict.fromkeys(one.resource for one in rows if one.resource != OTHERS)
        return ",".join(names), all(one.transformer for one in rows)

    lost, named = found(ConfigurationChange.BECOMES_UNREADABLE)
    if comparing.counts[ConfigurationChange.BECOMES_UNREADABLE]:
        what = "Do not deploy this configuration. Keep the listed keys below the write key"
        unread = any(not key.new_reads_today and key.resource in lost.split(",") for key in write_keys)
        if comparing.not_judged_today or unread or not named:
            return Step(what)
        again = f"or have an API server write {lost} again with today's write key, and run this again"
        return Step(f"{what}; {again}", write_again(lost))
    if comparing.losing:
        return Step(
            "Do not deploy this configuration. Repair the unreadable values that need today's key, or keep it",
            explain(comparing.losing),
        )
    if comparing.counts[ConfigurationChange.UNDETERMINED]:
        return Step("Do not deploy this configuration until no value is undetermined")
    stale, _ = found(ConfigurationChange.BECOMES_STALE)
    if stale:
        told = f"When every API server runs with the new configuration, have one write {stale} again"
        return Step(f"{told}. Keep every key until then", write_again(stale))
    return None
