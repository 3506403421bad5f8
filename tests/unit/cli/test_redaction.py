"""``scan --redact-names``: no name in any format, the same word for the same name, and no way to work with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.reports.formats import SCAN_FORMATS
from etcdfix.reports.redaction import Redactor
from etcdfix.storagekey import StorageLayout
from tests.support.collecting import ALPHA

SNAPSHOT = ["--snapshot", str(ALPHA / "snapshot.db.gz")]
READ = [*SNAPSHOT, "--encryption-config", str(ALPHA / "config-lost.yaml")]
Scan = Callable[..., str]


@pytest.fixture
def scan(capfd: pytest.CaptureFixture[str], no_variables: None) -> Scan:
    def run_scan(*arguments: str, expect: int = 3) -> str:
        assert run(["scan", *READ, *arguments]) == expect
        return capfd.readouterr().out

    return run_scan


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_bytes(b"sixteen bytes at least")
    return str(path)


def _names(report: dict[str, Any]) -> set[str]:
    """Return every word of a name that says more than what stands in any report."""
    names = {
        word for f in report["findings"] for word in (f["namespace"], f["name"], f["key"].split("/")[-1])
    }
    kinds = {word for f in report["findings"] for word in re.split("[./]", f"{f['resource']}.{f['group']}")}
    return {name for name in names if len(name) > 2} - kinds


def test_the_path_of_the_baseline_is_replaced(scan: Scan, tmp_path: Path) -> None:
    path = tmp_path / "of the bank.json"
    path.write_text(scan("-o", "json"))
    shown = scan("-o", "json", "--redact-names", "--baseline", str(path), expect=0)
    assert "of the bank" not in shown
    assert json.loads(shown)["baseline"]["path"].startswith("n-")


@pytest.mark.parametrize("form", sorted(SCAN_FORMATS))
def test_no_name_is_left(scan: Scan, form: str) -> None:
    names = _names(json.loads(scan("-o", "json")))
    assert len(names) > 50
    shown = scan("-o", form, "--redact-names")
    assert "n-" in shown
    found = {name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", shown)}
    # What the release, the providers and our own words are called, no object is named after.
    assert found == set()
    assert str(ALPHA) not in shown


def test_the_same_name_is_the_same_word_under_one_key(scan: Scan, key_file: str) -> None:
    plain = json.loads(scan("-o", "json"))["findings"]
    first, again = (
        json.loads(scan("-o", "json", "--redact-names", "--redact-key-file", key_file)) for _ in range(2)
    )
    other = json.loads(scan("-o", "json", "--redact-names"))
    assert [f["key"] for f in first["findings"]] == [f["key"] for f in again["findings"]]
    assert first["scope"]["redaction_key_id"] == again["scope"]["redaction_key_id"]
    assert first["scope"]["redaction_key_id"] != other["scope"]["redaction_key_id"]
    words: dict[str, set[str]] = {}
    for before, after in zip(plain, first["findings"], strict=True):
        words.setdefault(before["namespace"], set()).add(after["namespace"])
        for same in ("outcome", "cause", "resource", "mod_revision", "value_sha256", "transformer"):
            assert before[same] == after[same]
    assert all(len(found) == 1 for found in words.values())
    assert {f["key"] for f in first["findings"]}.isdisjoint(f["key"] for f in other["findings"])


def test_the_scope_names_nothing(scan: Scan) -> None:
    report = json.loads(scan("-o", "json", "--redact-names", "-n", "pay"))
    (namespace,) = report["scope"]["namespaces"]
    assert namespace.startswith("n-")
    assert all("pay" not in status["details"]["name"] for status in report["statuses"])
    report = json.loads(scan("-o", "json", "--redact-names", "/registry/secrets/pay"))
    assert report["scope"]["prefixes"] == [f"/registry/secrets/{report['findings'][0]['namespace']}"]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("/registry/secrets/shop/web", "/registry/secrets/SHOP/WEB"),
        ("/registry/apiregistration.k8s.io/apiservices/a.b", "/registry/apiregistration.k8s.io/apiservices/AB"),
        ("/registry/example.com/widgets/shop/web", "/registry/example.com/widgets/SHOP/WEB"),
        ("/registry/secrets/shop/web/more", "/registry/secrets/SHOP/WEB/MORE"),
        ("/registry/secrets", "/registry/n-…"),
        ("/registry/secrets/", "/registry/secrets/"),
        ("/registry/shop", "/registry/SHOP"),
        ("/registry/ranges/shop", "/registry/n-…/SHOP"),
        ("/registry/ranges/serviceips", "/registry/ranges/serviceips"),
        ("/registry/made-up/shop", "/registry/made-up/SHOP"),
        ("/elsewhere/shop", "/n-…/SHOP"),
        ("compact_rev_key", "n-…"),
    ],
)  # fmt: skip
def test_keys(key: str, shown: str) -> None:
    redactor = Redactor(b"0" * 16, StorageLayout("/registry"))
    for word, name in {"SHOP": "shop", "WEB": "web", "MORE": "more", "AB": "a.b"}.items():
        shown = re.sub(rf"\b{word}\b", redactor.name(name), shown)
    assert re.fullmatch(re.escape(shown).replace("…", "[0-9a-f]{16}"), redactor.key(key))


def test_a_prefix_that_goes_too_deep_names_nothing() -> None:
    redactor = Redactor(b"0" * 16, StorageLayout("/registry/secrets/shop"))
    assert re.fullmatch("/n-[0-9a-f]{16}/n-[0-9a-f]{16}", redactor.key("/registry/secrets/shop/web"))
    assert redactor.prefix("/registry/secrets/shop/").count("shop") == 0


def test_nothing_can_be_done_with_such_a_report(
    scan: Scan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for form in ("json", "jsonl"):
        path = tmp_path / form
        scan("-o", form, "--redact-names", "--output-file", str(path))
        for command in (
            ["scan", *READ, "--baseline", str(path)],
            ["plan", *READ, "--from-report", str(path)],
        ):
            assert run(command) == 2
            assert "its names were replaced (--redact-names)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--redact-key-file", "FILE"], "--redact-key-file needs --redact-names"),
        (["--redact-names", "--reveal-key-ids"], "contradict each other"),
        (["--redact-names", "--redact-key-file", "/nowhere"], "No such file"),
    ],
)
def test_what_makes_no_sense(arguments: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", *READ, *arguments]) == 2
    assert says.lower() in capfd.readouterr().err.lower()


def test_a_key_that_is_too_short(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"short")
    assert run(["scan", *READ, "--redact-names", "--redact-key-file", str(path)]) == 2
    err = capfd.readouterr().err
    assert "5 bytes; a key has at least 16" in err
    assert "short\n" not in err


def test_what_findings_share_quotes_nothing_and_is_called_by_a_keyed_word(scan: Scan, key_file: str) -> None:
    plain = json.loads(scan("-o", "json"))["summary"]["key_loss"]
    report = json.loads(scan("-o", "json", "--redact-names", "--redact-key-file", key_file))
    shared = [words for lost in report["summary"]["key_loss"] for words in lost["shared"]]
    assert len(shared) == len([words for lost in plain for words in lost["shared"]]) > 1
    ids = {words["id"] for words in shared}
    assert all(re.fullmatch("n-[0-9a-f]{16}", one) for one in ids)
    assert all(words["message"] and not words["evidence"] for words in shared)
    findings = [finding for finding in report["findings"] if "shared" in finding]
    assert {finding["shared"] for finding in findings} == ids
    assert not any(finding["message"] or finding["evidence"] for finding in findings)
