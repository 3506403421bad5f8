"""Ways out that take a value away, and what a change of one takes for granted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from etcdfix.copies.model import Home
from etcdfix.model import GroupResource, Repair, RepairKind
from etcdfix.report.advice.ways import WayKind, risks_to_accept
from etcdfix.report.model import Remedy
from etcdfix.rules import Rule, acceptance
from etcdfix.text import commands
from etcdfix.text.commands import GRANTED, NO_COMMAND, Command, RunOptions
from etcdfix.text.safetext import is_plain
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import rests_on_others
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason

_SECRETS = GroupResource("", "secrets")


class Beside(NamedTuple):
    """What a look at other keys showed.

    Attributes:
        others_lost: Others of its kind have lost their encryption key; None where nobody looked.
        home: What stands at the etcd key that the value belongs to.
    """

    others_lost: bool | None = None
    home: Home = Home.FREE


NOT_TO_KINE: Final = "etcdfix does not write to kine; an API server has to make the change."
# A newer release may have written another magic, or more behind an object.
_MAY_BE_NEWER = frozenset({RepairKind.MAGIC, RepairKind.TRAILING_BYTES})


def granted(run: RunOptions) -> str:
    """Return what a command takes for granted where nobody told how values are encrypted; else ""."""
    return "" if run.told_of_encryption else GRANTED


def repair_risks(found: Examination, repair: Repair, *, breaking: bool = False) -> list[Rule]:
    """Return the rules to accept before a repair: nothing proves it, or a newer release may have written the value."""
    newer = found.verdict.cause is Cause.UNKNOWN_ENVELOPE or repair.kind in _MAY_BE_NEWER
    risks = [Rule.NEWER_THAN_KNOWN] if newer else []
    if repair.proven:
        return risks
    breaking = breaking or bool(protected_reason(found.directory.group_resource, found.namespace))
    return [*([Rule.CLUSTER_BREAKING] if breaking else []), Rule.UNPROVEN_REPAIR, *risks]


def revealed(resource: GroupResource) -> Sequence[str]:
    return ["--reveal"] if resource == _SECRETS else []


def unsafe_deletion(found: Examination) -> Command:
    """Return the API server's own unsafe deletion of an object; nothing where the API cannot name it."""
    path = api_path_of(found)
    query = "ignoreStoreReadErrorWithClusterBreakingPotential=true"
    return Command(["kubectl", "delete", "--raw", f"{path}?{query}"]) if path else NO_COMMAND


def api_path_of(found: Examination) -> str:
    """Return the object's path in the API; "" where the key is none that the API can name."""
    namespaced = found.directory.namespaced
    fits = namespaced is None or namespaced == bool(found.namespace)
    if not is_plain(found.stored.key) or not fits or not found.name or "/" in found.namespace + found.name:
        return ""
    return found.directory.api_path(found.namespace, found.name)


_LOST = "The deletion skips finalizers and graceful termination. The garbage collector then deletes what it owned."


def deletions(found: Examination, run: RunOptions, beside: Beside, *, breaking: bool) -> list[Remedy]:
    """Return the ways to delete what cannot be read: ours, and, where damage is proven, the API server's own."""
    only_here = [Rule.ONLY_COPY] if beside.home is Home.LATER else []
    risks = [*risks_to_accept(found, breaking=breaking), *only_here]
    needs = "".join(f"Needs {acceptance(risk)}. " for risk in risks)
    if beside.others_lost:
        needs += "First save the objects whose encryption key is lost: etcdfix rescue writes DIR. "
    elif beside.others_lost is None and found.rule:
        needs += "It is refused while other objects of its kind have lost their key and are not rescued. "
    damage = found.verdict.damage
    if damage is Damage.POSSIBLE:
        needs = f"Only if no API server reads it: each of them is asked. {needs}"
    elif rests_on_others(found.verdict):
        needs = (
            f"Only if no other value under its key fails like this: the key may have had other bytes. {needs}"
        )
    ours = Remedy(
        "Last: delete it on the live etcd, after this dry run, with a backup and a record",
        commands.delete(
            found.stored.key, risks, asking=damage is Damage.POSSIBLE, rescued=bool(beside.others_lost)
        ),
        f"{needs}{granted(run)}{_LOST}",
        WayKind.DELETE,
    )
    theirs = Remedy(
        "Last: let an API server delete it the unsafe way, after you copied state.db: it keeps no backup"
        if run.of_kine
        else "Last: or let an API server delete it the unsafe way, after a snapshot of etcd: it keeps no backup",
        unsafe_deletion(found),
        "Needs the feature gate AllowUnsafeMalformedObjectDeletion and the verb unsafe-delete-ignore-read-errors. "
        + _LOST,
        WayKind.DELETE,
    )
    # An API server would not look for others that fail, so its own way needs proof.
    return [*([] if run.of_kine else [ours]), *([] if damage.is_unproven else [theirs])]


def ordinary_deletion(found: Examination) -> Remedy:
    return Remedy(
        "Last: delete it through the API in the ordinary way, after a snapshot of etcd",
        raw_request("delete", api_path_of(found)),
        "The API server reads it as an empty object, so it refuses the unsafe deletion.",
        WayKind.DELETE,
    )


def raw_request(verb: str, path: str) -> Command:
    return Command(["kubectl", verb, "--raw", path]) if path else NO_COMMAND
