"""``etcdfix compare`` with snapshots: words, codes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.fixtures import Captured, Patch

ALPHA = "fixtures/snapshots/alpha"
SNAPSHOT = f"{ALPHA}/snapshot.db.gz"
ROTATED = ["--encryption-config", f"{ALPHA}/config-rotated.yaml", "--no-kms"]
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _here(monkeypatch: Patch, no_variables: None) -> None:
    monkeypatch.chdir(REPOSITORY)


def test_an_earlier_revision_of_the_same_file(capfd: Captured) -> None:
    words = ["compare", "--with-snapshot", SNAPSHOT, "--snapshot", SNAPSHOT, "--revision", "520", *ROTATED]
    code = run([*words, "-o", "json"])
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert (code, report["mode"]) == (1, "sources")
    assert [copy["revision"] for copy in report["copies"]] == [589, 520]
    assert "may be the later one" in report["warnings"][0]
    assert sum(report["changes"].values()) == report["differing"] == len(report["differences"])
    assert "uses KMS v1" in err
    assert run([*words, "-o", "yaml", "secrets"]) == 1
    assert "kind: ComparisonReport" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--snapshot", SNAPSHOT], 2, "nothing to compare it with"),
        (["--snapshot", SNAPSHOT, "--with-snapshot", "none.db"], 5, "none.db"),
        (["--snapshot", SNAPSHOT, "--with-snapshot", SNAPSHOT, "xyzzies"], 2, "unknown resource"),
        (
            ["--snapshot", SNAPSHOT, "--with-snapshot", SNAPSHOT, "--etcd-prefix", "/none", "secrets"],
            5,
            "NOTHING WAS EXAMINED",
        ),
        (["--endpoints", "127.0.0.1:1"], 5, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_compared(words: list[str], code: int, told: str, capfd: Captured) -> None:
    assert run(["compare", *words]) == code
    assert told in capfd.readouterr().err
