"""Which release is assumed, and whether the cluster's own Nodes bear it out.

A kind that is newer than the release that was named looks like a damaged one. So a release that is named for a change
must fit the kubelets of the stored Nodes: a kubelet is never newer than its API server, and at most three minors older
(Kubernetes' version skew policy).
"""

from __future__ import annotations

import re
from typing import Final

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.errors import DecodeError
from etcdfix.examine import Examiner
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.sources.base import Source

MOST_SKEW: Final = 3
"""A kubelet may be this many minors older than the API servers."""

_NODES: Final = b"minions/"
_KUBELET: Final = re.compile(r"v1\.([0-9]{1,4})(?:[.+-].*)?")


def newest_kubelet(source: Source, examiner: Examiner) -> int | None:
    """Return the minor release of the newest kubelet among the stored Nodes; None where no Node can be read.

    Raises:
        SourceError: The source was lost.
    """
    reader = ObjectReader(examiner.decoder)
    minors = []
    for stored in source.current(examiner.layout.prefix_bytes + _NODES):
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


def check_release(source: Source, examiner: Examiner, accepted: Acceptances) -> bool:
    """Hold a release that was named against the Nodes; say whether they bear it out.

    Returns:
        Whether the API servers are of that release or a newer one, so that what it dropped they cannot read: it is
        that of the newest kubelet, which no API server is older than. False where none was named, where it is a later
        one (the API servers may be older), or where no Node can be read and that was accepted.

    Raises:
        RefusedByRule: The release does not fit, or nothing shows that it does.
        SourceError: The source was lost.
    """
    if not examiner.assumed_release:
        return False
    newest = newest_kubelet(source, examiner)
    if newest is None:
        if accepted.accepts(Rule.UNKNOWN_RELEASE):
            return False
        raise refuse(
            Rule.UNKNOWN_RELEASE,
            f"no Node can be read, so nothing shows that the API servers are of release {examiner.assumed_release}",
            hint=f"leave --kubernetes-version out, or if you are sure of it: {acceptance(Rule.UNKNOWN_RELEASE)}",
        )
    minor = int(examiner.assumed_release.partition(".")[2])
    if not newest <= minor <= newest + MOST_SKEW:
        raise refuse(
            Rule.RELEASE,
            f"release {examiner.assumed_release} was named, and the newest kubelet is 1.{newest}: the API servers are "
            f"of 1.{newest} to 1.{newest + MOST_SKEW}",
            hint="name the release of the API servers with --kubernetes-version, or leave it out",
        )
    return minor == newest
