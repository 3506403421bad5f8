"""What stands around a value that may be changed: the others under its encryption key, and who refers to it.

A command about one key looks at everything anew. A run over many takes one look, and keeps that up to date; what is
asked of either is the same, and so are the checks that rest on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from etcdfix.examine_all import Progress
from etcdfix.graph.builder import IndexBuilder
from etcdfix.graph.index import ImpactIndex
from etcdfix.remediation.datastore import KeyReading
from etcdfix.remediation.preflight.noencryption import check_no_encryption
from etcdfix.remediation.preflight.similar_values import Alike, look_at_all
from etcdfix.verdicts.examination import Examination

if TYPE_CHECKING:
    from etcdfix.remediation.preflight.cluster import Cluster

See = Callable[[Examination], None]
"""Is shown at least every value that is not plainly read."""


class Around(NamedTuple):
    """What stands around a value.

    Attributes:
        graph: Who refers to whom; None where nobody asked.
    """

    alike: Alike
    graph: ImpactIndex | None


class Surroundings(Protocol):
    """Looks around a value."""

    def look(
        self,
        cluster: Cluster,
        reading: KeyReading,
        found: Examination,
        progress: Progress,
        *,
        see: See,
        graph: bool,
    ) -> Around:
        """Look at everything else, not older than a reading of the value.

        Raises:
            RefusedByRule: Something enveloped is there, and ``--no-encryption`` was given.
            SourceError: Not all of it could be read.
        """
        ...


class FreshLook:
    """Reads everything anew for each value; implements :class:`Surroundings`."""

    def look(
        self,
        cluster: Cluster,
        reading: KeyReading,  # noqa: ARG002 - a value that moved before the pass is not met again
        found: Examination,
        progress: Progress,
        *,
        see: See,
        graph: bool,
    ) -> Around:
        """Look at everything else in one pass."""
        builder = IndexBuilder(cluster.examiner, cluster.source) if graph else None

        def show(other: Examination) -> None:
            if builder is not None:
                builder.add(other)
            see(other)

        alike = look_at_all(cluster.source, cluster.examiner, found, progress, see=show)
        check_no_encryption(cluster, found.stored)
        cluster.require_everything()
        return Around(alike, builder.finish() if builder is not None else None)


FRESH: Final = FreshLook()
