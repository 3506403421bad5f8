"""``-o metrics``: read by the official parser, bounded whatever was scanned."""

from __future__ import annotations

import io
from typing import Any

import pytest

from etcdfix import __version__
from etcdfix.report.finding import finding_from
from etcdfix.report.model import CauseSummary, ResourceSummary, Scope, Summary, TransformerSummary
from etcdfix.report.render.metrics import MetricsWriter
from tests.support.examinations import examination
from tests.support.metrics import Samples, names, read_metrics, series, value
from tests.support.reports import CLUSTER, conclusion, header, scan_report, source

FAILED_NAMES = {
    "etcdfix_build_info", "etcdfix_scan_complete", "etcdfix_scan_reached_end", "etcdfix_scan_timestamp_seconds",
    "etcdfix_scan_duration_seconds",
}  # fmt: skip
COUNTED_NAMES = {
    "etcdfix_scan_info", "etcdfix_scan_revision", "etcdfix_scan_keys", "etcdfix_scan_new_keys",
    "etcdfix_scan_stale_keys", "etcdfix_scan_severity_keys", "etcdfix_scan_cause_keys",
    "etcdfix_scan_resource_keys", "etcdfix_scan_resource_stale_keys", "etcdfix_scan_transformer_keys",
    "etcdfix_scan_transformer_failing_keys", "etcdfix_scan_transformer_undetermined_keys",
    "etcdfix_scan_transformer_stale_keys",
}  # fmt: skip


def transformer(name: str, *resources: str, **counts: Any) -> TransformerSummary:
    fields: dict[str, Any] = {
        "keys": 1, "failures": 0, "damaged": 0, "undetermined": 0, "stale": 0, "first_mod_revision": 1,
        "last_mod_revision": 1,
    }  # fmt: skip
    return TransformerSummary(name, list(resources), None, **(fields | counts))


def text(
    summary: Summary | None = None,
    *,
    scope: Scope | None = None,
    uid: str | None = None,
    snapshot_at: str = "",
    **ending: Any,
) -> bytes:
    stream = io.BytesIO()
    head = header(**({"scope": scope} if scope is not None else {}))
    read = source(kube_system_uid=uid, file_modified_at=snapshot_at)
    MetricsWriter(stream).end(scan_report(head, conclusion(summary, **({"source": read} | ending))))
    return stream.getvalue()


def metrics(summary: Summary | None = None, **changes: Any) -> Samples:
    return read_metrics(text(summary, **changes))


def one_of_each() -> Summary:
    return Summary(
        keys=21, readable=15, stale=4, decrypt_failures=1, decode_failures=1, inconsistent=1, undetermined=2,
        not_objects=1,
        by_resource=[
            ResourceSummary(group="", resource="pods", keys=10, readable=10),
            ResourceSummary(
                group="apps", resource="deployments", keys=10, readable=5, stale=4, decrypt_failures=1,
                decode_failures=1, inconsistent=1, undetermined=2,
            ),
        ],
        by_cause=[CauseSummary("wrong-key", "decrypt-failure", 1, "/registry/secrets/shop/web")],
        by_transformer=[
            transformer("aescbc/v1/key1", "secrets", "configmaps", keys=6, failures=1, undetermined=2, stale=4)
        ],
    )  # fmt: skip


