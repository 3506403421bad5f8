"""What breakage sets off, put together for a person: one pass over everything, then one report."""

from __future__ import annotations

from etcdfix.consequences.impact import impact_report
from etcdfix.consequences.namespace import namespace_report
from etcdfix.consequences.orphans import orphans_report
from etcdfix.consequences.surroundings import Surroundings, SurroundingsRequest, look_around

__all__ = [
    "Surroundings",
    "SurroundingsRequest",
    "impact_report",
    "look_around",
    "namespace_report",
    "orphans_report",
]
