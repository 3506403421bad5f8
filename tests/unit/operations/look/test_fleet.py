"""Many clusters together: what each row says, what lacks, and which keys several clusters use."""

from __future__ import annotations

import io
import json
import os
import shutil
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.clusterlist import ListedCluster
from etcdfix.model import Outcome
from etcdfix.operations.look.fleet import ExpectedReport, expected_of_list, merge_fleet, oldest_of
from etcdfix.reports.contradictions import OUT_OF_ORDER
from etcdfix.reports.fleet_model import FleetCluster, FleetReport
from etcdfix.reports.formats.of_lists import FLEET_FORMATS
from etcdfix.reports.model import KMSKeySummary, KMSPluginSummary, KMSSummary, LostKey, Scope, SharedWords
from tests.support.fleets import (
    BASELINE,
    FINGERPRINT,
    KEY_ID,
    findings,
    kms_key,
    transformer,
    write_report,
)

NOW = datetime(2026, 1, 2, 4, 0, 0, tzinfo=UTC)


def merged(paths: Sequence[Path], **how: Any) -> FleetReport:
    return merge_fleet([ExpectedReport(path) for path in paths], now=NOW, **how)


def row_of(path: Path) -> FleetCluster:
    report = merged([path])
    assert not report.left_out
    return report.clusters[0]


def left_out(path: Path, **how: Any) -> tuple[str, str]:
    report = merged([path], **how)
    assert not report.clusters
    assert not report.complete
    assert report.incomplete_reasons == [f"1 report without a row: {path}"]
    (one,) = report.left_out
    assert one.report == str(path)
    return one.reason, one.message


def test_what_findings_of_a_lost_key_share_is_said_of_each(tmp_path: Path) -> None:
    words = SharedWords("14398160e9", "wrong-key", "noise under every key", [])
    lost = LostKey("aescbc/v1/key1", "secrets", ["secrets"], FINGERPRINT, 2, 2, 1, 9, [], [words])
    one, two, three = findings(3)
    found = [
        msgspec.structs.replace(one, message="", shared=words.id),
        msgspec.structs.replace(two, message="", shared="of no entry"),
        three,
    ]
    row = row_of(write_report(tmp_path / "r.json", found, key_loss=[lost]))
    assert [one.message for one in row.first_findings] == [words.message, "", three.message]


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_row_says_what_the_report_says(tmp_path: Path, form: str) -> None:
    more = [
        msgspec.structs.replace(one, key=one.key.replace("s-", "t-"))
        for one in findings(2, known=1, outcome=Outcome.UNDETERMINED)
    ]
    path = write_report(
        tmp_path / f"r.{form}",
        [*findings(12, known=3), *more],
        name="north",
        uid="4711",
        head={"baseline": BASELINE},
        origin={"revision": 77},
        reasons=["undetermined: 2 keys"],
        at_stake="BREAKS-NOW: much.",
        do_not_restart="DO NOT RESTART AN API SERVER: why.",
        stale=4,
        not_objects=5,
        key_loss=[LostKey("aescbc/v1/key1", "secrets", ["secrets"], FINGERPRINT, 12, 12, 1, 9, [])],
    )
    row = row_of(path)
    assert (row.name, row.named_by, row.kube_system_uid, row.revision) == ("north", "report", "4711", 77)
    assert (row.report, row.report_sha256[:7], row.source_type) == (str(path), "sha256:", "snapshot")
    assert (row.data_from, row.data_age_seconds) == ("2026-01-02T00:00:00Z", 4 * 3600)
    assert row.counts.keys == 119
    assert (row.counts.decrypt_failures, row.counts.undetermined) == (12, 2)
    assert (row.counts.stale, row.counts.not_objects) == (4, 5)
    assert row.new.decrypt_failures == 9
    assert row.new.undetermined == 1
    assert row.baseline == BASELINE
    assert (row.severity, row.at_stake, row.do_not_restart) == ("breaks-now", "BREAKS-NOW: much.", True)
    assert row.key_losses == 1
    assert row.key_loss[0].key_fingerprint == FINGERPRINT
    assert [one.key for one in row.first_findings] == [one.key for one in findings(10)]
    assert [one.baseline for one in row.first_findings] == [True] * 3 + [False] * 7
    assert not row.complete
    assert not row.lost_midway
    assert row.limited_to == []


