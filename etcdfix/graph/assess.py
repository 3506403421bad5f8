"""The blast radius of losing one key: who it was, what goes with it, who misses it, and how bad that is.

Who uses a Secret is what KEP-2639 wanted to protect Secrets for. It was abandoned and no release has its controller.
Its list of users is the right one all the same, and ``secret.kubernetes.io/skip-secret-protection: "yes"`` and the two
finalizers may be found on real Secrets.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from etcdfix.examine.one import Examiner
from etcdfix.examine.readable_revision import (
    RevisionThatReads,
    kept_of_history,
    newest_kept,
    readable_of,
    reads,
)
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.collector import collect
from etcdfix.graph.contents import ContentReader
from etcdfix.graph.fields import at, items, mapping, text
from etcdfix.graph.grades import inferred_finalizers, lost_finalizers, reasons_for, warnings_about
from etcdfix.graph.index import FINISHED, ImpactIndex
from etcdfix.graph.model import (
    Assessment,
    LastKnown,
    LostFinalizer,
    Propagation,
    Risk,
    SecretState,
    User,
)
from etcdfix.graph.recreation import marks_of
from etcdfix.graph.references import owners_of
from etcdfix.graph.uses import ANY, SECRETS, SNAPSHOT_GROUP, TOKEN_LIST
from etcdfix.model.model import Confidence, StoredValue
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Source

_WORST_FIRST: Final = {risk: -place for place, risk in enumerate(Risk)}


def assess(
    index: ImpactIndex,
    source: Source | None,
    examiner: Examiner,
    key: bytes,
    *,
    reader: ContentReader | None = None,
    generations: bool = True,
    closed: StoredValue | None = None,
    by_api: Propagation | None = None,
) -> Assessment | None:
    """Assess the loss of one object, readable or not.

    Args:
        index: Of the cluster, made with the same examiner.
        source: Where its history is; None where that cannot be read any more.
        examiner: Judges the revisions of its history.
        key: Complete etcd key.
        reader: Looks into them; made when not given.
        generations: Look at the whole history, which may go on with the same object after a deletion and its undo. On
            a live etcd that takes a watch, a tenth of a second each; for one of many, leave it out.
        closed: What stands there, its value left out, where it was examined and nothing came out of it: it is neither
            read nor examined again.
        by_api: It is deleted through the API, in this way; None for a removal from etcd, or an unsafe deletion.

    Returns:
        None for a key that nobody has and nobody mentions.

    Raises:
        SourceError: The history cannot be read.
    """
    node = index.find(key)
    if node is None or (not index.exists(node) and _stands_for_others(index, node)):
        return None
    stated = _stated_uids(index, node)
    found = None
    if source is not None:
        with source.aside():  # reports rest on the pass over everything
            found = _newest_object(source, examiner, key, generations=generations, closed=closed)
        if found is not None and _is_later(source, found) and index.exists(node):
            index.problems.append(
                f"{display(key)} was changed after everything was read, and etcd compacted what it was"
            )
            found = None
    known = _last_known(index, node, reader or ContentReader(examiner), found, stated)
    # The uid of an earlier generation leads away from what belongs to this one.
    disagree = known.basis == "references" and known.conflicting_uids
    collection = collect(index, node, uid="" if disagree else known.uid, by_api=by_api)
    users = users_of(index, node)
    secret = secret_state(index, node)
    finalizers = _finalizers(index, node, known)
    # What cannot be read refers to nothing; its history may still tell.
    bound_to = index.node_of(node)
    warnings = warnings_about(index, node)
    reasons = reasons_for(index, node, collection, users, finalizers, by_api=by_api is not None)
    reasons = sorted([*reasons, *warnings], key=lambda reason: _WORST_FIRST[reason.risk])
    return Assessment(
        object=index.ref(node),
        exists=index.exists(node) or (None if index.problems else False),
        readable=index.exists(node) and not index.unreadable(node),
        last_known=known,
        dependents=collection,
        secret=secret,
        users=users,
        finalizers=finalizers,
        node=index.place(bound_to)[2] if bound_to is not None else known.node,
        risk=reasons[0].risk if reasons else Risk.NONE,
        may_be_worse=bool(warnings),
        reasons=tuple(reasons),
    )


def came_out(found: Examination) -> bool:
    """Say whether an object came out of a value."""
    return found.decoded is not None and not found.decoded.empty


def _stands_for_others(index: ImpactIndex, node: int) -> bool:
    """Say whether a node is no object but what references mean that leave the namespace open."""
    named = index.keys[node].decode("utf-8", "replace").split("/")
    return ANY in named and all(edge.use.unscoped for edge in index.users(node))


def _stated_uids(index: ImpactIndex, node: int) -> Counter[str]:
    stated = Counter(edge.uid for edge in index.users(node) if edge.uid)
    for dependent in index.dependents(node):
        stated.update({owner.uid for owner in index.owners(dependent) if owner.node == node and owner.uid})
    return stated


def _newest_object(
    source: Source, examiner: Examiner, key: bytes, *, generations: bool, closed: StoredValue | None
) -> RevisionThatReads | None:
    """Return the newest value of a key that tells who it was, in whatever way it is wrong otherwise.

    What earlier revisions come to says nothing of other values.
    """
    newest = closed or source.get(key)
    apart = examiner.independent_copy()
    with examiner.without_recording():
        if newest is not None:
            known = closed is not None
            return newest_kept(source, apart, newest, came_out, generations=generations, newest_fails=known)
        return kept_of_history(source, apart, key, came_out, newest=None) if generations else None


def _is_later(source: Source, found: RevisionThatReads) -> bool:
    """Say whether a present value was written after the revision that is read: a compaction left nothing else."""
    return not found.at and found.examination.stored.mod_revision > source.describe().revision


def _last_known(
    index: ImpactIndex,
    node: int,
    reader: ContentReader,
    found: RevisionThatReads | None,
    stated: Counter[str],
) -> LastKnown:
    """Return who an object is or was: by its newest readable revision, else by what others say of its uid."""
    # A key that was deleted and made again since tells of another object.
    if found is not None and found.same_object:
        examination, current = found.examination, not found.at and index.exists(node)
        decoded = examination.decoded
        uid = decoded.uid.decode("utf-8", "replace") if decoded is not None and decoded.uid else ""
        uid = uid or (index.uid(node) if current else "")  # of a custom resource that no readable CRD claims
        if uid:
            whole = reader.whole(examination)
            plain = whole or {}
            metadata = mapping(plain.get("metadata"))
            annotations, path = mapping(metadata.get("annotations")), examination.directory.path
            return LastKnown(
                uid,
                Confidence.CERTAIN,
                "current" if current else "history",
                examination.stored.mod_revision,
                tuple(map(str, items(metadata.get("finalizers")))) if whole is not None else None,
                marks_of(mapping(metadata.get("labels")), annotations, path),
                {other: count for other, count in stated.items() if other != uid},
                readable_of(found) if reads(examination) else None,
                text(at(plain, "spec.nodeName")) if path == "pods" else "",
                text(plain.get("type")),
                tuple(sorted(owners_of(plain), key=lambda owner: not owner.controller)),
                text(annotations.get("kubernetes.io/service-account.name")),
            )
    if not stated:
        return LastKnown("", Confidence.POSSIBLE, "none")
    (uid, _), *others = sorted(stated.items(), key=lambda item: (-item[1], item[0]))
    confidence = Confidence.POSSIBLE if others else Confidence.LIKELY
    return LastKnown(uid, confidence, "references", conflicting_uids=dict(others))


def _finalizers(index: ImpactIndex, node: int, known: LastKnown) -> tuple[LostFinalizer, ...]:
    """Return what the object has now, or what it probably has, as an older revision and its kind tell."""
    if known.finalizers is not None and known.basis == "current":
        return lost_finalizers(known.finalizers, Confidence.CERTAIN)
    confidence = Confidence.LIKELY if known.basis == "history" else Confidence.POSSIBLE
    remembered = lost_finalizers(known.finalizers or (), confidence)
    named = {finalizer.name for finalizer in remembered}
    return remembered + tuple(f for f in inferred_finalizers(index, node) if f.name not in named)


# Users that the KEP's controllers look at.
_PROTECTING: Final = frozenset({
    ("", "pods"), ("", "persistentvolumes"), ("", "persistentvolumeclaims"),
    (SNAPSHOT_GROUP, "volumesnapshots"), (SNAPSHOT_GROUP, "volumesnapshotcontents"),
})  # fmt: skip


def users_of(index: ImpactIndex, node: int) -> tuple[User, ...]:
    """Return who uses an object, by key and field."""
    found = (
        User(
            index.ref(edge.source),
            edge.use.path,
            optional=edge.use.optional
            or edge.use.path == TOKEN_LIST
            or bool(index.flags[edge.source] & FINISHED),
            heuristic=edge.use.heuristic,
        )
        for edge in index.users(node)
    )
    return tuple(sorted(found, key=lambda one: (one.object.key, one.path)))


def secret_state(index: ImpactIndex, node: int) -> SecretState | None:
    """Return what KEP-2639 asks of a Secret; None for anything else."""
    if index.place(node)[0].path != SECRETS:
        return None
    said = index.extracts.get(node)
    opted_out = said is not None and said.unprotected
    holding = any(
        (directory.group, directory.resource) in _PROTECTING and not index.flags[user] & FINISHED
        for user in (edge.source for edge in index.users(node))
        for directory in (index.place(user)[0],)
    )
    return SecretState(
        protected=holding and not opted_out,
        opted_out=opted_out,
    )
