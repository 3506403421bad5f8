"""What to do about many broken objects, in order: nothing that can wait before what cannot.

What nobody misses is deleted first, what the cluster depends on last. Beside it what each object is, in a clause.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from etcdfix.graph.model import Assessment, Risk, Stops
from etcdfix.graph.recreation import TOKEN_TYPE, Recreation, shown
from etcdfix.graph.recreation_rules import MAKERS, ComesBack
from etcdfix.graph.users import by_role
from etcdfix.graph.uses import Role
from etcdfix.model import Confidence, GroupResource, Outcome
from etcdfix.operations.look.sorted_rows import SortedRows
from etcdfix.report.advice.change import save_command
from etcdfix.report.advice.finding import undetermined_way
from etcdfix.report.advice.ways import recovered_configuration
from etcdfix.report.model import Remedy
from etcdfix.report.plan import PlanEntry, PlanGroup, PlanStep, deletion_waits, entry_stake, meaning
from etcdfix.report.planfile import plan_key
from etcdfix.report.rows import Rows
from etcdfix.text import commands
from etcdfix.text.commands import Part, RunOptions
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
    """Return the steps; none where nothing is broken.

    Args:
        entries: In their order.
        groups: Of the entries.
        report: Path of the saved report that the plan rests on.
        run: What was read, and how.
    """
    if not entries:
        return []
    counts = _Counts()
    for entry in entries:
        counts.add(entry)
    return [*_before(counts, groups, report, run), *_deletions(counts, run)]


class _Counts(msgspec.Struct):
    """What the entries come to, taken in their order.

    Attributes:
        alone: Makers of what comes back by itself.
        helped: Makers of what comes back after a step.
        trials: Makers one of whose objects has one of the first turns.
        flags: What commands lack.
        hand: How many are made by hand.
        hand_used: How many of those are in use.
        guessed: How many of those have a maker that is only guessed.
        breaking: How many the cluster may depend on.
        earlier: How many have a readable revision, also of those that come back.
        worst_earlier: Of these the one whose loss is the worst.
        repairable: How many can be had back from their own bytes.
        first_repairable: The first of these, in their order.
    """

    alone: Counter[str] = msgspec.field(default_factory=Counter)
    helped: Counter[str] = msgspec.field(default_factory=Counter)
    trials: set[str] = msgspec.field(default_factory=set)
    flags: Counter[str] = msgspec.field(default_factory=Counter)
    hand: int = 0
    hand_used: int = 0
    guessed: int = 0
    breaking: int = 0
    earlier: int = 0
    worst_earlier: PlanEntry | None = None
    repairable: int = 0
    first_repairable: list[PlanEntry] = msgspec.field(default_factory=list)

    def add(self, entry: PlanEntry) -> None:
        guess = is_guess(entry)
        self.flags.update(entry.needs)
        self.breaking += is_breaking(entry)
        if entry.repair:
            self.repairable += 1
            if len(self.first_repairable) < _MOST_NAMED:
                self.first_repairable.append(entry)
        if _is_trial(entry):
            self.trials.add(entry.recreated_by)
        if entry.readable_revision:
            self.earlier += 1
            # What has a later turn is missed more.
            if self.worst_earlier is None or _loss(entry) <= _loss(self.worst_earlier):
                self.worst_earlier = entry
        if guess or entry.comes_back == ComesBack.NO:
            self.hand += 1
            self.hand_used += entry.users > 0
            self.guessed += guess
        elif entry.comes_back == ComesBack.BY_ITSELF:
            self.alone[entry.recreated_by] += 1
        elif entry.comes_back == ComesBack.AFTER_A_STEP:
            self.helped[entry.recreated_by] += 1


def _before(
    counts: _Counts,
    groups: Sequence[PlanGroup],
    report: str,
    run: RunOptions,
) -> Iterator[PlanStep]:
    yield PlanStep(
        "Do not restart the API servers",
        "Their caches may still hold the keys and the objects; a restart throws both away.",
    )
    words = ("--from-report", report)
    # A plugin may only have to answer first, and damage is not in memory for long.
    lost = any(group.declaration and group.outcome != _UNDETERMINED for group in groups)
    heal = " What a lost key hides, they can write anew from memory, under the same uid (etcdfix heal): a dry run."
    yield PlanStep(
        "Save what API servers hold in memory",
        "One deletion ends that for all objects of a kind, and is refused until they are saved (--rescued DIR). Keep "
        f"the files as you would keep the Secrets themselves.{heal if lost else ''}",
        [commands.rescue(words).line(run), commands.heal(words).line(run)] if lost else [],
    )
    kept = (
        recovered_configuration([Cause(group.cause)], group.transformer, run)
        for group in groups
        if group.cause
    )
    recovered = next(filter(None, kept), None)
    if recovered is not None:
        yield PlanStep(
            recovered.action,
            f"{recovered.note} What one of them opens is not lost: plan again with it.",
            [recovered.command.line(run)],
        )
    patterns = _patterns(group for group in groups if group.declaration)
    if patterns:
        yield PlanStep(
            "Look for the encryption key",
            f"{patterns}: that is the key or the configuration, not the objects. A key that is found makes this plan "
            "needless; until it is declared lost, their deletion is refused.",
            [commands.scan(reading=[Part.CONFIGURATION]).line(run)],
        )
    silent: Counter[Remedy] = Counter()
    for group in groups:
        if group.outcome == _UNDETERMINED:
            silent[kms_step(group.cause, run)] += group.count
    for way, count in silent.items():
        yield PlanStep(
            way.action,
            f"Of {counted(count, 'object')} nothing is proven: most likely they are in order. Plan again after that.",
            [way.command.line(run)],
        )
    if counts.worst_earlier is not None:
        yield _earlier_revisions(counts.earlier, counts.worst_earlier, run)
    if counts.repairable and not run.of_kine:
        first = counts.first_repairable
        which = (
            "The commands are" if len(first) == counts.repairable else f"The first {len(first)} commands are"
        )
        yield PlanStep(
            "Repair what can be had back from its own bytes",
            f"Of {counted(counts.repairable, 'object')} the stored bytes can be put right (repair in the plan): then "
            f"nothing of them is lost. {which} dry runs:",
            [commands.repair(plan_key(entry), _words(entry.repair_needs)).line(run) for entry in first],
        )
    yield PlanStep(
        "Look for every other copy",
        "In etcd's write-ahead log, older snapshots, backups: of each it says how it is put back. To put one back is "
        "better than to delete. Leave out what there is not.",
        [commands.copies(*words, options=[Part.OTHER_PLACES]).line(run)],
    )
    others = _patterns(group for group in groups if not group.declaration)
    if others:
        yield PlanStep(
            "Find out what happened to many values",
            f"{others}: the advice of the groups says what this points at. Before that is known, delete none of them. "
            "The evidence of each:",
            [commands.scan("-o", "yaml").line(run)],
        )
    yield PlanStep(
        "Copy the database of kine, and keep the copy"
        if run.of_kine
        else "Take a snapshot of etcd, and keep it",
        "A key may turn up later.",
        [commands.save_copy(run, "before-deletions.db").line(run)],
    )


def _words(needs: list[str]) -> list[str]:
    return [flag.removeprefix(_ACCEPT) for flag in needs if flag.startswith(_ACCEPT)]


def _earlier_revisions(kept: int, worst: PlanEntry, run: RunOptions) -> PlanStep:
    """Return the step that keeps what etcd is about to compact, with the command for the worst of the losses.

    A file compacts nothing, and nothing can be put back into it.
    """
    which = "This one" if kept == 1 else "The one whose loss is the worst"
    key = plan_key(worst)
    save = save_command(key, GroupResource(worst.group, worst.resource), worst.readable_revision).line(run)
    if run.of_a_file:
        return PlanStep(
            "See earlier revisions, which this file still holds",
            f"Of {counted(kept, 'object')} it holds a readable revision (readable_revision in the plan). A live etcd "
            f"may have compacted it by now: keep this file. {which}, first to see it, then to save it:",
            [commands.get(key, revision=worst.readable_revision).line(run), save],
        )
    waits = deletion_waits(worst) or bool(worst.repair)  # a repair brings back what is newer
    asking = [Part.ASKING] if "--kubeconfig" in shlex.split(worst.command) else []
    put_back = commands.restore(
        ("--from-revision", str(worst.readable_revision), *asking),
        key,
        replacing=worst.mod_revision,
        accepted=_words(worst.needs),
    ).line(run)
    return PlanStep(
        f"{'Save' if waits else 'Put back'} earlier revisions before etcd compacts them",
        f"Of {counted(kept, 'object')} etcd kept a readable revision (readable_revision in the plan). To put one back "
        "is better than to delete it. An API server has etcd compact, every five minutes, what is older: save them now "
        "(etcdfix get --revision), or take a snapshot. "
        f"{which}{', to be saved until its present value may be deleted' if waits else ''}:",
        [save if waits else put_back],
    )


def kms_step(cause: str | None, run: RunOptions) -> Remedy:
    """Return what comes first for values of which nothing is proven, since KMS did not open them."""
    way = undetermined_way({cause or ""}, (), run)
    assert way is not None  # there is a cause
    return way


def _deletions(counts: _Counts, run: RunOptions) -> Iterator[PlanStep]:
    if counts.alone:
        first = len(counts.trials)
        turns = "The first turn is one of them" if first == 1 else f"The first {first} turns are one of each"
        yield PlanStep(
            "See that the controllers run that recreate objects",
            f"{counted(counts.alone.total(), 'object')} should come back without you: {_makers(counts.alone)}. "
            + (f"{turns}: delete that much, and wait until it is there again." if first else ""),
        )
    if counts.helped:
        yield PlanStep(
            "Prepare what needs a step after the deletion",
            f"{counted(counts.helped.total(), 'object')}: {_makers(counts.helped)}. Which step, the list of makers "
            "says (HOW).",
        )
    if counts.hand:
        guessed = counts.guessed
        warning = f", {guessed} of them with a maker that is only guessed" if guessed else ""
        yield PlanStep(
            "Have the replacement of the others in hand BEFORE you delete them",
            f"{counted(counts.hand, 'object')}, {counts.hand_used} of them in use{warning}: from a manifest, a "
            "saved cache, a snapshot that still opens. Nothing can be created under a name while the broken value is "
            "there, so create each right after its deletion.",
        )
    own = _own_words(counts.flags)
    if own:
        yield PlanStep(
            "Decisions only you can make",
            f"The commands accept nothing for you: without these flags the deletion is refused. {own}.",
        )
    last = counts.breaking
    how = (
        "etcdfix deletes nothing in kine: an API server does, and etcdfix explain shows the request"
        if run.of_kine
        else "Each command is a dry run; leave --dry-run out when what it shows is right"
    )
    yield PlanStep(
        "Delete in the order of this plan, one key after the other",
        "First what comes back by itself, then what nobody uses, then what is in use"
        + (f", and last {counted(last, 'object')} that the cluster may depend on" if last else "")
        + f". {how}. Each grade is that of one deletion while everything else is there: read the preview of each.",
    )
    yield PlanStep(
        "Scan again",
        "Nothing of this plan may be left.",
        [commands.scan().line(run)],
    )


def _own_words(flags: Counter[str]) -> str:
    """Say which flags the commands lack, for how many objects, and what each declares."""
    counts = flags.most_common()
    said = [
        f"{flag} for {counted(count, 'object')} ({meaning(flag)})" for flag, count in counts[:_MOST_NAMED]
    ]
    more = len(counts) - _MOST_NAMED
    return "; ".join(said) + (
        f"; and {counted(more, 'more flag')}, see the advice of the groups" if more > 0 else ""
    )


def _patterns(groups: Iterable[PlanGroup]) -> str:
    counts: Counter[tuple[str, int]] = Counter()
    for group in groups:
        if group.advice and group.outcome != _UNDETERMINED:
            counts[group.transformer, group.opened] += group.count
    return "; ".join(
        f"{counted(count, 'object')} under {transformer or 'unknown envelopes'}, where {opened or 'none'} open"
        for (transformer, opened), count in counts.most_common(_MOST_NAMED)
    )


def _makers(makers: Counter[str]) -> str:
    counts = makers.most_common()
    names = ", ".join(f"{name} {count}" for name, count in counts[:_MOST_NAMED])
    return names + (f", and {len(counts) - _MOST_NAMED} more" if len(counts) > _MOST_NAMED else "")


def _loss(entry: PlanEntry) -> tuple[bool, Rank, bool]:
    """Sort the worst loss first; among equals what can be put back at once."""
    return entry.outcome == Outcome.UNDETERMINED, entry_stake(entry).rank, deletion_waits(entry)


STAGES: Final = {
    ComesBack.NOT_NEEDED.value: 0,
    ComesBack.BY_ITSELF.value: 1,
    ComesBack.AFTER_A_STEP.value: 2,
    ComesBack.NO.value: 3,
}
_RISKS: Final = [risk.value for risk in Risk]


def is_guess(entry: PlanEntry) -> bool:
    """Say whether somebody may make an object again, but nothing that one should rely on says so."""
    return entry.recreate_confidence == Confidence.POSSIBLE


def is_breaking(entry: PlanEntry) -> bool:
    """Say whether the cluster may depend on an object, so that its deletion needs ``--accept cluster-breaking``."""
    return bool(entry.protected) or entry.risk == Risk.CLUSTER_BREAKING


def in_order(drafts: Iterable[PlanEntry]) -> Sequence[PlanEntry]:
    """Return entries in their order, each with its turn.

    The first turns go to one object of each maker whose objects come back by themselves: whether they do is seen there.

    Raises:
        SourceError: They are many, and there is no room for them.
    """
    rows = SortedRows(PlanEntry)
    trials: dict[str, tuple[bytes, PlanEntry]] = {}
    for entry in drafts:
        turn = _turn(entry)
        rows.add(turn, entry)
        if _is_trial(entry) and (entry.recreated_by not in trials or turn < trials[entry.recreated_by][0]):
            trials[entry.recreated_by] = turn, entry
    first = [entry for _, entry in sorted(trials.values(), key=lambda trial: trial[0])]
    tried = {entry.key for entry in first}
    everything = rows.finish()

    def read() -> Iterator[PlanEntry]:
        rest = (entry for entry in everything if entry.key not in tried)
        for turn, entry in enumerate(chain(first, rest), start=1):
            msgspec.structs.force_setattr(entry, "order", turn)  # of a row that was read just now
            yield entry

    return Rows(len(everything), read)


def _is_trial(entry: PlanEntry) -> bool:
    """Say whether an object comes back by itself, and nothing speaks against trying that."""
    comes_back = entry.comes_back == ComesBack.BY_ITSELF and not is_guess(entry)
    return comes_back and not is_breaking(entry) and not _is_unproven(entry)


def _is_unproven(entry: PlanEntry) -> bool:
    return entry.outcome == Outcome.UNDETERMINED or bool(entry.refused)


def _turn(entry: PlanEntry) -> bytes:
    """Return what decides an object's turn: harmless first, then what is in use, what the cluster depends on last."""
    stage = STAGES[ComesBack.NO if is_guess(entry) else entry.comes_back]
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
        perhaps = "perhaps a " if recreation.confidence is Confidence.POSSIBLE else ""
        which = f"{perhaps}service-account token"
    elif recreation.recreated_by is MAKERS["helm-release"]:
        which = "Helm release"
    elif ref.namespace == "kube-system" and ref.name.startswith("bootstrap-token-"):
        which = "bootstrap token"
    elif role is not None:
        which = f"{_KINDS_OF_USE[role]}, by its use"
    else:
        which = "type not known"
    return f"Secret ({which}){users}"


def users_of(assessment: Assessment) -> tuple[int, int]:
    """Return how many objects use another, and how many of them its absence stops."""
    users = assessment.users
    if assessment.secret is None:
        needing = {user.object for user in users if not user.optional and not user.heuristic}
    else:
        needing = {user.object for user in users if user.stops is Stops.YES}
    return len({user.object for user in users}), len(needing)


def _users(assessment: Assessment) -> str:
    """Name the first users; those that are no pods first, since they speak for their pods."""
    objects = {user.object for user in assessment.users}
    distinct = sorted(objects, key=lambda ref: (ref.resource == "pods", ref.key))
    if not distinct:
        return ""
    named = ", ".join(f"{shown(ref.resource)} {shown(ref.name)}" for ref in distinct[:_NAMED_USERS])
    more = f" and {len(distinct) - _NAMED_USERS} more" if len(distinct) > _NAMED_USERS else ""
    return f", used by {named}{more}"