def test_what_is_readable_or_no_object_is_no_finding_of_a_row(tmp_path: Path) -> None:
    one = findings(1)[0]
    others = [
        msgspec.structs.replace(one, key=f"/registry/a/{outcome}", outcome=outcome, severity=None)
        for outcome in ("not-an-object", "readable")
    ]
    row = row_of(write_report(tmp_path / "r.json", [*others, one]))
    assert row.complete
    assert len(row.first_findings) == 1
    assert row.new.decrypt_failures == 1


def test_an_outcome_of_a_newer_version_is_taken_as_undetermined(tmp_path: Path) -> None:
    one = msgspec.structs.replace(findings(1)[0], outcome="lost-in-space", severity=None)
    row = row_of(
        write_report(tmp_path / "r.json", [one], keys=101, undetermined=1, reasons=["undetermined: 1 key"])
    )
    assert not row.lost_midway
    assert row.new.undetermined == 1


def test_without_a_baseline_everything_is_new(tmp_path: Path) -> None:
    row = row_of(write_report(tmp_path / "r.json", findings(3)))
    assert row.baseline is None
    assert row.new.decrypt_failures == 3


def test_findings_that_contradict_the_counts_are_told(tmp_path: Path) -> None:
    row = row_of(write_report(tmp_path / "r.json", findings(3), keys=105, decrypt_failures=5))
    assert not row.complete
    assert row.lost_midway
    assert row.incomplete_reasons == [
        "the report contradicts itself: it has 3 findings of decrypt-failure, and counts 5"
    ]


def test_what_is_known_without_a_baseline_is_told(tmp_path: Path) -> None:
    row = row_of(write_report(tmp_path / "r.json", findings(3, known=2)))
    assert (row.complete, row.lost_midway) == (False, True)
    assert row.incomplete_reasons == [
        "the report contradicts itself: a baseline knew 2 findings, and there was none"
    ]


def test_what_is_complete_and_undetermined_is_told(tmp_path: Path) -> None:
    row = row_of(write_report(tmp_path / "r.json", findings(1, outcome=Outcome.UNDETERMINED)))
    assert (row.complete, row.lost_midway) == (False, True)
    assert row.incomplete_reasons == ["the report contradicts itself: it is complete, and 1 key undetermined"]


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"severity": None}, "its findings are not as severe as its summary says, or more so"),
        ({"severity": "one-object"}, "its findings are not as severe as its summary says, or more so"),
        ({"severity": "breaks-forever"}, "its findings are not as severe as its summary says, or more so"),
        ({"do_not_restart": ""}, "of its findings some speak against a restart of an API server, and it does not"),
        ({"keys": 0}, "it counts 0 keys, and more by outcome"),
        ({"known_findings": 2}, "a baseline knew 0 findings, and it counts 2"),
    ],
)  # fmt: skip
def test_a_summary_that_is_not_of_its_findings_is_told(
    tmp_path: Path, summary: dict[str, Any], said: str
) -> None:
    row = row_of(write_report(tmp_path / "r.json", findings(3), **summary))
    assert (row.complete, row.lost_midway) == (False, True)
    assert row.incomplete_reasons == [f"the report contradicts itself: {said}"]
    healthy = row_of(write_report(tmp_path / "h.json", severity="breaks-now"))
    assert len(healthy.incomplete_reasons) == 1


def test_a_finding_that_stands_there_twice_is_told(tmp_path: Path) -> None:
    one, two = findings(2)
    for found in ([one, one], [two, one]):
        row = row_of(write_report(tmp_path / "r.json", found))
        said = f"{found[1].key} is not where it belongs among its findings"
        assert row.incomplete_reasons == [f"the report contradicts itself: {said}"]
        assert row.lost_midway


def test_findings_of_which_a_scan_knows_no_order_are_none_to_doubt(tmp_path: Path) -> None:
    one, two = findings(2)
    for said in (OUT_OF_ORDER,):
        row = row_of(write_report(tmp_path / "o.json", [two, one], reasons=[said]))
        assert row.incomplete_reasons == [said]
    withheld = [msgspec.structs.replace(one, key="/bootstrap/<withheld>")] * 2
    assert row_of(write_report(tmp_path / "w.json", withheld)).complete


