"""``report render``: what the command itself would have written, and nothing of a broken file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.schema import KINDS
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
        r'(timestamp|time)="[^"]*"|(?<=_seconds\{).*|(?<=_seconds ).*', "TIME", _TIME.sub("TIME", text)
    )


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A scan in both of its saved forms."""
    from etcdfix.cli.root import run

    folder = tmp_path_factory.mktemp("scans")
    for form in ("json", "jsonl"):
        run(["scan", *READ, "-n", "pay", "-o", form, "--output-file", str(folder / form)])
    return {path.name: path for path in folder.iterdir()}


def test_a_scan_in_every_form(command: Run, scans: dict[str, Path]) -> None:
    for form in SCAN_FORMS:
        _code, expected, _err = command("scan", *READ, "-n", "pay", "-o", form)
        code, out, err = command("report", "render", scans["json"], "-o", form)
        assert (code, err) == (3, "etcdfix: incomplete: undetermined: 3 keys\n")
        of_lines = command("report", "render", scans["jsonl"], "-o", form)[1]
        assert timeless(of_lines) == timeless(out)
        # The options of that run, which commands in a document repeat, stand in no report.
        same = timeless(out) == timeless(expected)
        assert same or (form in {"text", "wide", "html", "junit"} and out[:60] == expected[:60]), form


@pytest.mark.parametrize(
    "words",
    [["explain", KEY, "--impact"], ["namespace", "shop"], ["scan", "--orphans"], ["copies", KEY], ["doctor"],
     ["explain", KEY, "--history"], ["encryption", "usage"]],
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


def test_a_report_without_what_its_kind_always_has_is_refused(command: Run, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    report = json.loads(command("doctor", *READ, "-o", "json")[1])
    path.write_text(json.dumps({name: report[name] for name in report if name != "checks"}))
    code, out, err = command("report", "render", path)
    assert (code, out, "`checks`" in err) == (2, "", True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "its kind is missing"),
        ('{"kind":"Pod","apiVersion":"v1"}', "its kind is Pod"),
        ('{"kind":"ScanReport","apiVersion":"etcdfix/v9"}', "etcdfix/v9"),
        *((f'{{"kind":"{kind}","apiVersion":"etcdfix/v1"}}', "cannot be used as a report") for kind in KINDS),
        ('{"kind":"\\u001b[2J"}', "\\x1b[2J"),
    ],
)
def test_what_is_no_report(command: Run, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "saved"
    path.write_text(text)
    code, out, err = command("report", "render", path)
    assert (code, out) == (2, "")
    assert said in err
    assert "\x1b" not in err


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
