"""What another EncryptionConfiguration would do to everything that is stored: before it is deployed, not after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.encryption.value_change import Seen, State, change_of, seen_of
from etcdfix.commands.encryption.whole import (
    MAIN_NOT_READ,
    DeploymentRequest,
    Looked,
    Whole,
    keep_example,
    may_be_enveloped,
    write_again,
)
from etcdfix.encryption.config import EncryptionConfiguration
from etcdfix.encryption.config_rules import parse_group_resource
from etcdfix.encryption.transformer import Transformers
from etcdfix.errors import ConfigurationError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, View, examine_each, no_progress
from etcdfix.model import GroupResource, KeyOfRule, Outcome
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
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import IDENTITY
from etcdfix.verdicts.examination import Examination, KeyName

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_TODAY, _NEW = 0, 1


class WhatIfRequest(DeploymentRequest, frozen=True, kw_only=True):
    """Everything that decides what is compared."""

    new: EncryptionConfiguration
    no_encryption: bool = False


_Group = tuple[ConfigurationChange, GroupResource, KeyName, str | None]


def what_if(
    source: Source,
    request: WhatIfRequest,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> Looked[WhatIfReport]:
    """Examine every value under today's configuration and under a new one, while everything is read once.

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
    counts = comparing.counts
    changes = sorted(comparing.groups.values(), key=_order)
    write_keys = list(_write_keys(request, today.transformers, new.transformers, comparing.resources))
    reasons = whole.incomplete_reasons(0, [MAIN_NOT_READ] if request.main_not_read else [])
    reasons += (
        said
        for resource, said in request.unread_etcds
        if _keys_of(today.transformers, resource) != _keys_of(new.transformers, resource)
    )
    if comparing.enveloped_elsewhere:
        reasons.append(
            f"not compared: {counted(comparing.enveloped_elsewhere, 'encrypted value')} outside the storage prefix "
            f"{request.layout.prefix} (--etcd-prefix)"
        )
    if untold := counts[ConfigurationChange.UNDETERMINED]:
        reasons.append(f"undetermined under one of the configurations: {counted(untold, 'value')}")
    report = WhatIfReport(
        **report_origin(source.describe(), request.configuration, cluster),
        new_config=ReportConfiguration(shown_word(request.new.path), request.new.sha256),
        values=comparing.objects,
        counts=counts,
        changes=changes,
        write_keys=write_keys,
        warnings=list(_warnings(request.new, comparing.not_judged_today, changes, write_keys)),
        next=_next(changes, write_keys, comparing),
        complete=not reasons,
        incomplete_reasons=reasons,
    )
    return Looked(report, whole)


class _Comparing:
    """Joins what both configurations make of each value. What waits for the other one is a few words, and no value."""

    def __init__(self) -> None:
        self.objects = 0
        self.enveloped_elsewhere = 0
        self.not_judged_today = 0
        self.losing = b""  # the first etcd key whose value loses its way back
        self.groups: dict[_Group, ValueChange] = {}
        self.counts: dict[str, int] = dict.fromkeys(ConfigurationChange, 0)
        self.resources: dict[GroupResource, None] = {}
        self._waiting: dict[bytes, tuple[int, Seen]] = {}

    def take(self, number: int, found: Examination, _view: View) -> None:
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            self.enveloped_elsewhere += number == _TODAY and may_be_enveloped(found.stored.value)
            return
        key, seen = found.stored.key, seen_of(found)
        other = self._waiting.pop(key, None)
        if other is None:
            self._waiting[key] = number, seen
            return
        self.objects += 1
        if len(self.resources) < MAX_NAMES:
            self.resources[seen.resource] = None
        before, after = (other[1], seen) if number == _NEW else (seen, other[1])
        change = change_of(before, after)
        if change is None:
            return
        self.counts[change] += 1
        if change is ConfigurationChange.BECOMES_UNREADABLE and before.state is State.UNKNOWN:
            self.not_judged_today += 1
        if change is ConfigurationChange.LOSES_ITS_WAY_BACK:
            self.losing = min(self.losing or key, key)
        place = (change, before.resource, before.name, after.cause.value if after.cause else None)
        if place not in self.groups and len(self.groups) >= MAX_NAMES:
            place = (change, GroupResource("", OTHERS), KeyName("", "", ""), None)
        group = self.groups.get(place)
        if group is None:
            _, resource, name, cause = place
            group = self.groups[place] = ValueChange(
                **key_fields(name),
                change=change,
                group=resource.group,
                resource=resource.resource,
                cause=cause,
            )
        group.count += 1
        keep_example(group.examples, key)