def test_a_key_that_is_no_base64_is_in_no_report(tmp_path: Path) -> None:
    one = msgspec.structs.replace(findings(1)[0], key_base64="*")
    assert left_out(write_report(tmp_path / "r.json", [one]))[0] == "not-a-report"


def test_no_sum_of_hostile_counts_is_too_large_to_write(tmp_path: Path) -> None:
    uses = [transformer(keys=10**10)] * 1001
    paths = [write_report(tmp_path / f"{at}.json", transformers=uses) for at in range(3)]
    assert merged(paths).shared_keys[0].keys == 3003 * 10**10
    reason, said = left_out(write_report(tmp_path / "r.json", transformers=[transformer(keys=10**10 + 1)]))
    assert (reason, "by_transformer" in said) == ("not-a-report", True)


def test_a_revision_may_be_as_large_as_etcd_has_them(tmp_path: Path) -> None:
    assert row_of(write_report(tmp_path / "r.json", origin={"revision": 2**63 - 1})).revision == 2**63 - 1


@pytest.mark.parametrize(
    ("reasons", "lost"),
    [
        ([], True),
        (["undetermined: 1 key"], False),
        (["undetermined: 2 keys"], True),
        (["undetermined: 1 key", "interrupted before the end"], True),
        (["no key starts with /registry"], True),
    ],
)
def test_a_scan_that_was_lost_midway_is_more_than_undetermined(
    tmp_path: Path, reasons: list[str], lost: bool
) -> None:
    path = write_report(
        tmp_path / "r.json", findings(1, outcome=Outcome.UNDETERMINED), reasons=["undetermined: 1 key"]
    )
    document = json.loads(path.read_bytes())
    document["incomplete_reasons"] = reasons
    path.write_text(json.dumps(document))
    row = row_of(path)
    assert not row.complete
    assert row.lost_midway == lost
    assert row.incomplete_reasons == (reasons or ["the report does not say why"])


@pytest.mark.parametrize("state", ["unreachable", "of a newer version"])
def test_a_kms_plugin_that_is_away_leaves_values_undetermined(tmp_path: Path, state: str) -> None:
    plugin = KMSPluginSummary("kms/v2/vault", "unix:///kms.sock", state, "", 1, 0, 0, 1, None)
    said = (
        "KMS plugin of kms/v2/vault at unix:///kms.sock: unreachable; see that it runs and answers there, or say where "
        "it listens: --kms-endpoint NAME=unix:///PATH"
    )
    path = write_report(
        tmp_path / "r.json",
        findings(1, outcome=Outcome.UNDETERMINED),
        kms=KMSSummary([plugin], []),
        reasons=[said, "undetermined: 1 key"],
    )
    assert row_of(path).lost_midway == (state != "unreachable")


def test_the_age_of_what_was_scanned(tmp_path: Path) -> None:
    live = write_report(tmp_path / "live.json", origin={"type": "etcd"})
    assert row_of(live).data_from == "2026-01-02T03:04:05Z"
    unknown = write_report(tmp_path / "unknown.json", origin={"file_modified_at": ""})
    assert (row_of(unknown).data_from, row_of(unknown).data_age_seconds) == ("", None)
    ahead = write_report(tmp_path / "ahead.json", origin={"file_modified_at": "2027-01-01T00:00:00Z"})
    assert (row_of(ahead).data_from, row_of(ahead).data_age_seconds) == ("2027-01-01T00:00:00Z", None)
    nonsense = write_report(
        tmp_path / "nonsense.json", origin={"file_modified_at": "0001-01-01T00:00:00+14:00"}
    )
    assert row_of(nonsense).data_from == ""


def test_a_scan_of_a_part_says_so(tmp_path: Path) -> None:
    scope = Scope("/registry", ["/registry/pods/"], ["secrets"], ["pay"], None)
    row = row_of(write_report(tmp_path / "r.json", head={"scope": scope}))
    assert row.limited_to == ["secrets", "/registry/pods/", "namespace pay"]


