"""What losing one object would set off, and what to do about an object that reads or is gone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.assess import assess
from etcdfix.graph.cluster import ClusterIndex
from etcdfix.graph.deletion import forecast, refusal, usual_policy
from etcdfix.graph.index import TERMINATING, UNDETERMINED, ImpactIndex
from etcdfix.graph.model import Action, Collection, DeletionResult, Propagation
from etcdfix.graph.namespaces import freed_by, is_served
from etcdfix.graph.owners import owners_elsewhere, unowned
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Outcome
from etcdfix.model.storagekey import StorageCodec, display
from etcdfix.report.impact import Impact
from etcdfix.report.model import Remedy
from etcdfix.report.origin import same_fields
from etcdfix.text.commands import NO_COMMAND, Command, kubectl, look
from etcdfix.text.words import counted

POLICIES: Final = tuple(policy.lower() for policy in Propagation)
"""How an object can be deleted through the API, as kubectl calls it."""


def impact_of(
    cluster: ClusterIndex, key: bytes, examined: Examination | None, *, policy: str | None = None
) -> Impact | None:
    """Assess the loss of one object, readable or not.

    Args:
        cluster: After a look at everything.
        key: Complete etcd key.
        examined: What stands there; None where nothing does.
        policy: Forecast an ordinary deletion in this way: one of :data:`POLICIES`. None forecasts, for an
            object that can be read, a deletion that is under way, else what kubectl does by default.

    Returns:
        None for a key that nobody has and nobody mentions.
    """
    index = cluster.index
    node = index.find(key)
    if node is None:
        return None
    how = usual_policy(index, node) if policy is None else Propagation(policy.capitalize())
    obstacle = _obstacle(cluster, node, examined)
    assessed = partial(assess, index, examiner=cluster.examiner, key=key, by_api=None if obstacle else how)
    try:
        # Who ended the look does not want to wait for more.
        found = assessed(source=cluster.source if cluster.ended is None else None)
    except SourceError as exc:
        index.problems.append(f"lost the earlier revisions of {display(key)}: {exc.message}")
        found = assessed(source=None)
    if found is None:
        return None
    deletion = None
    if obstacle is None or policy is not None or found.readable:
        why, possible = obstacle or ("", True)
        deletion = forecast(
            index, node, found.dependents, how, by_default=policy is None, why=why, possible=possible
        )
    return Impact(
        **same_fields(found, Impact)
        | {
            "warnings": [*_warnings(index, node, found.dependents)],
            "deletion": deletion,
            "incomplete_reasons": cluster.incomplete_reasons(cluster.undetermined),
        }
    )


def _obstacle(
    cluster: ClusterIndex, node: int, examined: Examination | None
) -> tuple[str, bool | None] | None:
    """Return why no ordinary deletion can be forecast, and whether one is possible, None where that is not known.

    None alone where one can be forecast.
    """
    index = cluster.index
    if not index.exists(node):
        gone = "it was not seen, and not everything was read" if index.problems else "it is not in etcd"
        return f"{gone}: there is nothing to delete", None if index.problems else False
    if index.serves_empty(node):
        return "API servers show an empty object instead: the effect of a deletion is unknown", None
    if index.lost(node):
        return (
            "API servers cannot read it and refuse with an error, whatever the policy; only an unsafe deletion removes "
            "it: no finalizer runs, and its dependents are collected as with Background"
        ), False
    if index.flags[node] & UNDETERMINED:
        return (
            "unknown whether API servers can read it, and which finalizers it has; this list shows what its removal "
            "causes"
        ), None
    if examined is not None and examined.verdict.outcome is Outcome.NOT_AN_OBJECT:
        return "it is not an API object", False
    unserved = _unserved(cluster, node)
    if unserved:
        return f"no API serves it while CustomResourceDefinition {unserved} is missing", False
    directory = index.place(node)[0]
    foreign = index.without_crd(directory) and not index.crd_unreadable(directory)
    if foreign or directory.codec is StorageCodec.UNKNOWN:
        return "unknown whether an API serves it, and so deletes it", None
    why = refusal(index, node)
    return (why, False) if why else None


def _warnings(index: ImpactIndex, node: int, collection: Collection) -> Iterator[str]:
    """Yield what happens beside what the object owns, and on what it depends whether any of it happens at once."""
    if about_to_go := _about_to_go(index, node):
        yield about_to_go
    roots = (decision for decision in collection.caught_up if decision.depth == 1)
    going = sum(decision.action is Action.CASCADE_DELETED for decision in roots)
    if going:
        listable = ", ".join(collection.listable)
        why = f"once it is gone, {listable} can be listed again" if listable else "its owner waited for it"
        yield (
            f"{why}, and the garbage collector catches up: it deletes {counted(going, 'more object')}, "
            "whose owners are gone or whose deletion waited"
        )
    for state in freed_by(index, node) if index.unreadable(node) else ():
        left = counted(sum(content.count for content in state.contents), "object")
        yield (
            f"namespace {state.name}, which is being deleted, then finishes, and all that is left in it goes: {left}"
        )
    if collection.unlistable and collection.tree:
        types = ", ".join(f"{path} ({count})" for path, count in list(collection.unlistable.items())[:5])
        yield (
            f"other objects keep types from being listed: {types}; a controller manager that ran before the damage and "
            "one that started since then do different things to their owners and dependents, and one that starts while "
            "no API server is ready exits: nothing of this happens then, until it runs"
        )


def _about_to_go(index: ImpactIndex, node: int) -> str:
    """Say that the collector deletes an object whose owners it does not find, and which it means; "" where it stays."""
    owners = () if index.flags[node] & TERMINATING else unowned(index, node)
    if not owners:
        return ""
    meant = owners_elsewhere(index, [node]).get(node)
    if meant is None:
        why = f"of its owner {owners[0].kind} {owners[0].name}, {owners[0].reason}"
        return f"the garbage collector deletes it as soon as it sees it: {why}"
    named = next(owner for owner in owners if owner.uid == index.uid(meant))
    return (
        f"the garbage collector deletes it as soon as it sees it: it names {named.kind} {named.name} as its owner, "
        f"which does not exist; the uid is that of {index.ref(meant)}"
    )


def _unserved(cluster: ClusterIndex, node: int) -> str:
    """Return the CustomResourceDefinition that is gone, and without which no API serves an object; "" for none.

    One that is there and cannot be read is none: API servers that run may still serve its objects.
    """
    index = cluster.index
    directory = index.place(node)[0]
    if is_served(index, directory, cluster.aggregated) is not False or index.crd_unreadable(directory):
        return ""
    return f"{directory.resource}.{directory.group}"


_APPLY: Final = Command(("kubectl", "apply", "-f", "FILE"))
_MANIFEST: Final = (
    "FILE is the manifest that came with the operator; give it the same group, plural, scope and versions."
)


def ways_without_finding(cluster: ClusterIndex, key: bytes, found: Impact) -> list[Remedy]:
    """Return what to do about an object that can be read, or that is gone and others mention."""
    definition = found.object.resource == "customresourcedefinitions"
    if found.exists is None:
        return [Remedy("Look again in a source that can be read whole: the key may be there")]
    if not found.exists and definition:
        return [
            Remedy("See which of its custom resources are stored", look("scan", "--orphans")),
            Remedy("Bring it back, from its manifest, a snapshot or a backup", _APPLY, _MANIFEST),
        ]
    if not found.exists:
        return [
            Remedy(
                "Let whoever made it make it again, or put it back from a snapshot or backup",
                note="What refers to it by name works again then; what refers to its old uid does not.",
            )
        ]
    node, deletion = cluster.index.find(key), found.deletion
    unserved = _unserved(cluster, node) if found.readable and node is not None else ""
    if unserved:
        action = f"It can be read, but no CustomResourceDefinition serves it: bring back {unserved} first"
        return [
            Remedy(
                action, _APPLY, f"{_MANIFEST} Then delete the object through the API, which runs finalizers."
            )
        ]
    if deletion is None or node is None:
        return []
    if about_to_go := _about_to_go(cluster.index, node):
        action = f"{about_to_go[:1].upper()}{about_to_go[1:]}"
        note = "This takes its owner references off, and it stays. Where the right owner can be named, name it instead."
        return [Remedy(action, _without_owners(cluster.index, node, found), note)]
    if deletion.result is DeletionResult.REFUSED:
        return [Remedy("It can be read, so nothing has to be done", note=f"{deletion.text}.")]
    action = "It can be read, so nothing has to be done; to delete it, use the API, which runs its finalizers"
    return [Remedy(action, _ordinary_dry_run(found), "etcdfix deletes nothing that can be read.")]


def _without_owners(index: ImpactIndex, node: int, found: Impact) -> Command:
    """Return the patch that takes the owner references off, unless they are others by then."""
    ref = found.object
    where = ["-n", ref.namespace] if ref.namespace else []
    path = "/metadata/ownerReferences"
    patch = [
        {"op": "test", "path": f"{path}/0/uid", "value": index.owners(node)[0].uid},
        {"op": "remove", "path": path},
    ]
    written = msgspec.json.encode(patch).decode()
    return kubectl("patch", ref.full_resource, ref.name, *where, "--type=json", "-p", written)


def _ordinary_dry_run(found: Impact) -> Command:
    ref, deletion = found.object, found.deletion
    if not ref.resource or not ref.name or "/" in ref.name:
        return NO_COMMAND
    where = ["-n", ref.namespace] if ref.namespace else []
    if deletion is not None and not deletion.by_default:
        where.append(f"--cascade={deletion.policy.lower()}")
    return kubectl("delete", ref.full_resource, ref.name, *where, "--dry-run=server")
