"""Keys that belong to nobody, as a report."""

from __future__ import annotations

from etcdfix.graph.cluster import ClusterIndex
from etcdfix.graph.index import UNDETERMINED, ImpactIndex
from etcdfix.graph.orphans import find_orphans
from etcdfix.model.storagekey import StorageCodec
from etcdfix.report.origin import report_origin, same_fields
from etcdfix.report.orphans import OrphansReport


def orphans_report(cluster: ClusterIndex) -> OrphansReport:
    """Return everything whose owner, CRD or namespace is gone, or that no resource claims."""
    found = find_orphans(cluster.index, aggregated=cluster.aggregated)
    reasons = cluster.incomplete_reasons(_undetermined(cluster.index))
    limited_to = cluster.source.describe().limited_to
    if limited_to:
        reasons.append(f"permission denied: keys outside {limited_to} were not looked at")
    return OrphansReport(
        **report_origin(cluster.source.describe(), cluster.request.configuration, cluster.kube_system_uid),
        **same_fields(found, OrphansReport),
        complete=not reasons,
        incomplete_reasons=reasons,
    )


def _undetermined(index: ImpactIndex) -> int:
    """Count what could not be judged, but for what no CRD accounts for: that is told by itself."""
    count = 0
    for node in index.nodes():
        if index.flags[node] & UNDETERMINED:
            directory = index.place(node)[0]
            claimed = directory.codec is not StorageCodec.UNKNOWN
            count += claimed and (not index.without_crd(directory) or index.crd_unreadable(directory))
    return count
