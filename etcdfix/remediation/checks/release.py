"""Is the release that was named the cluster's? A kind that is newer than it looks like a damaged one.

A kubelet is never newer than its API server, and at most three minors older (Kubernetes' version skew policy).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.examine.one import Examiner
from etcdfix.model.errors import DecodeError, RefusedByRule
from etcdfix.model.rules import Rule, refuse, unless_accepted
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present

MOST_SKEW: Final = 3
"""A kubelet may be this many minors older than the API servers."""

_NODES: Final = b"minions/"
_KUBELET: Final = re.compile(r"v1\.([0-9]{1,4})(?:[.+-].*)?")


def newest_kubelet(source: Source, examiner: Examiner) -> int | None:
    """Return the minor release of the newest kubelet among the stored Nodes; None where no Node can be read.

    Raises SourceError.
    """
    reader = ObjectReader(examiner.decoder)
    minors = []
    for stored in source.current(examiner.layout.path(_NODES)):
        plaintext = examiner.plaintext(examiner.examine(stored))
        if plaintext is None:
            continue
        try:
            node = reader.builtin(plaintext, "", "Node").value
        except DecodeError:
            continue
        # As Go holds it: each of these is there, whatever was stored.
        match = _KUBELET.fullmatch(node["status"]["nodeInfo"]["kubeletVersion"])
        if match is not None:
            minors.append(int(match.group(1)))
    return max(minors, default=None)


def misfit(named: str, newest: int) -> RefusedByRule | None:
    """Return why a release that was named is not the cluster's by its newest kubelet; None where it may be."""
    if newest <= int(named.partition(".")[2]) <= newest + MOST_SKEW:
        return None
    why = (
        f"release {named} was named, and the newest kubelet is 1.{newest}: the API servers are of 1.{newest} to "
        f"1.{newest + MOST_SKEW}"
    )
    hint = "name the release of the API servers with --kubernetes-version, or leave it out"
    return refuse(Rule.RELEASE, why, hint=hint)


def release(present: Present, _change: Change) -> Iterator[RefusedByRule]:
    """The release that was named is that of the newest kubelet, or at most three minors newer."""
    named, newest = present.cluster.examiner.assumed_release, present.newest_kubelet
    doubt = misfit(named, newest) if named and newest is not None else None
    if doubt is not None:
        yield doubt


def unknown_release(present: Present, change: Change) -> Iterator[RefusedByRule]:
    """A Node can be read that shows which release the API servers are of, where one was named."""
    named = present.cluster.examiner.assumed_release
    if named and present.newest_kubelet is None and not change.accepts(Rule.UNKNOWN_RELEASE):
        why = f"no Node can be read, so nothing shows that the API servers are of release {named}"
        yield unless_accepted(Rule.UNKNOWN_RELEASE, why, hint="leave --kubernetes-version out")
