"""``report diff``: what is new, gone and changed, in flat memory, of what can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Outcome
from etcdfix.report.finding import finding_from
from etcdfix.report.model import Finding, Scope
from etcdfix.report.schema import SCHEMAS
from tests.support.examinations import examination
from tests.support.reports import CLUSTER
from tests.support.saved_scans import write_report

Diff = Callable[..., tuple[int, str, str]]


@pytest.fixture
def diff(command: Diff) -> Diff:
    return partial(command, "report", "diff")


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
    doubtful = one("f", outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE)
    paths[side] = write(tmp_path / "x", [doubtful], reasons=["undetermined: 1 key"])
    code, _out, err = diff(*paths)
    assert code == 3
    assert f"{('earlier', 'later')[side]} report is incomplete: undetermined: 1 key" in err


@pytest.mark.parametrize(
    ("changes", "what", "code"),
    [
        ({"uid": "another"}, "cluster (uid of kube-system)", 3),
        ({"head": {"scope": Scope("/registry", [], [], [], "1.36")}}, "release (--kubernetes-version)", 1),
        ({"head": {"encryption_config": None}}, "encryption configuration (sha256)", 1),
    ],
)
def test_what_is_not_alike_is_said(
    diff: Diff, two: tuple[Path, Path], tmp_path: Path, changes: dict[str, Any], what: str, code: int
) -> None:
    other = write(tmp_path / "other", [one("new")], **changes)
    found, out, _err = diff(two[0], other, "-o", "json")
    assert ([one["what"] for one in json.loads(out)["unlike"]], found) == ([what], code)


@pytest.mark.parametrize(
    "scope",
    [
        Scope("/other", [], [], [], None),
        Scope("/registry", [], ["secrets"], ["shop"], None),
        Scope("/registry", ["/registry/pods"], [], [], None),
    ],
    ids=["storage prefix", "resource", "key prefix"],
)
def test_what_cannot_be_compared_is_refused(
    diff: Diff, two: tuple[Path, Path], tmp_path: Path, scope: Scope
) -> None:
    other = write(tmp_path / "other", [], head={"scope": scope})
    for paths in ((two[0], other), (other, two[0])):
        code, out, _err = diff(*paths)
        assert (code, out) == (2, "")


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
