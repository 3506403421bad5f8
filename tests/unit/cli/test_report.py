"""``etcdfix report``: diff, merge and render, of reports that were saved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from etcdfix.cli.root import run
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Outcome
from etcdfix.report.finding import finding_from
from etcdfix.report.model import Finding, NewFindings, Scope
from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.schema import SCHEMAS
from tests.support.collecting import ALPHA, REPOSITORY
from tests.support.examinations import examination
from tests.support.fixtures import Captured
from tests.support.reports import CLUSTER
from tests.support.saved_scans import findings, write_report

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


def merge(*arguments: object) -> int:
    return run(["report", "merge", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _no_variables(no_variables: None) -> None:
    """Nothing is taken from the environment."""


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return write_report(tmp_path / "healthy.json", uid="uid-1")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_report(tmp_path / "broken.jsonl", findings(2), uid="uid-2")


@pytest.fixture
def undetermined(tmp_path: Path) -> Path:
    found = findings(1, outcome=Outcome.UNDETERMINED)
    return write_report(tmp_path / "undetermined.json", found, uid=None, reasons=["undetermined: 1 key"])


def merged(capfd: Captured, *files: Path) -> dict[str, Any]:
    merge(*files, "-o", "json")
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    jsonschema.validate(document, SCHEMAS["report-merge"]())
    return document


def test_the_exit_code_is_the_worst(healthy: Path, broken: Path, undetermined: Path, tmp_path: Path) -> None:
    assert merge(healthy) == 0
    assert merge(broken, healthy) == 1
    assert merge(undetermined, broken, healthy) == 3
    assert merge(healthy, tmp_path / "none.json") == 3


def test_a_row_says_what_its_report_says(
    healthy: Path, broken: Path, undetermined: Path, capfd: Captured
) -> None:
    document = merged(capfd, healthy, broken, undetermined)
    assert (document["exit_code"], document["left_out"]) == (3, [])
    fields = ("cluster", "complete", "severity", "exit_code")
    assert [tuple(row[field] for field in fields) for row in document["reports"]] == [
        ("uid-1", True, None, 0), ("uid-2", True, "breaks-now", 1), ("snapshot.db", False, None, 3),
    ]  # fmt: skip
    assert document["reports"][1]["counts"]["decrypt_failures"] == 2


def test_what_a_baseline_knew_is_no_finding(tmp_path: Path) -> None:
    known = write_report(tmp_path / "a.json", findings(2, known=2), new=NewFindings(0, 0, None))
    assert merge(known) == 0
    assert merge(write_report(tmp_path / "b.json", findings(2, known=1), new=NewFindings(1, 0, "/k"))) == 1


@pytest.mark.parametrize(("new", "more", "code"), [(0, [], 0), (1, [], 3), (0, ["page 7 is damaged"], 3)])
def test_what_a_baseline_knew_to_be_undetermined_is_not_incomplete(
    tmp_path: Path, new: int, more: list[str], code: int
) -> None:
    found = findings(2, outcome=Outcome.UNDETERMINED, known=2 - new)
    reasons = [*more, "undetermined: 2 keys"]
    path = write_report(tmp_path / "a.json", found, reasons=reasons, new=NewFindings(new, new, None))
    assert merge(path) == code


@pytest.mark.parametrize(
    "change", [{"reached_end": False, "incomplete_reasons": ["x"]}, {"complete": False}, {"findings": []}]
)
def test_a_report_that_is_not_whole_is_incomplete(
    change: dict[str, Any], tmp_path: Path, capfd: Captured
) -> None:
    path = write_report(tmp_path / "r.json", findings(2))
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    (row,) = merged(capfd, path)["reports"]
    assert (row["complete"], row["exit_code"]) == (False, 3)


READ = [
    "--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", str(ALPHA / "config-lost.yaml"), "--no-kms",
]  # fmt: skip
CASE = REPOSITORY / "fixtures" / "cases"
SMALL = ["--snapshot", str(CASE / "06-kms-v1.db"), "--encryption-config", str(CASE / "06-kms-today.json")]
DAMAGED = "/registry/secrets/shop/registry-plain-1"
Run = Callable[..., tuple[int, str, str]]
_TIME = re.compile(r"(?<!modified_at\":)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def timeless(text: str) -> str:
    """Leave out when it was, and how long it took, which junit and metrics say."""
    return re.sub(
        r'(timestamp|time)="[^"]*"|(?<=_seconds\{).*|(?<=_seconds ).*', "TIME", _TIME.sub("TIME", text)
    )


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A scan in both of its saved forms."""
    from etcdfix.cli.root import run

    folder = tmp_path_factory.mktemp("scans")
    for form in ("json", "jsonl"):
        run(["scan", *SMALL, "-o", form, "--output-file", str(folder / form)])
    return {path.name: path for path in folder.iterdir()}