def test_the_worst_comes_first_then_the_incomplete_then_names(tmp_path: Path) -> None:
    def worst(number: int, name: str, severity: str) -> Path:
        found = [msgspec.structs.replace(findings(1)[0], severity=severity)]
        return write_report(tmp_path / f"{number}.json", found, name=name, severity=severity)

    paths = [
        write_report(tmp_path / "1.json", name="zebra"),
        write_report(tmp_path / "2.json", name="ant"),
        write_report(tmp_path / "3.json", name="bee", reasons=["interrupted before the end"]),
        worst(4, "cat", "one-object"),
        worst(5, "dog", "breaks-now"),
        worst(6, "cow", "breaks-now"),
        worst(7, "eel", "breaks-at-restart"),
        worst(8, "fly", "of-a-newer-version"),
    ]
    report = merged(paths)
    assert [row.name for row in report.clusters] == ["cow", "dog", "fly", "eel", "cat", "bee", "ant", "zebra"]
    assert report.summary.severity == "breaks-now"
    assert report.summary.by_severity == {"breaks-now": 3, "breaks-at-restart": 1, "one-object": 1}
    assert report.summary.with_findings == 5
    assert (report.summary.clusters, report.summary.expected, report.summary.complete) == (8, 8, 7)
    assert report.incomplete_reasons == ["1 scan incomplete: bee"]


def test_all_counts_are_added_up(tmp_path: Path) -> None:
    paths = [
        write_report(tmp_path / "1.json", findings(3, known=1), head={"baseline": BASELINE}),
        write_report(tmp_path / "2.json", findings(4)),
    ]
    report = merged(paths)
    assert report.complete
    assert report.summary.counts.keys == 207
    assert report.summary.counts.decrypt_failures == 7
    assert report.summary.new.decrypt_failures == 6
    assert report.summary.without_baseline == 1


def test_who_gives_the_name(tmp_path: Path) -> None:
    named = row_of(write_report(tmp_path / "some.file.jsonl", name=""))
    assert (named.name, named.named_by) == ("some.file", "file")


def test_a_hostile_name_is_short_and_harms_nothing(tmp_path: Path) -> None:
    hostile = "\x1b[2J\u202eevil\0\n" * 1_000
    row = row_of(write_report(tmp_path / "r.json", findings(1), name=hostile, uid=hostile, at_stake=hostile))
    assert len(row.name) <= 201
    assert len(row.kube_system_uid or "") <= 201
    assert len(row.at_stake) <= 501


def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json"))
    write_report(tmp_path / "r.json").rename(path)
    row = row_of(path)
    assert row.name == "\\xff"
    assert row.report == f"{tmp_path}/\\xff.json"


def test_reports_of_one_uid_stay_apart_and_are_named(tmp_path: Path) -> None:
    paths = [write_report(tmp_path / f"{name}.json", name=name, uid="u") for name in ("a", "b")]
    paths += [write_report(tmp_path / f"{name}.json", name=name, uid=None) for name in ("c", "d")]
    report = merged(paths)
    assert report.complete
    assert [row.same_uid for row in report.clusters] == [1, 1, 0, 0]
    (same,) = report.same_clusters
    assert same.kube_system_uid == "u"
    assert same.reports == [str(path) for path in paths[:2]]


def test_the_same_file_twice_is_taken_once_and_named(tmp_path: Path) -> None:
    first = write_report(tmp_path / "a.json")
    copy = Path(shutil.copy(first, tmp_path / "b.json"))
    report = merged([first, copy])
    assert len(report.clusters) == 1
    assert report.left_out[0].reason == "double"
    assert report.left_out[0].message == f"it is byte for byte the same as {first}"
    assert not report.complete


