"""Reads ``-o metrics`` with the parser of Prometheus' own client, and looks for what promtool would complain of."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

_NAME = re.compile(r"etcdfix(_[a-z][a-z0-9]*)+")
_LABEL = re.compile(r"[a-z]+(_[a-z]+)*")
_NO_BASE_UNIT = re.compile(r"_(milliseconds|microseconds|ms|minutes|hours|days|kilobytes|kb|mb|percent)(_|$)")
_RESERVED = {"le", "quantile", "job", "instance"}


def read_metrics(raw: bytes) -> Samples:
    """Return every sample by name and labels, once nothing about them is against the conventions."""
    text = raw.decode()
    assert text.endswith("\n")
    found: Samples = {}
    families = list(text_string_to_metric_families(text))
    # The parser makes a family of its own of what has no TYPE line.
    assert sorted(family.name for family in families) == sorted(
        re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE)
    )
    for family in families:
        problems = complaints(family.name, family.type, family.documentation)
        assert not problems, problems
        for sample in family.samples:
            assert sample.name == family.name
            assert not _RESERVED & sample.labels.keys()
            assert all(_LABEL.fullmatch(label) for label in sample.labels)
            place = (sample.name, frozenset(sample.labels.items()))
            assert place not in found, "node_exporter refuses a file with two samples of one series"
            found[place] = sample.value
    return found


def complaints(name: str, kind: str, documentation: str) -> list[str]:
    """Return what is against the conventions for the names of metrics."""
    return [
        complaint
        for complaint, is_so in {
            "no help": not documentation.strip(),
            "the name is not in snake case, with our prefix": not _NAME.fullmatch(name),
            "no gauge": kind != "gauge",
            "a gauge that is called a counter": name.endswith("_total"),
            "a part of a histogram or summary": name.endswith(("_count", "_sum", "_bucket")),
            "the type stands in the name": re.search(r"_(gauge|counter|histogram|summary)(_|$)", name)
            is not None,
            "the unit is no base unit": _NO_BASE_UNIT.search(name) is not None,
            "the unit stands twice": "seconds" in name.removesuffix("_seconds"),
        }.items()
        if is_so
    ]


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def series(samples: Samples, name: str) -> Mapping[tuple[str, ...], float]:
    """Return the series of a metric, each by the values of its labels in the order of their names."""
    return {
        tuple(told for _, told in sorted(labels)): number
        for (metric, labels), number in samples.items()
        if metric == name
    }


def names(samples: Samples) -> set[str]:
    return {name for name, _labels in samples}
