"""What to do about many broken objects, in order: nothing that can wait before what cannot.

What nobody misses is deleted first, what the cluster depends on last. Beside it what each object is, in a clause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.graph.model import Assessment, Risk
from etcdfix.graph.recreation import TOKEN_TYPE, Recreation, shown
from etcdfix.graph.recreation_rules import MAKERS, ComesBack
from etcdfix.graph.users import by_role
from etcdfix.graph.uses import Role
from etcdfix.model import Outcome
from etcdfix.report.advice.finding import undetermined_way
from etcdfix.report.advice.ways import recovered_configuration
from etcdfix.report.model import Remedy
from etcdfix.report.plan import PlanGroup, PlanStep
from etcdfix.report.plan_entry import Decision, PlanEntry, decision_on, deletion_waits, entry_stake
from etcdfix.report.rows import Rows
from etcdfix.report.sorted_rows import SortedRows
from etcdfix.text import commands
from etcdfix.text.commands import Command, Part, RunOptions
from etcdfix.text.words import counted
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.severity import Rank

_MOST_NAMED: Final = 5
_ACCEPT: Final = "--accept "
_UNDETERMINED: Final = "undetermined"


def steps_for(
    entries: Sequence[PlanEntry],
    groups: Sequence[PlanGroup],
    report: str,
    run: RunOptions,
) -> list[PlanStep]:
    """Return the steps; none where nothing is broken."""
    if not entries:
        return []
    counts = _Counts()
    for entry in entries:
        counts.add(entry)
    steps = [*_before(counts, groups, ("--from-report", report), run), *_deletions(counts, run)]
    return [
        PlanStep(title, text, [line for each in found if (line := each.line(run))])
        for title, text, found in steps
    ]


class _Counts(msgspec.Struct):
    """What the entries come to, taken in their order."""

    by_hand: int = 0
    breaking: int = 0
    saved: int = 0
    worst_saved: PlanEntry | None = None
    fixes: Counter[str] = msgspec.field(default_factory=Counter)
    first_fixes: list[PlanEntry] = msgspec.field(default_factory=list)

    def add(self, entry: PlanEntry) -> None:
        self.breaking += is_breaking(entry)
        if decision_on(entry).decision == Decision.FIX:
            self.fixes[entry.source.partition(":")[0]] += 1
            if len(self.first_fixes) < _MOST_NAMED:
                self.first_fixes.append(entry)
        if entry.save:
            self.saved += 1
            # What has a later turn is missed more.
            if self.worst_saved is None or _loss(entry) <= _loss(self.worst_saved):
                self.worst_saved = entry
        self.by_hand += entry.comes_back == ComesBack.NO


_Step = tuple[str, str, tuple[Command, ...]]
"""Title, text and commands."""


def _step(title: str, text: str, *found: Command) -> _Step:
    return title, text, found


def _before(
    counts: _Counts, groups: Sequence[PlanGroup], words: Sequence[str], run: RunOptions
) -> Iterator[_Step]:
    yield _step(
        "Do not restart the API servers",
        "Their memory may still hold the keys and the objects. A restart throws both away.",
    )
    # A plugin may only have to answer first, and damage is not in memory for long.
    lost = any(group.declaration and group.outcome != _UNDETERMINED for group in groups)
    yield _step(
        "Save what API servers hold in memory",
        "One deletion ends that for all objects of a kind. It is refused until they are saved (--rescued DIR). Keep "
        "the files as you keep the Secrets themselves."
        + (" A plan that knows them (--rescued DIR) has API servers write them anew." if lost else ""),
        *([commands.rescue(words)] if lost else []),
    )
    kept = (
        recovered_configuration([Cause(group.cause)], group.transformer, run)
        for group in groups
        if group.cause
    )
    recovered = next(filter(None, kept), None)
    if recovered is not None:
        text = f"{recovered.note} What one of them opens is not lost: plan again with it."
        yield _step(recovered.action, text, recovered.command)
    patterns = _patterns(group for group in groups if group.declaration)
    if patterns:
        yield _step(
            "Look for the encryption key",
            f"{patterns}: that is the key or the configuration, not the objects. With a key that you find you need no "
            "plan. Their deletion is refused until you declare the key lost.",
            commands.scan(reading=[Part.CONFIGURATION]),
        )
    silent: Counter[Remedy] = Counter()
    for group in groups:
        if group.outcome == _UNDETERMINED:
            silent[kms_step(group.cause, run)] += group.count
    for way, count in silent.items():
        text = f"Nothing is proven of {counted(count, 'object')}, and most likely all is well. Plan again after that."
        yield _step(way.action, text, way.command)
    if counts.worst_saved is not None:
        # A file compacts nothing, and nothing can be put back into it.
        soon = "API servers have it compacted away every 5 minutes: save all of them now, or take a snapshot."
        if run.of_a_file:
            soon = "A live etcd may have compacted it: keep this file."
            if not run.of_kine:
                soon += f" etcdfix fix KEY --from snapshot:{run.file} puts it back from there."
        told = f"A readable revision of {counted(counts.saved, 'object')} is kept (save in the plan)."
        yield _step(
            "Save earlier revisions",
            f"{told} {soon} The worst loss:",
            commands.Command(text=counts.worst_saved.save),
        )
    if counts.fixes:
        places = ", ".join(f"{count} from {place}" for place, count in counts.fixes.most_common())
        yield _step(
            "Put back what has a copy, before anything is deleted",
            f"{counted(counts.fixes.total(), 'object')}: {places} (from in the plan). The first dry runs:",
            *(commands.Command(text=one.fix) for one in counts.first_fixes),
        )
    yield _step(
        "Look for every other copy",
        "It may be in etcd's write-ahead log, older snapshots or backups. To put one back is better than to delete. "
        "Drop the options that you have no file for.",
        commands.copies(*words, options=[Part.OTHER_PLACES]),
    )
    others = _patterns(group for group in groups if not group.declaration)
    if others:
        yield _step(
            "Find out what happened to many values",
            f"{others}: the advice of the groups says what to suspect. Delete none of them before you know.",
            commands.scan("-o", "yaml"),
        )
    store = "Copy the database of kine" if run.of_kine else "Take a snapshot of etcd"
    yield _step(
        f"{store}, and keep it", "A key may turn up later.", commands.save_copy(run, "before-deletions.db")
    )


def kms_step(cause: str | None, run: RunOptions) -> Remedy:
    """Return what comes first for values of which nothing is proven, since KMS did not open them."""
    way = undetermined_way({cause or ""}, (), run)
    assert way is not None  # there is a cause
    return way


def _deletions(counts: _Counts, run: RunOptions) -> Iterator[_Step]:
    breaking = counted(counts.breaking, "object")
    last = f", and last {breaking} that the cluster may depend on" if counts.breaking else ""
    how = "Each command is a dry run: leave --dry-run out when what it shows is right."
    if run.of_kine:
        how = "etcdfix deletes nothing in kine: an API server does. etcdfix explain shows the request."
    hand = ""
    if counts.by_hand:
        hand = (
            f" Nobody makes {counted(counts.by_hand, 'object')} again: have a manifest or a copy of each in hand "
            "before you delete it, and create it after that."
        )
    order = f"First what comes back by itself (see that it does), then what nobody uses, then what is in use{last}."
    yield "Delete in the order of this plan, one key after the other", f"{order} {how}{hand}", ()
    yield "Scan again", "Nothing of this plan may be left.", (commands.scan(),)


def _patterns(groups: Iterable[PlanGroup]) -> str:
    counts: Counter[tuple[str, int]] = Counter()
    for group in groups:
        if group.advice and group.outcome != _UNDETERMINED:
            counts[group.transformer, group.opened] += group.count
    return "; ".join(
        f"{counted(count, 'object')} under {transformer or 'unknown envelopes'}, where {opened or 'none'} open"
        for (transformer, opened), count in counts.most_common(_MOST_NAMED)
    )


def _loss(entry: PlanEntry) -> tuple[bool, Rank, bool]:
    return entry.outcome == Outcome.UNDETERMINED, entry_stake(entry).rank, deletion_waits(entry)


STAGES: Final = {
    ComesBack.NOT_NEEDED.value: 0,
    ComesBack.BY_ITSELF.value: 1,
    ComesBack.AFTER_A_STEP.value: 2,
    ComesBack.NO.value: 3,
}
_RISKS: Final = [risk.value for risk in Risk]


def is_breaking(entry: PlanEntry) -> bool:
    """Say whether the cluster may depend on an object, so that its deletion needs ``--accept cluster-breaking``."""
    return bool(entry.protected) or entry.risk == Risk.CLUSTER_BREAKING


def in_order(drafts: Iterable[PlanEntry]) -> Sequence[PlanEntry]:
    """Return entries in their order, each with its turn.

    Raises:
        SourceError: They are many, and there is no room for them.
    """
    rows = SortedRows(PlanEntry)
    for entry in drafts:
        rows.add(_turn(entry), entry)
    everything = rows.finish()

    def read() -> Iterator[PlanEntry]:
        for turn, entry in enumerate(everything, start=1):
            msgspec.structs.force_setattr(entry, "order", turn)  # of a row that was read just now
            yield entry

    return Rows(len(everything), read)


def _is_unproven(entry: PlanEntry) -> bool:
    return entry.outcome == Outcome.UNDETERMINED or bool(entry.refused)


def _turn(entry: PlanEntry) -> bytes:
    """Return what decides an object's turn: harmless first, then what is in use, what the cluster depends on last."""
    stage = STAGES[entry.comes_back]
    # In use, and nobody makes it again: its users wait from its deletion until a person has made it.
    missed = entry.users > 0 and stage > STAGES[ComesBack.BY_ITSELF]
    risk = _RISKS.index(entry.risk)
    places = bytes([is_breaking(entry), _is_unproven(entry), missed, stage, risk])
    return places + entry.users.to_bytes(8) + entry.key.encode() + b"\x00"


