"""What does not fit together is named and left out; nothing of a file is believed."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.exit_codes import ExitCode, scan_exit_code
from etcdfix.errors import ConfigurationError
from etcdfix.operations.look.merge_shards import merged_kms
from etcdfix.operations.look.scan import ScanRequest
from etcdfix.operations.look.shards import Span, span_in
from etcdfix.reports.baseline import load_baseline
from etcdfix.reports.model import KMSPluginSummary, KMSSummary, NewFindings, Shard
from etcdfix.reports.saved_report import load_report
from etcdfix.storagekey import StorageLayout
from tests.support.memory_source import MemorySource
from tests.support.objects import KEY_1, KEY_2, aescbc, configuration, provider, secret
from tests.support.reports import new_tally
from tests.support.shards import Opened, merge_as, scan_as, shard_files

LAYOUT = StorageLayout()
HELD = {f"/registry/secrets/shop/{n:02}": aescbc(secret(f"{n:02}")) for n in range(12)}
HELD["/registry/secrets/shop/06"] = b"{}"
REQUEST = ScanRequest(layout=LAYOUT, configuration=configuration(provider("aescbc", key1=KEY_1)))

Report = dict[str, Any]


def again() -> Opened:
    return MemorySource(HELD), None


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return shard_files(again, REQUEST, 3, tmp_path)


def reasons(files: list[Path]) -> list[str]:
    report, result = merge_as(files)
    document = json.loads(report)
    assert document["complete"] is False
    assert result.problems == document["incomplete_reasons"][: len(result.problems)]
    return [reason.replace(f"{files[0].parent}/", "") for reason in result.problems]


def change(path: Path, how: Callable[[Report], None]) -> None:
    """Change a report as a program may that writes it anew."""
    document = json.loads(path.read_bytes())
    how(document)
    if "part" in document and document["scope"].get("shard"):
        document["part"]["shard"] = document["scope"]["shard"]
    path.write_text(json.dumps(document))


def test_one_lacks(files: list[Path]) -> None:
    assert reasons([files[0], files[2]]) == ["shard 2 of 3 is not among the files"]
    assert reasons(files[:1]) == [f"shard {n} of 3 is not among the files" for n in (2, 3)]


def test_standard_input_cannot_be_read_twice(files: list[Path]) -> None:
    with pytest.raises(ConfigurationError, match="- is standard input, and a shard is read twice") as raised:
        merge_as([*files[:2], Path("-")])
    assert raised.value.hint == "save it in a file"


def test_a_full_temporary_directory_is_not_the_fault_of_a_file(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("etcdfix.inputs.inputfile.temporary_file", full)
    with pytest.raises(OSError, match=r"no room for a copy of it in .* \(TMPDIR\)"):
        merge_as(files)


def test_each_of_many_is_held_against_its_neighbours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = shard_files(again, REQUEST, 40, tmp_path)
    spans = 0

    def counting(shard: Shard) -> Span:
        nonlocal spans
        spans += 1
        return span_in(shard)

    monkeypatch.setattr("etcdfix.operations.look.merge_shards.span_in", counting)
    assert not merge_as(files)[1].problems
    assert spans <= 10 * len(files)


def test_very_many_lack(tmp_path: Path) -> None:
    files = shard_files(again, REQUEST, 30, tmp_path)
    told = reasons(files[:1])
    assert len(told) == 11
    assert told[-1] == "19 more shards of 30 are not among the files"


def test_the_head_of_one_and_the_end_of_another(tmp_path: Path) -> None:
    files = shard_files(again, REQUEST, 3, tmp_path, "jsonl")
    head = files[0].read_bytes().splitlines(keepends=True)[0]
    files[0].write_bytes(head + b"".join(files[2].read_bytes().splitlines(keepends=True)[1:]))
    assert reasons(files) == [
        "shard-1-of-3.jsonl is no report of a shard: its end is of another scan than its head; it is left out",
        "shard 1 of 3 is not among the files",
    ]


def test_one_is_there_twice(files: list[Path]) -> None:
    twice = files[0].with_name("twice.json")
    twice.write_bytes(files[0].read_bytes())
    assert reasons([*files, twice]) == [
        "twice.json: shard 1 of 3 is in shard-1-of-3.json already; it is left out"
    ]


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (lambda d: d["source"].update(sha256="sha256:" + "1" * 64), "its snapshot (sha256) is sha256:111"),
        (lambda d: d["source"].update(revision=7), "its revision is 7"),
        (lambda d: d["source"].update(kube_system_uid="other"), "its cluster (uid of kube-system) is other"),
        (lambda d: d["source"].update(cluster_name="other"), "its cluster name is other"),
        (
            lambda d: d["encryption_config"].update(sha256="sha256:2"),
            "its encryption configuration (sha256) is",
        ),
        (lambda d: d.update(encryption_config=None), "its encryption configuration (sha256) is none"),
        (
            lambda d: d["scope"].update(kubernetes_version="1.30"),
            "its release (--kubernetes-version) is 1.30",
        ),
        (lambda d: d["scope"].update(resources=["pods"]), "its scope is pods below /registry"),
        (lambda d: d["scope"]["shard"].update(of=4), "its number of shards is 4"),
        (lambda d: d["tool"].update(version="0.0.1"), "etcdfix 0.0.1 wrote it"),
        (lambda d: d["part"]["again"].update(reading=["--no-kms"]), "its way of reading is --no-kms"),
        (lambda d: d["source"].update(type="etcd"), "it does not say of which file it is"),
        (lambda d: d["scope"]["shard"].update(index=9), "shard 9 of 3 is none"),
        (lambda d: d["scope"]["shard"].update(to_key=None), "shard 2 of 3 does not end where it has to"),
        (lambda d: d["scope"]["shard"].update(from_key="/a"), "its keys do not begin where those of"),
        (lambda d: d["scope"]["shard"].update(from_key="/z"), "shard 2 of 3 is none"),
        (lambda d: d["scope"]["shard"].update(from_key_base64="*"), "is no report of a shard"),
        (lambda d: d["scope"].pop("shard"), "it is of a whole scan (for many clusters name --fleet)"),
        (lambda d: d.pop("part"), "it does not have what a merge needs"),
        (lambda d: d["part"].update(findings=99), "findings, and says 99"),
        (lambda d: d["part"].pop("tally"), "missing required field `tally`"),
        (lambda d: d["summary"]["by_cause"][0].update(cause="a\x1b[2J"), "nobody knows its word a\\x1b[2J"),
        (lambda d: d["summary"].update(keys=-1), "its keys is -1"),
        (lambda d: d["summary"]["by_resource"][0].update(readable=2**64 - 1), "its readable is 1844674407"),
        (
            lambda d: d["summary"]["by_transformer"][0].update(last_mod_revision=2**63),
            "its last_mod_revision is",
        ),
        (lambda d: d["part"]["tally"]["stakes"][0].__setitem__(1, -5), "its stakes is -5"),
        (lambda d: d.update(kind="ImpactReport"), "its kind is ImpactReport"),
        (lambda d: d.update(apiVersion="etcdfix/v9"), "its apiVersion is etcdfix/v9"),
    ],
)
def test_what_does_not_fit_is_named_and_left_out(
    files: list[Path], how: Callable[[Report], None], named: str
) -> None:
    change(files[1], how)
    first, *rest = reasons(files)
    assert first.startswith("shard-2-of-3.json")
    assert named in first
    assert first.endswith("; it is left out")
    assert rest == ["shard 2 of 3 is not among the files"]


LONG = "\x1b" * 1_000_000


@pytest.mark.parametrize(
    "how",
    [
        lambda d: d["source"].update(cluster_name=LONG),
        lambda d: d["scope"].update(resources=[LONG]),
        lambda d: d["tool"].update(name=LONG, version=LONG),
        lambda d: d["summary"]["by_cause"][0].update(cause=LONG),
        lambda d: d["findings"][0].update(key=LONG),
        lambda d: d["findings"][0].update(key="/" + "x" * 1_000_000),
        lambda d: d["part"]["seen"].update(ended=LONG),
        lambda d: d["part"]["seen"].update(problems=[LONG]),
        lambda d: d["part"]["seen"].update(problems=[f"{number}" for number in range(10_000)]),
    ],
)
def test_no_hostile_word_fills_the_terminal(files: list[Path], how: Callable[[Report], None]) -> None:
    change(files[1], how)
    told = reasons(files)
    assert told
    assert len("".join(told)) < 10_000


def _without_the_finding(document: Report) -> None:
    document["findings"].clear()
    document["part"]["findings"] = 0


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (_without_the_finding, "it has 0 findings of decrypt-failure, and counts 1"),
        (
            lambda d: d["findings"][0].update(outcome="undetermined"),
            "it has 0 findings of decrypt-failure, and",
        ),
        (
            lambda d: d["findings"][0].update(key="/registry/secrets/shop/00"),
            "/shop/00 is not where it belongs",
        ),
        (lambda d: d["findings"][0].update(key="/registry/zz"), "/registry/zz is not where it belongs"),
        (lambda d: d["findings"][0].update(key="/registry/\x1b[2J"), "does not name its key as reports do"),
        (lambda d: d["findings"][0].update(key_base64="Lw=="), "does not name its key as reports do"),
        (lambda d: d["findings"][0].update(key_base64="*"), "Only base64 data is allowed"),
        (lambda d: d["part"]["tally"]["stakes"].clear(), "other things are at stake than it counts"),
        (
            lambda d: d["part"]["tally"]["stakes"][0][0].update(severity="one-object"),
            "other things are at stake",
        ),
        (lambda d: d["summary"].update(severity=None), "not as severe as its summary says"),
        (lambda d: d["summary"].update(do_not_restart=""), "some speak against a restart"),
        (lambda d: d["summary"].update(known_findings=1), "a baseline knew 0 findings, and it counts 1"),
        (lambda d: d["summary"]["by_cause"].clear(), "its findings have other causes than it counts"),
        (lambda d: d["summary"].update(keys=5), "it counts 4 keys of all resources, and 5 in all"),
        (lambda d: d["summary"].update(stale=1), "it counts 0 stale of all resources, and 1 in all"),
        (lambda d: d["summary"].update(readable=4), "it counts 4 keys, and more by outcome"),
        (
            lambda d: d["summary"]["by_resource"][0].update(keys=9),
            "it counts 9 keys of secrets, and others by",
        ),
        (lambda d: d.update(complete=False), "incomplete: it does not say why"),
        (lambda d: d.update(complete=False, incomplete_reasons=["page 5"]), "incomplete: page 5"),
        (lambda d: d.update(incomplete_reasons=["page 5"]), "incomplete: page 5"),
    ],
)
def test_what_contradicts_itself_is_told(
    files: list[Path], how: Callable[[Report], None], named: str, tmp_path: Path
) -> None:
    assert json.loads(merge_as(files)[0])["complete"]
    change(files[1], how)
    told = reasons(files)
    assert named in told[0]
    assert all(one.startswith("shard 2 of 3: ") and one.isprintable() for one in told)


def test_findings_in_another_order_are_told(tmp_path: Path) -> None:
    broken = dict.fromkeys(HELD, b"{}")
    files = shard_files(lambda: (MemorySource(broken), None), REQUEST, 2, tmp_path)
    assert json.loads(merge_as(files)[0])["complete"]
    change(files[1], lambda d: d["findings"].reverse())
    (told,) = reasons(files)
    assert "is not where it belongs" in told


def test_a_key_of_which_part_is_withheld_has_no_place(files: list[Path]) -> None:
    change(files[1], lambda d: d["findings"][0].update(key="/registry/bootstrap/<withheld>"))
    assert merge_as(files)[1].problems == []


def test_an_end_that_does_not_meet_the_next(files: list[Path]) -> None:
    change(files[0], lambda d: d["scope"]["shard"].update(to_key="/z"))
    told = reasons([files[1], files[0], files[2]])
    assert "its keys do not end where those of" in told[0]


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_report_that_is_cut(tmp_path: Path, output: str) -> None:
    files = shard_files(again, REQUEST, 2, tmp_path, output)
    whole = files[1].read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 2):
        files[1].write_bytes(whole[:size])
        told = reasons(files)
        assert "shard-2-of-2" in told[0]
        assert told[1:] == ["shard 2 of 2 is not among the files"]


def test_no_shard_at_all(tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    whole.write_bytes(scan_as(again(), REQUEST)[0])
    for path in (whole, tmp_path / "absent.json", tmp_path):
        with pytest.raises(ConfigurationError, match="no report of a shard is among the files"):
            merge_as([path])


def test_an_interrupted_shard_makes_an_incomplete_whole(tmp_path: Path) -> None:
    files = shard_files(again, REQUEST, 2, tmp_path)
    change(files[1], lambda d: d["part"]["seen"].update(ended="interrupted", lost_midway=False))
    change(files[1], lambda d: d["part"]["seen"].update(problems=["page 7: a leaf", "both"]))
    change(files[0], lambda d: d["part"]["seen"].update(problems=["both"]))
    assert reasons(files) == [
        "both",
        "shard 2 of 2: page 7: a leaf",
        "shard 2 of 2: interrupted before the end",
    ]


def test_a_file_that_changes_while_it_is_merged(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from etcdfix.operations.look import merge_shards

    fitting = merge_shards._fitting

    def then_changed(paths: Any, problems: list[str]) -> Any:
        found = fitting(paths, problems)
        files[2].write_bytes(files[0].read_bytes())
        return found

    monkeypatch.setattr(merge_shards, "_fitting", then_changed)
    assert reasons(files) == ["shard 3 of 3: it was changed while it was merged"]


def test_a_baseline_and_an_earlier_report_are_never_a_shard(files: list[Path]) -> None:
    for read in (load_baseline, load_report):
        with pytest.raises(ConfigurationError, match="it is shard 2 of 3: merge them all first"):
            read(files[1])
    merged = files[0].with_name("merged.json")
    merged.write_bytes(merge_as(files)[0])
    load_baseline(merged)
    assert load_report(merged).problems == ()


def test_a_merged_baseline_counts_as_for_the_whole(files: list[Path], tmp_path: Path) -> None:
    merged = tmp_path / "merged.json"
    merged.write_bytes(merge_as(files)[0])
    known = ScanRequest(layout=LAYOUT, configuration=REQUEST.configuration, baseline=load_baseline(merged))
    _, result = merge_as(shard_files(again, known, 2, tmp_path))
    assert scan_exit_code(result) == ExitCode.NOTHING_WRONG
    assert result.summary.known_findings == 1
    assert result.summary.new == NewFindings(0, 0, None)


def test_a_lost_key_is_said_by_the_whole_alone(tmp_path: Path) -> None:
    lost = ScanRequest(layout=LAYOUT, configuration=configuration(provider("aescbc", key1=KEY_2)))
    files = shard_files(again, lost, 12, tmp_path)
    for path in files:
        part = json.loads(path.read_bytes())
        assert part["summary"]["key_loss"] == []
        assert part["summary"]["next"]["command"].startswith("etcdfix report merge")
    whole = json.loads(merge_as(files)[0])
    assert len(whole["summary"]["key_loss"]) == 1
    assert not any(finding["remedies"] for finding in whole["findings"] if finding["value_size"] > 2)
    assert "part" not in whole
    assert "shard" not in whole["scope"]


def plugin(state: str, calls: int = 1, message: str = "") -> KMSPluginSummary:
    return KMSPluginSummary("kms/v2/p", "unix:///p", state, message, calls, calls, 0, 0, None)


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (["not-asked", "ok"], "ok"),
        (["ok", "unreachable", "denied"], "unreachable"),
        (["not-asked", "not-asked"], "not-asked"),
    ],
)
def test_what_a_plugin_did_for_each_shard(states: list[str], shown: str) -> None:
    parts = [KMSSummary([plugin(state, 2)], []) for state in states]
    merged = merged_kms(parts, new_tally())
    assert merged is not None
    (one,) = merged.plugins
    assert (one.state, one.calls) == (shown, 2 * len(states))


def test_without_kms_there_is_nothing_to_say_of_it() -> None:
    assert merged_kms([], new_tally()) is None