def _order(one: ValueChange) -> tuple[int, int, str, str]:
    return list(ConfigurationChange).index(one.change), -one.count, one.where, one.label


def _write_keys(
    request: WhatIfRequest, today: Transformers | None, new: Transformers, seen: Iterable[GroupResource]
) -> Iterator[WriteKeyChange]:
    rules = [rule for config in (request.configuration, request.new) if config for rule in config.rules]
    named = [parse_group_resource(entry) for rule in rules for entry in rule.resources if "*" not in entry]
    for resource in sorted(dict.fromkeys([*seen, *named])):
        keys_today, keys_new = _keys_of(today, resource), _keys_of(new, resource)
        if not resource.resource or keys_today[0] == keys_new[0]:
            continue
        yield WriteKeyChange(
            group=resource.group,
            resource=resource.resource,
            today=keys_today[0],
            new=keys_new[0],
            today_reads_new=keys_new[0] in keys_today,
            new_reads_today=keys_today[0] in keys_new,
        )


_UNENCRYPTED: Final = Transformers({}, frozenset()).for_resource(GroupResource("", "")).keys


def _keys_of(transformers: Transformers | None, resource: GroupResource) -> list[KeyOfRule]:
    keys = transformers.for_resource(resource).keys if transformers is not None else _UNENCRYPTED
    return [key.named for key in keys]


def _warnings(
    new: EncryptionConfiguration,
    not_judged: int,
    changes: Iterable[ValueChange],
    write_keys: Iterable[WriteKeyChange],
) -> Iterator[str]:
    if new.made_by:
        yield (
            f"etcdfix encryption {new.made_by} made the new configuration for reading. Before you deploy it, check "
            "which provider comes first for each resource and remove the mark."
        )
    if not_judged:
        yield (
            f"A KMS plugin may open {counted(not_judged, 'value')} today, but it was not asked or did not answer. The "
            "new configuration has nothing that opens them."
        )
    plain = sum(
        change.count
        for change in changes
        if change.change is ConfigurationChange.BECOMES_UNREADABLE
        and change.cause == Cause.PLAINTEXT_NOT_ALLOWED
    )
    if plain:
        verb = "is" if plain == 1 else "are"
        yield (
            f"{counted(plain, 'value')} {verb} stored unencrypted. Keep the identity provider as the last one until an "
            "API server has written them again."
        )
    for key in write_keys:
        where = key.where
        if not key.today_reads_new:
            yield (
                f"{where}: API servers with today's configuration cannot read what {key.new} writes. Deploy it "
                "on all of them below the write key first. Make it the first key after that."
            )
        if not key.new_reads_today:
            yield (
                f"{where}: API servers with today's configuration write with {key.today}, which the new configuration "
                "does not read."
            )
        if key.new.transformer == IDENTITY:
            yield f"{where}: new values will be stored unencrypted."


def _next(
    changes: Iterable[ValueChange],
    write_keys: Iterable[WriteKeyChange],
    comparing: _Comparing,
) -> Step | None:
    unread = {key.where for key in write_keys if not key.new_reads_today}
    lost = [one for one in changes if one.change is ConfigurationChange.BECOMES_UNREADABLE]
    stale = [one for one in changes if one.change is ConfigurationChange.BECOMES_STALE]
    if lost:
        what = "Do not deploy this configuration. Keep the listed keys below the write key"
        if comparing.not_judged_today or any(
            one.where in unread or one.transformer in {"", OTHERS} for one in lost
        ):
            return Step(what)
        resources = _resources(lost)
        return Step(
            f"{what}; or have an API server write {resources} again with today's write key, and run this again",
            write_again(resources),
        )
    if comparing.losing:
        return Step(
            "Do not deploy this configuration. Repair the unreadable values that need today's key, or keep it",
            explain(comparing.losing),
        )
    if comparing.counts[ConfigurationChange.UNDETERMINED]:
        return Step("Do not deploy this configuration until no value is undetermined")
    if stale:
        resources = _resources(stale)
        return Step(
            f"When every API server runs with the new configuration, have one write {resources} again. Keep every key "
            "until then",
            write_again(resources),
        )
    return None


def _resources(changes: Iterable[ValueChange]) -> str:
    """Return all resources of some changes, as kubectl takes several."""
    return ",".join(dict.fromkeys(one.where for one in changes if one.resource != OTHERS))