_NAMED_USERS: Final = 2

# Way of use -> the Secret's likely type, and what it is.
_KINDS_OF_USE: Final[dict[Role, str]] = {
    Role.INGRESS_TLS: "TLS certificate",
    Role.IMAGE_PULL: "pull secret",
    Role.CONTROLLER_PUBLISH: "storage credentials",
    Role.NODE_STAGE: "storage credentials",
    Role.NODE_PUBLISH: "storage credentials",
    Role.CONTROLLER_EXPAND: "storage credentials",
    Role.NODE_EXPAND: "storage credentials",
    Role.PROVISIONER: "storage credentials",
    Role.PROVISIONER_DELETION: "storage credentials",
    Role.SNAPSHOTTER: "storage credentials",
    Role.SNAPSHOT_DELETION: "storage credentials",
}
_TYPES: Final = {
    TOKEN_TYPE: "service-account token",
    "kubernetes.io/tls": "TLS certificate",
    "kubernetes.io/dockerconfigjson": "pull secret",
    "kubernetes.io/dockercfg": "pull secret",
    "bootstrap.kubernetes.io/token": "bootstrap token",
    "helm.sh/release.v1": "Helm release",
}


def what_it_is(assessment: Assessment, recreation: Recreation) -> str:
    """Return what an object is and who uses it, in a clause that is safe for a terminal."""
    ref = assessment.object
    kind = shown(ref.kind or ref.resource or "a value of no known resource")
    users = _users(assessment)
    if assessment.secret is None:
        return f"{kind}{users}"
    role = next((role for role in by_role(assessment.users) if role in _KINDS_OF_USE), None)
    known = assessment.last_known
    if known.type:
        which = _TYPES.get(known.type, f"type {shown(known.type)}")
    elif recreation.recreated_by is MAKERS["token-controller"]:
        which = "service-account token"
    elif recreation.recreated_by is MAKERS["helm-release"]:
        which = "Helm release"
    elif ref.namespace == "kube-system" and ref.name.startswith("bootstrap-token-"):
        which = "bootstrap token"
    elif role is not None:
        which = f"{_KINDS_OF_USE[role]}, by its use"
    else:
        which = "type not known"
    return f"Secret ({which}){users}"


def _users(assessment: Assessment) -> str:
    objects = {user.object for user in assessment.users}
    distinct = sorted(objects, key=lambda ref: (ref.resource == "pods", ref.key))
    if not distinct:
        return ""
    named = ", ".join(f"{shown(ref.resource)} {shown(ref.name)}" for ref in distinct[:_NAMED_USERS])
    more = f" and {len(distinct) - _NAMED_USERS} more" if len(distinct) > _NAMED_USERS else ""
    return f", used by {named}{more}"