def test_what_lacks_or_is_no_report_harms_nothing_else(tmp_path: Path) -> None:
    good = write_report(tmp_path / "good.json", findings(1))
    cut = tmp_path / "cut.json"
    cut.write_bytes(good.read_bytes()[:-200])
    older = tmp_path / "older.json"
    older.write_bytes(good.read_bytes().replace(b"etcdfix/v1", b"etcdfix/v1alpha1"))
    plan = tmp_path / "plan.json"
    plan.write_text('{"apiVersion": "etcdfix/v1", "kind": "DeletionPlan"}')
    deep = tmp_path / "deep.json"
    deep.write_bytes(
        good.read_bytes().replace(b'"evidence":[]', b'"evidence":' + b"[" * 5_000 + b"]" * 5_000)
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(tmp_path / "pipe")
    negative = write_report(tmp_path / "negative.json", keys=-1)
    timeless = write_report(tmp_path / "timeless.json", head={"generated_at": "last night"})
    bad = {
        tmp_path / "none.json": ("missing", "No such file"),
        cut: ("cut", "its end is missing"),
        older: ("not-a-report", "its apiVersion is etcdfix/v1alpha1"),
        plan: ("not-a-report", "its kind is DeletionPlan"),
        deep: ("not-a-report", "nested too deeply"),
        folder: ("unreadable", "Is a directory"),
        tmp_path / "pipe": ("unreadable", "no regular file"),
        negative: ("not-a-report", "Expected `int` >= 0"),
        timeless: ("not-a-report", "its generated_at is no time"),
    }
    for path, (reason, said) in bad.items():
        assert left_out(path)[0] == reason, path
        assert said in left_out(path)[1]
    report = merged([*bad, good])
    assert [row.report for row in report.clusters] == [str(good)]
    assert [one.report for one in report.left_out] == [str(path) for path in bad]
    assert report.summary.expected == len(bad) + 1


def test_a_report_of_an_earlier_night_is_left_out(tmp_path: Path) -> None:
    path = write_report(tmp_path / "r.json")
    assert not merged([path], oldest=NOW - timedelta(hours=1)).left_out
    reason, said = left_out(path, oldest=NOW - timedelta(minutes=30))
    assert (reason, said) == ("too-old", "it was made at 2026-01-02T03:04:05Z, before 2026-01-02T03:30:00Z")


def test_a_report_of_a_time_to_come_has_no_age(tmp_path: Path) -> None:
    path = write_report(tmp_path / "r.json", head={"generated_at": "2026-01-02T05:00:00Z"})
    assert not merged([path], oldest=NOW - timedelta(hours=1)).left_out
    path = write_report(tmp_path / "r.json", head={"generated_at": "2026-01-02T05:00:01Z"})
    assert not merged([path]).left_out
    reason, said = left_out(path, oldest=NOW - timedelta(hours=1))
    assert (reason, "yet to come" in said) == ("too-old", True)


def test_max_age_is_a_duration() -> None:
    assert oldest_of("1h30m", NOW) == NOW - timedelta(minutes=90)
    for text in ("", "1", "0s", "-1h", "yesterday", "999999999h"):
        with pytest.raises(ConfigurationError, match="--max-age"):
            oldest_of(text, NOW)


# The list of the clusters


def listed(name: str, index: int = 0, **changes: Path | None) -> ListedCluster:
    fields: dict[str, Path | None] = {
        "snapshot": Path("snapshot.db"), "configuration": Path("config.yaml"), "baseline": None
    }  # fmt: skip
    return ListedCluster(index, name, **(fields | changes))  # type: ignore[arg-type]


def test_a_list_says_what_lacks_by_line_and_index(tmp_path: Path) -> None:
    write_report(tmp_path / "a.json", name="a")
    write_report(tmp_path / "c.json")
    clusters = [listed("a"), listed("b", 1), listed("c", 2)]
    report = merge_fleet(expected_of_list(clusters, tmp_path), now=NOW)
    assert [(row.name, row.named_by) for row in report.clusters] == [("a", "list"), ("c", "list")]
    (lacking,) = report.left_out
    assert (lacking.cluster, lacking.line, lacking.index, lacking.reason) == ("b", 2, 1, "missing")
    assert lacking.report == str(tmp_path / "b.json")
    assert report.incomplete_reasons == ["1 report without a row: b"]
    assert report.summary.expected == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"snapshot": Path("other.db")}, "its snapshot is snapshot.db, and line 4 of the list says other.db"),
        ({"configuration": None}, "its configuration is config.yaml, and line 4 of the list says none"),
        ({"baseline": Path("b.json")}, "its baseline is none, and line 4 of the list says b.json"),
    ],
)
def test_a_report_of_another_scan_does_not_stand_in(
    tmp_path: Path, changes: dict[str, Path | None], said: str
) -> None:
    write_report(tmp_path / "a.json", name="a")
    report = merge_fleet(expected_of_list([listed("a", 3, **changes)], tmp_path), now=NOW)
    assert [(one.reason, one.message) for one in report.left_out] == [("other-scan", said)]


