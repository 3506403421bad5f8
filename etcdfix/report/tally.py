"""Counting: summaries by resource, cause and transformer, and what is at stake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.examine.verdicts.severity import Stake, headline, restart_warning, stake_of
from etcdfix.model.model import Outcome
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import ResourcePrefix, display
from etcdfix.report.model import (
    COUNTED,
    CauseSummary,
    Counts,
    ResourceSummary,
    Summary,
    TransformerSummary,
)
from etcdfix.text.safetext import safe_text

MAX_NAMES = 1_000
"""So many resources and transformers are counted by name; in damaged or hostile data every key can bring a new
one, and the rest is counted under :data:`OTHERS`."""

OTHERS = "(others)"


class Stakes:
    """Gathers what is at stake with values that pass: there are few kinds of it, so its memory is small.

    Args:
        values: The first of them.
        past: They stand in a snapshot, or at a past revision.
    """

    def __init__(self, values: Iterable[Examination] = (), *, past: bool = False) -> None:
        self._past = past
        self._stakes: dict[Stake, None] = {}
        self._undetermined: dict[str, None] = {}
        for found in values:
            self.add(found)

    def add(self, found: Examination) -> None:
        """Take one value."""
        undetermined = found.verdict.outcome is Outcome.UNDETERMINED
        self.note(stake_of(found), found.verdict.cause if undetermined else None)

    def note(self, stake: Stake | None, undetermined: str | None) -> None:
        """Take what is at stake with one value, or why that is not known."""
        if stake is not None and len(self._stakes) < MAX_NAMES:
            self._stakes[stake] = None
        if undetermined is not None:
            self._undetermined[undetermined] = None

    @property
    def severity(self) -> str | None:
        """The worst severity; None where nothing is proven wrong."""
        worst = min(self._stakes, key=lambda stake: stake.rank, default=None)
        return worst.severity.value if worst is not None else None

    @property
    def at_stake(self) -> str:
        """What is at stake, in one line; "" for nothing."""
        return headline([*self._stakes], [*self._undetermined], past=self._past)

    @property
    def do_not_restart(self) -> str:
        """Why no API server should be restarted; "" where nothing speaks against it."""
        return restart_warning([*self._stakes], [*self._undetermined], past=self._past)

    def lines(self) -> list[str]:
        """Return both, safe to print; empty for nothing."""
        return [safe_text(line) for line in (self.at_stake, self.do_not_restart) if line]


class Tally:
    """Counts examinations as they pass. Memory depends on resources, causes and keys in use, not on keys.

    Args:
        past: A snapshot or a past revision is read.
    """

    def __init__(self, *, past: bool = False) -> None:
        self._not_objects = 0
        self._resources: dict[tuple[str, str], ResourceSummary] = {}
        self._transformers: dict[tuple[str, str, str], TransformerSummary] = {}
        self._causes: dict[tuple[str, str], CauseSummary] = {}
        self._stakes = Stakes(past=past)
        self._until = ""

    def add(self, found: Examination) -> None:
        """Count one examination."""
        verdict, outcome = found.verdict, found.verdict.outcome
        if outcome is Outcome.NOT_AN_OBJECT:
            self._not_objects += 1
            return
        resource = self._resource_of(found.directory)
        resource.keys += 1
        for entry in self._entries_of(found, found.stored.mod_revision) if found.transformer else ():
            entry.keys += 1
            entry.stale += found.stale
            entry.failures += outcome in FAILED
            entry.damaged += outcome in FAILED and verdict.is_damage
            entry.undetermined += outcome is Outcome.UNDETERMINED
        if outcome is Outcome.READABLE:
            resource.readable += 1
            resource.stale += found.stale
            if verdict.readable_until:
                self._until = min(self._until or verdict.readable_until, verdict.readable_until, key=_minor)
        else:
            field = COUNTED[outcome]
            setattr(resource, field, getattr(resource, field) + 1)
            self._stakes.add(found)
        if verdict.cause is not None:
            place = verdict.cause.value, outcome.value
            cause = self._causes.get(place)
            if cause is None:
                cause = self._causes[place] = CauseSummary(*place, 0, display(found.stored.key))
            cause.count += 1

    def add_plain(self, counts: Iterable[PlainCount]) -> None:
        """Count values that are plain."""
        for plain in counts:
            resource = self._resource_of(plain.directory)
            resource.keys += plain.count
            resource.readable += plain.count
            resource.stale += plain.count * plain.stale
            for entry in self._entries_of(plain, plain.first, plain.last):
                entry.keys += plain.count
                entry.stale += plain.count * plain.stale

    def _resource_of(self, directory: ResourcePrefix) -> ResourceSummary:
        place = directory.group, directory.resource
        if place not in self._resources and len(self._resources) >= MAX_NAMES:
            place = ("", OTHERS)
        entry = self._resources.get(place)
        if entry is None:
            entry = self._resources[place] = ResourceSummary(group=place[0], resource=place[1])
        return entry

    def _entries_of(self, seen: Examination | PlainCount, *revisions: int) -> Iterator[TransformerSummary]:
        """Yield the entries under which values count, which reach as far as these revisions."""
        # An unencrypted value has no key that could be lost.
        rule = seen.rule if seen.transformer != IDENTITY else ""
        for fingerprint in seen.key_fingerprints or ("",):
            place = rule, seen.transformer, fingerprint
            if place not in self._transformers and len(self._transformers) >= MAX_NAMES:
                place = ("", OTHERS, "")
            entry = self._transformers.get(place)
            if entry is None:
                entry = self._transformers[place] = TransformerSummary(
                    transformer=place[1],
                    resources=place[0].split(",") if place[0] else [],
                    key_fingerprint=place[2] or None,
                    first_mod_revision=revisions[0],
                    last_mod_revision=revisions[0],
                )
            entry.first_mod_revision = min(entry.first_mod_revision, *revisions)
            entry.last_mod_revision = max(entry.last_mod_revision, *revisions)
            yield entry

    def summary(self) -> Summary:
        """Return all counts; resources by name, causes and transformers most frequent first."""
        total = Summary(not_objects=self._not_objects, readable_until=self._until or None)
        for resource in self._resources.values():
            for field in Counts.__struct_fields__:
                setattr(total, field, getattr(total, field) + getattr(resource, field))
        total.keys += self._not_objects
        total.by_resource = [self._resources[place] for place in sorted(self._resources)]
        total.by_cause = sorted(self._causes.values(), key=lambda c: (-c.count, c.cause, c.outcome))
        total.by_transformer = sorted(
            self._transformers.values(),
            key=lambda t: (-t.keys, t.transformer, t.resources, t.key_fingerprint or ""),
        )
        total.severity, total.at_stake = self._stakes.severity, self._stakes.at_stake
        total.do_not_restart = self._stakes.do_not_restart
        return total


def _minor(release: str) -> int:
    return int(release.partition(".")[2])