def test_every_count_has_its_series() -> None:
    reasons = ["undetermined: 2 keys"]
    found = metrics(
        one_of_each(),
        complete=False,
        incomplete_reasons=reasons,
        scope=Scope("/registry", [], ["secrets"], [], None),
    )
    assert names(found) == FAILED_NAMES | COUNTED_NAMES
    assert series(found, "etcdfix_scan_keys") == {
        ("readable",): 15, ("decrypt-failure",): 1, ("decode-failure",): 1, ("inconsistent",): 1,
        ("undetermined",): 2, ("not-an-object",): 1,
    }  # fmt: skip
    assert series(found, "etcdfix_scan_cause_keys") == {("wrong-key", "decrypt-failure"): 1}
    resources = series(found, "etcdfix_scan_resource_keys")
    assert len(resources) == 10
    assert resources["undetermined", "deployments.apps"] == 2
    assert resources["readable", "pods"] == 10
    assert series(found, "etcdfix_scan_resource_stale_keys") == {("deployments.apps",): 4, ("pods",): 0}
    place = {"transformer": "aescbc/v1/key1", "rule": "secrets,configmaps"}
    for name, number in {"keys": 6, "failing_keys": 1, "undetermined_keys": 2, "stale_keys": 4}.items():
        assert value(found, f"etcdfix_scan_transformer_{name}", **place) == number
    assert value(found, "etcdfix_scan_stale_keys") == 4
    assert value(found, "etcdfix_scan_revision") == 1000
    assert value(found, "etcdfix_scan_complete") == 0
    assert value(found, "etcdfix_scan_reached_end") == 1
    assert value(found, "etcdfix_scan_timestamp_seconds") == 1767323046
    assert value(found, "etcdfix_scan_duration_seconds") == 1
    assert value(found, "etcdfix_build_info", version=__version__) == 1
    assert value(found, "etcdfix_scan_info", source="snapshot", scope="part", etcd_version="3.6.8") == 1


def test_what_the_baseline_knows_is_not_new() -> None:
    stream = io.BytesIO()
    writer = MetricsWriter(stream)
    writer.begin(header())
    broken = examination("/registry/secrets/shop/a")
    for known in (False, True, False):
        writer.row(finding_from(broken, baseline=known))
    writer.end(scan_report(end=conclusion(Summary(keys=3), source=source(kube_system_uid=None))))
    found = read_metrics(stream.getvalue())
    assert series(found, "etcdfix_scan_new_keys") == {
        ("decrypt-failure",): 2, ("decode-failure",): 0, ("inconsistent",): 0, ("undetermined",): 0,
    }  # fmt: skip
    assert series(found, "etcdfix_scan_severity_keys") == {
        ("breaks-now",): 3, ("breaks-at-restart",): 0, ("one-object",): 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reasons", "reached_end"),
    [([], 1), (["undetermined: 2 keys"], 1), (["undetermined: 2 keys", "interrupted before the end"], 0)],
)
def test_what_is_undetermined_was_seen(reasons: list[str], reached_end: int) -> None:
    found = metrics(one_of_each(), complete=not reasons, incomplete_reasons=reasons)
    assert value(found, "etcdfix_scan_reached_end") == reached_end
    assert value(found, "etcdfix_scan_complete") == (not reasons)


def test_of_a_scan_that_examined_nothing_there_are_no_counts() -> None:
    found = metrics(Summary(), complete=False, incomplete_reasons=["no key starts with /registry/"])
    assert names(found) == FAILED_NAMES
    assert value(found, "etcdfix_scan_reached_end") == 0


def test_every_series_has_the_uid_of_the_cluster() -> None:
    assert all(dict(labels)["cluster"] == CLUSTER for _name, labels in metrics(one_of_each(), uid=CLUSTER))


@pytest.mark.parametrize(
    "name",
    [
        'a"b', "a\\", "a\\n", "a\nb", "a\x00b", "}", '",x="', "\N{PILE OF POO}", "\ud800", "\ufffe", "\u202e",
        "a\r",
    ],
    ids=ascii,
)  # fmt: skip
def test_whatever_a_type_or_key_is_called_the_file_parses(name: str) -> None:
    summary = Summary(
        keys=1,
        by_resource=[ResourceSummary(group=name, resource=name, keys=1, readable=1)],
        by_transformer=[transformer(f"aescbc/v1/{name}".replace("\ud800", ""), name)],
    )
    raw = text(summary)
    found = read_metrics(raw)
    assert sum(series(found, "etcdfix_scan_resource_keys").values()) == 1
    assert sum(series(found, "etcdfix_scan_transformer_keys").values()) == 1
    assert all(line.isprintable() for line in raw.decode().splitlines())