def test_a_report_of_another_cluster_does_not_stand_in(tmp_path: Path) -> None:
    write_report(tmp_path / "a.json", name="b")
    report = merge_fleet(expected_of_list([listed("a")], tmp_path), now=NOW)
    assert report.left_out[0].message == "it is of the cluster b"


# Keys that several clusters use


def test_one_kms_key_of_several_clusters(tmp_path: Path) -> None:
    paths = [
        write_report(tmp_path / "a.json", name="a", kms_keys=[kms_key(keys=5, opened=0)]),
        write_report(
            tmp_path / "b.json", name="b", kms_keys=[kms_key(keys=7, opened=2, name="kms/v2/other")]
        ),
        write_report(tmp_path / "c.json", name="c", kms_keys=[kms_key("sha256:" + "b" * 64), kms_key(None)]),
        write_report(tmp_path / "d.json", name="d", kms_keys=[kms_key(None), kms_key("sha256:words")]),
    ]
    report = merged(paths)
    (shared,) = report.shared_keys
    assert (shared.type, shared.id, shared.clusters, shared.reads) == ("kms-key-id", KEY_ID, 2, "in-part")
    assert (shared.keys, shared.readable, shared.unreadable, shared.uses_in_all) == (12, 2, 10, 2)
    assert [
        (use.cluster, use.transformer, use.keys, use.readable, use.unreadable) for use in shared.uses
    ] == [
        ("a", "kms/v2/vault", 5, 0, 5),
        ("b", "kms/v2/other", 7, 2, 5),
    ]
    assert report.summary.shared_keys == 1


def test_one_encryption_key_of_several_clusters_whatever_its_name(tmp_path: Path) -> None:
    paths = [
        write_report(tmp_path / "a.json", name="a", transformers=[transformer(failures=1, undetermined=1)]),
        write_report(tmp_path / "b.json", name="b", transformers=[transformer("secretbox/v1/k2")]),
    ]
    (shared,) = merged(paths).shared_keys
    assert (shared.type, shared.id) == ("encryption-key", FINGERPRINT)
    assert [(use.transformer, use.resources, use.readable, use.unreadable) for use in shared.uses] == [
        ("aescbc/v1/key1", ["secrets"], 3, 2),
        ("secretbox/v1/k2", ["secrets"], 5, 0),
    ]


def test_values_that_are_damaged_inside_do_not_say_that_their_key_opens_nothing(tmp_path: Path) -> None:
    """A summary does not tell what does not open from what does not decode."""
    paths = [write_report(tmp_path / f"{at}.json", transformers=[transformer(failures=5)]) for at in range(2)]
    report = merged(paths)
    assert report.shared_keys[0].reads == "nowhere"
    stream = io.BytesIO()
    FLEET_FORMATS["table"](report, stream, 10)
    text = " ".join(stream.getvalue().decode().split())
    assert "READS NOWHERE: 10 values did not open or decode, or could not be tried" in text
    assert "OPEN" not in text


def test_one_name_of_two_keys_is_no_shared_key(tmp_path: Path) -> None:
    paths = [
        write_report(tmp_path / f"{name}.json", transformers=[transformer(fingerprint=fingerprint)])
        for name, fingerprint in (("a", "fp:" + "1" * 16), ("b", "fp:" + "2" * 16), ("c", None), ("d", None))
    ]
    assert not merged(paths).shared_keys


def test_two_reports_of_one_cluster_share_no_key_but_stand_with_one_that_does(tmp_path: Path) -> None:
    paths = [
        write_report(tmp_path / f"{name}.json", name=name, uid="u", kms_keys=[kms_key()])
        for name in ("a", "b")
    ]
    assert not merged(paths).shared_keys
    other = {"sha256": "sha256:" + "c" * 64}
    paths.append(write_report(tmp_path / "c.json", name="c", uid=None, origin=other, kms_keys=[kms_key()]))
    (shared,) = merged(paths).shared_keys
    assert shared.clusters == 2
    assert [use.cluster for use in shared.uses] == ["a", "b", "c"]


