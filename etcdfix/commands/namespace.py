"""Why a namespace cannot finish deleting: its state, and what to do about it."""

from __future__ import annotations

from itertools import chain
from typing import Final

from etcdfix.commands.namespacing.plan import NamespacePlan
from etcdfix.graph.cluster import ClusterIndex, Keep
from etcdfix.graph.model import Stays
from etcdfix.graph.namespaces import (
    NamespaceState,
    contents_of,
    namespace_key,
    namespace_state,
    terminating_namespaces,
)
from etcdfix.model import Outcome
from etcdfix.report.namespace import MissingAPI, NamespaceReport
from etcdfix.report.origin import report_origin, same_fields
from etcdfix.report.tally import Stakes
from etcdfix.storagekey import StorageLayout
from etcdfix.verdicts.examination import Examination

_WELL: Final = frozenset({"active", "terminating"})
_UNJUDGED: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.UNDETERMINED})


def concerns_namespace(layout: StorageLayout, name: str) -> Keep:
    """Return what says how much an examination matters to the report on a namespace.

    The Namespace itself most of all, then pods, then what is proven broken; what lies elsewhere least.
    """
    namespaces = namespace_key(layout, "")
    own = namespace_key(layout, name)

    def keep(found: Examination) -> int:
        outcome = found.verdict.outcome
        if outcome not in _UNJUDGED:
            return 0
        if found.stored.key == own:
            return 6
        if found.namespace == name:
            if (found.directory.group, found.directory.resource) == ("", "pods"):
                return 5
            return 3 if outcome is Outcome.UNDETERMINED else 4
        # What cannot be read elsewhere holds this namespace, too.
        everywhere = bool(found.namespace) or found.stored.key.startswith(namespaces)
        return (1 if outcome is Outcome.UNDETERMINED else 2) if everywhere else 0

    return keep


def namespace_report(cluster: ClusterIndex, name: str) -> NamespaceReport | None:
    """Return what keeps a namespace, and a plan; None where neither its object nor anything in it was seen."""
    index = cluster.index
    origin = report_origin(cluster.source.describe(), cluster.request.configuration, cluster.kube_system_uid)
    state = namespace_state(index, name, aggregated=cluster.aggregated, now=origin["generated_at"])
    if state is None:
        return None
    nodes = {*contents_of(index, name), *chain.from_iterable(index.unlistable.values())}
    own = index.find(state.object.raw_key)
    nodes |= {own} if own is not None else set()
    undetermined = sum(index.unreadable(node) and not index.lost(node) for node in nodes)
    reasons = cluster.incomplete_reasons(undetermined)
    named = _state(state)
    plan = NamespacePlan(cluster, state, stuck=named == "stuck")
    stakes = Stakes(plan.examined(), past=cluster.request.run.of_the_past)
    return NamespaceReport(
        **origin
        | same_fields(state, NamespaceReport)
        | {
            "state": named,
            "exists": state.exists or (False if state.complete else None),
            "terminating": state.terminating,
            "terminating_since": state.terminating_since or None,
            "stages": [plan.stage(stage) for stage in state.stages],
            "missing_apis": [MissingAPI(api=api, reason=why) for api, why in state.missing_apis.items()],
            "plan": plan.steps(),
            "at_stake": stakes.at_stake,
            "do_not_restart": stakes.do_not_restart,
            "complete": not reasons,
            "incomplete_reasons": reasons,
            "elsewhere": [plan.blocker(blocker) for blocker in state.elsewhere],
        }
    )


def has_findings(report: NamespaceReport) -> bool:
    """Say whether anything blocks the namespace, or is left behind, or may be."""
    perhaps = report.unknown_apis or any(c.stays == Stays.CRD_UNREADABLE for c in report.contents)
    return report.state not in _WELL or (report.terminating and bool(report.left_behind or perhaps))


def terminating_names(cluster: ClusterIndex) -> list[str]:
    """Return the names of the namespaces that are being deleted."""
    return [ref.name for ref in terminating_namespaces(cluster.index)]


def _state(state: NamespaceState) -> str:
    if not state.exists:
        return "missing" if state.complete else "unknown"
    if not state.readable:
        return "unreadable"
    if state.terminating:
        return "stuck" if state.held or state.problems else "terminating"
    # Finalizers of what nobody deletes are in order.
    inside = any(blocker.reason != "finalizers" for blocker in state.blockers)
    held = inside or state.elsewhere or state.unavailable_apis
    return "active-with-blockers" if held else "active"
