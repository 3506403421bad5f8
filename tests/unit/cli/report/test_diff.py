"""``report diff``: what is new, gone and changed, in flat memory, of what can be compared."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from etcdfix.cli.root import run
from etcdfix.commands.saved_reports import diff_reports
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Outcome
from etcdfix.report.finding import finding_from
from etcdfix.report.model import Finding, ReportConfiguration, Scope
from etcdfix.report.schema import SCHEMAS
from tests.support.examinations import examination
from tests.support.fixtures import Captured
from tests.support.reports import CLUSTER
from tests.support.saved_scans import write_report

UNDETERMINED = ["undetermined: 1 key"]
Diff = Callable[..., tuple[int, str, str]]


@pytest.fixture
def diff(capfd: Captured, no_variables: None) -> Diff:
    def run_diff(*arguments: object) -> tuple[int, str, str]:
        code = run(["report", "diff", *map(str, arguments)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_diff


def one(name: bytes | str, **settings: Any) -> Finding:
    raw = name.encode() if isinstance(name, str) else name
    return finding_from(examination(b"/registry/secrets/shop/" + raw, **settings))


def write(path: Path, found: Sequence[Finding], **settings: Any) -> Path:
    return write_report(path.with_suffix(".json"), found, uid=settings.pop("uid", CLUSTER), **settings)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Write two reports: ``b`` is gone, ``c`` the same, ``d`` has another cause, ``e`` another value, ``f`` is new."""
    earlier = [one("b"), one("c"), one("d"), one("e"), one("w", outcome=Outcome.READABLE, cause=None)]
    later = [
        one("a", outcome=Outcome.READABLE, cause=None),
        one("c"),
        one("d", cause=Cause.WRONG_KEY),
        one("e", value=b"other", mod_revision=9),
        one("f", outcome=Outcome.DECODE_FAILURE, cause=Cause.EMPTY_OBJECT),
    ]
    return write(tmp_path / "earlier", earlier), write(tmp_path / "later", later)


def keys(found: dict[str, Any]) -> list[str]:
    return [f"{row['change']} {row['key'].rpartition('/')[2]}" for row in found["differences"]]


def test_what_differs(diff: Diff, two: tuple[Path, Path]) -> None:
    code, out, err = diff(*two, "-o", "json")
    found = json.loads(out)
    Draft202012Validator(SCHEMAS["report-diff"]()).validate(found)
    assert (code, err) == (1, "")
    assert found["counts"] == {"new": 1, "gone": 1, "changed": 2, "same": 1}
    assert keys(found) == ["new f", "changed d", "changed e", "gone b"]
    new, cause, value, gone = found["differences"]
    assert (cause["changed"], value["changed"]) == (["cause"], ["value"])
    assert (new["earlier"], new["later"]["cause"]) == (None, "empty-object")
    assert (gone["later"], gone["earlier"]["cause"]) == (None, "key-name-missing")
    assert found["unlike"] == []
    assert (found["earlier"]["findings"], found["later"]["findings"]) == (4, 4)


@pytest.mark.parametrize("side", [0, 1])
def test_an_incomplete_one_wins(diff: Diff, two: tuple[Path, Path], tmp_path: Path, side: int) -> None:
    paths = list(two)
    paths[side] = write(
        tmp_path / "x",
        [one("f", outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE)],
        reasons=UNDETERMINED,
    )
    code, out, err = diff(*paths)
    assert code == 3
    assert "ncomplete" in out
    assert f"{('earlier', 'later')[side]} report is incomplete: undetermined: 1 key" in err


@pytest.mark.parametrize(
    ("changes", "what", "code"),
    [
        ({"uid": "another"}, "cluster (uid of kube-system)", 3),
        ({"uid": None}, "cluster (uid of kube-system)", 1),
        ({"head": {"scope": Scope("/registry", [], [], [], "1.36")}}, "release (--kubernetes-version)", 1),
        (
            {"head": {"encryption_config": ReportConfiguration("c", "sha256:" + "9" * 64)}},
            "encryption configuration (sha256)",
            1,
        ),
        ({"head": {"encryption_config": None}}, "encryption configuration (sha256)", 1),
    ],
)
def test_what_is_not_alike_is_said(
    diff: Diff, two: tuple[Path, Path], tmp_path: Path, changes: dict[str, Any], what: str, code: int
) -> None:
    other = write(tmp_path / "other", [one("new")], **changes)
    found, out, _err = diff(two[0], other, "-o", "json")
    assert [one["what"] for one in json.loads(out)["unlike"]] == [what]
    assert found == code
    assert f"The {what} differs: " in " ".join(diff(two[0], other)[1].split())


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (Scope("/other", [], [], [], None), "other.json of everything below /other"),
        (
            Scope("/registry", [], ["secrets"], ["shop"], None),
            "other.json of secrets -n shop below /registry",
        ),
        (Scope("/registry", ["/registry/pods"], [], [], None), "other.json of /registry/pods below"),
    ],
    ids=["storage prefix", "resource", "key prefix"],
)
def test_what_cannot_be_compared_is_refused(
    diff: Diff, two: tuple[Path, Path], tmp_path: Path, scope: Scope, said: str
) -> None:
    other = write(tmp_path / "other", [], head={"scope": scope})
    for paths in ((two[0], other), (other, two[0])):
        code, out, err = diff(*paths)
        assert (code, out) == (2, "")
        assert said in err


def test_keys_of_any_bytes_and_no_other_order(diff: Diff, tmp_path: Path) -> None:
    names = [b"a", b"a\x00", b"a\x00\xff", b"a/b", b"b\xff", "café".encode(), b"z"]
    found = [one(name) for name in names]
    ordered, fewer = write(tmp_path / "ordered", found), write(tmp_path / "fewer", found[:4])
    code, out, _err = diff(fewer, ordered, "-o", "json")
    assert code == 1
    assert [row["key"] for row in json.loads(out)["differences"]] == [row.key for row in found[4:]]
    turned = write(tmp_path / "turned", found[::-1])
    code, out, err = diff(turned, ordered)
    assert (code, out) == (2, "")
    assert "not in the order of their etcd keys" in err


def test_text_of_a_stranger_does_nothing_to_a_terminal(
    diff: Diff, two: tuple[Path, Path], tmp_path: Path
) -> None:
    hostile = "\x1b]0;x\u202e"
    found = msgspec.structs.replace(
        one("new"), key=f"/registry/{hostile}", message=hostile, cause=hostile, value_sha256=hostile
    )
    other = write(tmp_path / "other", [found], uid=hostile, reasons=[hostile], head={"generated_at": hostile})
    for form in ("text", "wide", "json"):
        _code, out, err = diff(two[0], other, "-o", form)
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err


def test_memory_is_flat(tmp_path: Path) -> None:
    """All of them changed: what is more than a few megabytes goes to a file."""
    number = 15_000
    paths = []
    for at, value in enumerate((b"one", b"two")):
        template = one("x", value=value)
        found = [
            msgspec.structs.replace(template, key=f"/registry/secrets/shop/s-{n:07}") for n in range(number)
        ]
        paths.append(write(tmp_path / f"{at}", found))
    assert sum(path.stat().st_size for path in paths) > 30_000_000
    del found
    tracemalloc.start()
    try:
        report = diff_reports(*paths)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.counts.changed == len(report.differences) == number
    assert peak < 24_000_000, peak
