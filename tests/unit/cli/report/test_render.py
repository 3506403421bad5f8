"""``report render``: the same bytes that the command itself would have written, and nothing of a broken file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.report.render import SCAN_FORMS
from tests.support.collecting import ALPHA

READ = [
    "--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", str(ALPHA / "config-lost.yaml"), "--no-kms",
]  # fmt: skip
KEY = "/registry/secrets/shop/registry-plain-1"
Run = Callable[..., tuple[int, str, str]]
_TIME = re.compile(r"(?<!modified_at\":)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def timeless(text: str) -> str:
    """Leave out when it was, and how long it took, which junit and metrics say."""
    return re.sub(
        r'(timestamp|time)="[^"]*"|(?<=_seconds\{).*|(?<=_seconds ).*|(?<=examined) in \d+ s',
        "TIME",
        _TIME.sub("TIME", text),
    )


@pytest.mark.parametrize("saved", ["json", "jsonl"])
def test_a_scan_in_every_form(command: Run, tmp_path: Path, saved: str) -> None:
    path = str(tmp_path / "saved")
    command("scan", *READ, "-o", saved, "--output-file", path)
    for form in SCAN_FORMS:
        _code, expected, _err = command("scan", *READ, "-o", form)
        code, out, err = command("report", "render", path, "-o", form)
        assert timeless(out) == timeless(expected), form
        assert (code, err.splitlines()) == (3, ["etcdfix: incomplete: undetermined: 11 keys"])


def test_a_cap_is_taken_for_a_table(command: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    command("scan", *READ, "-o", "json", "--output-file", path)
    _code, out, _err = command("report", "render", path, "-o", "wide", "--max-rows", "7")
    assert "too many errors, the list is truncated" in out


@pytest.mark.parametrize(
    ("words", "forms"),
    [
        (["impact", KEY], ["text", "json"]),
        (["namespace", "shop"], ["text", "json"]),
        (["orphans"], ["text", "json"]),
        (["copies", KEY], ["text", "json", "yaml"]),
    ],
    ids=lambda words: words[0],
)
def test_other_kinds(command: Run, tmp_path: Path, words: list[str], forms: list[str]) -> None:
    path = str(tmp_path / "saved")
    _code, out, _err = command(words[0], *READ, *words[1:], "-o", "json")
    Path(path).write_text(out)
    for form in forms:
        _code, expected, _err = command(words[0], *READ, *words[1:], "-o", form)
        code, out, _err = command("report", "render", path, "-o", form)
        assert timeless(out) == timeless(expected), form
        assert code in {0, 3}
    code, out, err = command("report", "render", path, "-o", "csv")
    assert (code, out) == (2, "")
    assert "has no -o csv; it has " in err


def test_a_plan(command: Run, tmp_path: Path) -> None:
    report, plan = (str(tmp_path / name) for name in ("report.json", "plan.json"))
    command("scan", *READ, "-o", "json", "--output-file", report)
    command("plan", *READ, "--from-report", report, "-o", "json", "--output-file", plan)
    _code, expected, _err = command("plan", *READ, "--from-report", report)
    _code, out, _err = command("report", "render", plan)
    assert timeless(out).splitlines()[:10] == timeless(expected).splitlines()[:10]
    assert command("report", "render", plan, "-o", "json")[1] == Path(plan).read_text()


def test_of_a_cut_report_nothing_is_shown(command: Run, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    for form in ("json", "jsonl"):
        _code, out, _err = command("scan", *READ, "-o", form)
        path.write_text(out[: len(out) // 2])
        code, out, err = command("report", "render", str(path), "-o", "name")
        assert (code, out) == (2, "")
        assert "cut" in err or "end is missing" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("[]", "but a list"),
        ("{}", "its kind is missing"),
        ('{"kind":"Pod","apiVersion":"v1"}', "its kind is Pod"),
        ('{"kind":"ScanReport","apiVersion":"etcdfix/v9"}', "etcdfix/v9"),
        ('{"kind":"ScanReport","apiVersion":"etcdfix/v1"}', "can be shown again"),
        ('{"kind":"ImpactReport","apiVersion":"etcdfix/v1"}', "can be shown again"),
        ('{"kind":"\\u001b[2J"}', "\\x1b[2J"),
    ],
)
def test_what_is_no_report(command: Run, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "saved"
    path.write_text(text)
    code, out, err = command("report", "render", str(path))
    assert (code, out) == (2, "")
    assert said in err
    assert "\x1b" not in err


@pytest.mark.parametrize("path", ["-", "/nowhere/report.json"])
def test_what_cannot_be_read(command: Run, path: str) -> None:
    assert command("report", "render", path)[0] == 2


def hostile(value: object) -> object:
    """Put what acts upon a terminal into each text but those that say what the document is."""
    if isinstance(value, dict):
        kept = ("apiVersion", "kind", "key_base64")
        return {n: v if n in kept else hostile(v) for n, v in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return f"{value}\x1b]0;\u202e\x9b2J" if isinstance(value, str) and value else value


@pytest.mark.parametrize("form", sorted(SCAN_FORMS))
def test_a_report_of_a_stranger_does_nothing_to_a_terminal(command: Run, tmp_path: Path, form: str) -> None:
    path = tmp_path / "saved"
    _code, out, _err = command("scan", *READ, "-o", "json")
    document = json.loads(out)
    found = hostile(document)
    assert isinstance(found, dict)
    for name in ("by_cause", "kms"):  # closed words, which are looked at
        found["summary"][name] = document["summary"][name]
    path.write_text(json.dumps(found))
    code, out, err = command("report", "render", str(path), "-o", form)
    assert code == 3
    assert out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", (out + err).replace("\r\n", "\n"))


def test_a_word_that_nobody_knows_is_refused(command: Run, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    _code, out, _err = command("scan", *READ, "-o", "json")
    document = json.loads(out)
    document["summary"]["by_cause"][0]["cause"] = "no-such-cause"
    path.write_text(json.dumps(document))
    code, out, err = command("report", "render", str(path))
    assert (code, out) == (2, "")
    assert "no-such-cause" in err