def test_without_a_uid_one_file_or_one_name_is_one_cluster(tmp_path: Path) -> None:
    def report(number: int, sha256: str, name: str, uid: str | None = None) -> Path:
        origin = {"sha256": f"sha256:{sha256}"}
        return write_report(
            tmp_path / f"{number}.json", name=name, uid=uid, origin=origin, kms_keys=[kms_key()]
        )

    # Of one file; of one name; and of both with others that have nothing in common.
    same = [report(1, "a", "east"), report(2, "a", "west"), report(3, "b", "west")]
    assert not merged(same).shared_keys
    for known in (report(4, "b", "north", uid="u"), report(4, "c", "east", uid="u")):
        assert not merged([*same, known]).shared_keys
        assert not merged([known, *same]).shared_keys
    (shared,) = merged([*same, report(5, "d", "")]).shared_keys
    assert (shared.clusters, shared.without_uid) == (2, 2)
    others = [report(6, "a", "south", uid="v"), report(7, "z", "south", uid="w")]
    (shared,) = merged([*same, *others]).shared_keys
    assert (shared.clusters, shared.without_uid) == (2, 0)


def test_a_key_of_a_cluster_without_a_uid_is_said_with_that(tmp_path: Path) -> None:
    paths = [
        write_report(tmp_path / f"{uid}.json", uid=uid, origin={"sha256": uid}, kms_keys=[kms_key()])
        for uid in ("u", None)
    ]
    stream = io.BytesIO()
    FLEET_FORMATS["table"](merged(paths), stream, 10)
    assert "2 clusters (of 1 the uid is not known)" in " ".join(stream.getvalue().decode().split())


def test_keys_under_which_nothing_reads_come_first_then_those_of_most_clusters(tmp_path: Path) -> None:
    ids = ["sha256:" + digit * 64 for digit in "1234"]

    def keys(at: int) -> list[KMSKeySummary]:
        lost = [kms_key(ids[1])] if at < 2 else []
        return [kms_key(ids[0], opened=5), *lost, kms_key(ids[2]), kms_key(ids[3], opened=at)]

    paths = [write_report(tmp_path / f"{at}.json", kms_keys=keys(at)) for at in range(3)]
    found = [(key.id, key.reads, key.clusters) for key in merged(paths).shared_keys]
    assert found == [
        (ids[2], "nowhere", 3),
        (ids[1], "nowhere", 2),
        (ids[3], "in-part", 3),
        (ids[0], "everywhere", 3),
    ]


def test_forty_clusters_of_one_lost_kms_key(tmp_path: Path) -> None:
    paths = [
        write_report(tmp_path / f"c{at:02}.json", findings(2), kms_keys=[kms_key(keys=2)] if at < 40 else [])
        for at in range(50)
    ]
    (shared,) = merged(paths).shared_keys
    assert (shared.clusters, shared.reads, shared.unreadable) == (40, "nowhere", 80)


# Its size


def _peak(paths: Sequence[Path]) -> int:
    tracemalloc.start()
    try:
        report = merged(paths)
        assert len(report.clusters) == len(paths)
        with Path(os.devnull).open("wb") as nowhere:
            FLEET_FORMATS["json"](report, nowhere, 100)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_findings(tmp_path: Path) -> None:
    few, many = ([write_report(tmp_path / f"{number}.json", findings(number))] for number in (3_000, 12_000))
    _peak(few)  # what is loaded once
    assert _peak(many) < 1.2 * _peak(few)


def test_memory_does_not_grow_with_the_clusters(tmp_path: Path) -> None:
    template = write_report(
        tmp_path / "r.json", findings(10), uid="u-0000", transformers=[transformer()], kms_keys=[kms_key()]
    ).read_bytes()
    paths = []
    for number in range(300):
        paths.append(tmp_path / f"c{number:04}.json")
        paths[-1].write_bytes(template.replace(b"u-0000", f"u-{number:04}".encode()))
    small, large = _peak(paths[:50]), _peak(paths)
    # Of each there is its digest, its uid, its path, and what it says of a key that all of them share.
    assert large < small + 250 * 3_000
