"""The rules of a change, asked of facts that are made by hand, and of a live key."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.copies.model import Copy, Wanted
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import ClusterIdentity
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.change import DELETE, Change, ChangeRequest, Check, Chosen, ask
from etcdfix.remediation.checks import value
from etcdfix.remediation.checks.plan import Expectation
from etcdfix.remediation.cluster import Acceptances, Cluster
from etcdfix.remediation.datastore import KeyReading
from etcdfix.remediation.facts import Facts
from etcdfix.remediation.present import Home, Present
from etcdfix.remediation.surroundings import Around, SameKeyEvidence, SameStart
from etcdfix.text.commands import RunOptions

VALUE: tuple[Check, ...] = tuple(
    check for check in DELETE if check.__module__ == value.__name__ and check is not value.cluster_breaking
)
"""What is asked of the value, in the order in which a deletion asks it."""


class Judged(NamedTuple):
    """What the rules say; ``needed``: the declaration of a lost key was needed."""

    refusal: RefusedByRule | None
    needed: bool = False


def present_of(
    found: Examination,
    alike: SameKeyEvidence,
    request: ChangeRequest,
    *,
    release_proven: bool = False,
    **facts: Any,
) -> Present:
    """Return what is known of a key without asking anybody."""
    examiner = SimpleNamespace(plugins=object(), assumed_release="1.34" if release_proven else "")
    cluster = SimpleNamespace(examiner=examiner, where=("a:1", "b:2"), no_encryption=False, origins=())
    present = Present.__new__(Present)
    Facts.__init__(present, lambda _name: None)
    present.cluster, present.key, present.request = cast("Cluster", cluster), found.stored.key, request
    present.alone = present.ours = False
    present.known |= {
        "reading": KeyReading(stored=found.stored, revision=1, cluster_id=2, member_id=3),
        "first": found,
        "around": Around(alike, cast("Any", None)),
        "starts": SameStart(found.stored),
        "configuration": True,
        "newest_kubelet": 34,
        "identity": ClusterIdentity.by_uid("uid-1"),
        "servers": ServerAnswers(),
        "home": Home(),
        **dict.fromkeys(("second_look", "assessment", "lease", "readable", "unproven_repair")),
        **facts,
    }
    return present


def judged(
    found: Examination,
    alike: SameKeyEvidence,
    *,
    declared: str = "",
    risks: Collection[str] = (),
    copy: Copy | None = None,
    **facts: Any,
) -> Judged:
    """Ask whether a value may be deleted, or where a copy is given whether that may be put over it."""
    accepted = Acceptances(key_lost=declared, words=tuple(map(str, risks)))
    request = ChangeRequest(reason="a test", accepted=accepted, run=RunOptions())
    present = present_of(found, alike, request, **facts)
    chosen = None if copy is None else Chosen(copy, Wanted.of(found))
    verb = Verb.DELETE if chosen is None else Verb.FIX
    change = Change(verb, present, request, choose=None if chosen is None else lambda _change: chosen)
    try:
        ask(VALUE, present, change)
    except RefusedByRule as refusal:
        return Judged(refusal)
    return Judged(None, change.needs_declaration)


def check_deletion(cluster: Cluster, key: bytes, *words: str, expected: Expectation | None = None) -> Present:
    """Ask everything that a deletion asks of a live key; return what is known of it."""
    request = ChangeRequest(reason="a test", accepted=Acceptances(words=words), expected=expected)
    present = Present(cluster, key, request)
    ask(DELETE, present, Change(Verb.DELETE, present, request))
    return present