def test_a_scan_in_every_form(command: Run, scans: dict[str, Path]) -> None:
    for form in SCAN_FORMS:
        _code, expected, _err = command("scan", *SMALL, "-o", form)
        code, out, err = command("report", "render", scans["json"], "-o", form)
        assert (code, err.splitlines()[-1]) == (3, "etcdfix: incomplete: undetermined: 3 keys")
        of_lines = command("report", "render", scans["jsonl"], "-o", form)[1]
        assert timeless(of_lines) == timeless(out)
        # The options of that run, which commands in a document repeat, stand in no report.
        same = timeless(out) == timeless(expected)
        assert same or (form in {"text", "wide", "html", "junit"} and out[:60] == expected[:60]), form


@pytest.mark.parametrize(
    "words",
    [["explain", DAMAGED, "--impact"], ["namespace", "shop"], ["scan", "--orphans"], ["copies", DAMAGED], ["doctor"],
     ["explain", DAMAGED, "--history"], ["encryption", "usage"]],
    ids=" ".join,
)  # fmt: skip
def test_every_kind_has_every_form(command: Run, tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "saved"
    verb, rest = (words[:2], []) if words[0] == "encryption" else (words[:1], words[1:])
    _code, saved, _err = command(*verb, *READ, *rest, "-o", "json")
    path.write_text(saved)
    for form in ("text", "wide", "json", "jsonl", "yaml", "html"):
        code, out, _err = command("report", "render", path, "-o", form)
        assert code in {0, 3}
        assert out
        if form == "json":
            assert out == saved
    assert command("report", "render", path, "-o", "csv")[:2] == (2, "")


@pytest.mark.parametrize("saved", ["json", "jsonl"])
def test_of_a_cut_report_nothing_is_shown(
    command: Run, tmp_path: Path, scans: dict[str, Path], saved: str
) -> None:
    path, raw = tmp_path / "saved", scans[saved].read_bytes()
    for length in (len(raw) // 2, raw.rindex(b"\n", 0, -1) + 1):
        path.write_bytes(raw[:length])
        code, out, err = command("report", "render", path, "-o", "name")
        assert (code, out, "it is cut" in err) == (2, "", True)


def hostile(value: object) -> object:
    """Put what acts upon a terminal into each text but those that say what the document is."""
    if isinstance(value, dict):
        kept = ("apiVersion", "kind", "key_base64")
        return {n: v if n in kept else hostile(v) for n, v in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return f"{value}\x1b]0;\u202e\x9b2J" if isinstance(value, str) and value else value


@pytest.mark.parametrize("form", sorted(SCAN_FORMS))
def test_a_report_of_a_stranger_does_nothing_to_a_terminal(
    command: Run, tmp_path: Path, scans: dict[str, Path], form: str
) -> None:
    path = tmp_path / "saved"
    path.write_text(json.dumps(hostile(json.loads(scans["json"].read_bytes()))))
    code, out, err = command("report", "render", path, "-o", form)
    assert code in {2, 3}
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", (out + err).replace("\r\n", "\n"))
