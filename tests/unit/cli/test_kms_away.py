"""A KMS plugin that is away: it costs no time, and only what waits for it is incomplete."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.fixtures import Captured

pytestmark = pytest.mark.usefixtures("no_variables")

CASES = Path(__file__).resolve().parents[3] / "fixtures" / "cases"
SNAPSHOT, TODAY, NEW = (str(CASES / f"06-kms-{name}") for name in ("v1.db", "today.json", "new.json"))


def test_a_plugin_that_no_value_needs_leaves_nothing_open(capfd: Captured) -> None:
    """The values name another provider; that this one has no socket decides nothing about them."""
    assert run(["scan", "--snapshot", SNAPSHOT, "--encryption-config", NEW, "-o", "json"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert {finding["cause"] for finding in report["findings"]} == {"provider-missing"}
    assert (report["complete"], report["incomplete_reasons"]) == (True, [])
    assert [plugin["state"] for plugin in report["summary"]["kms"]] == ["no-socket"]
    assert run(["scan", "--snapshot", SNAPSHOT, "--encryption-config", NEW]) == 1
    assert "INCOMPLETE" not in capfd.readouterr().out


def test_a_plugin_that_values_wait_for_leaves_them_open(capfd: Captured) -> None:
    """An outage is no corruption, and the report says which plugin it is."""
    assert run(["scan", "--snapshot", SNAPSHOT, "--encryption-config", TODAY, "-o", "json"]) == 3
    report = json.loads(capfd.readouterr().out)
    assert {(finding["outcome"], finding["cause"]) for finding in report["findings"]} == {
        ("undetermined", "kms-unreachable")
    }
    assert not report["complete"]
    # The other plugin of that configuration is away as well, and no value names it.
    assert [text for text in report["incomplete_reasons"] if "kms/v1/vaultprovider" in text]
    assert not [text for text in report["incomplete_reasons"] if "vault-v2" in text]


def test_a_socket_that_nobody_listens_on_is_known_at_once(tmp_path: Path, capfd: Captured) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "dead.sock"))
    endpoint = f"vaultprovider=unix://{tmp_path}/dead.sock"
    arguments = ["--snapshot", SNAPSHOT, "--encryption-config", TODAY, "--kms-endpoint", endpoint]
    began = time.monotonic()
    assert run(["scan", *arguments, "-o", "json"]) == 3
    assert time.monotonic() - began < 15  # it was given up after 30 s
    report = json.loads(capfd.readouterr().out)
    assert {finding["cause"] for finding in report["findings"]} == {"kms-unreachable"}
    (state,) = [p["state"] for p in report["summary"]["kms"] if p["transformer"] == "kms/v1/vaultprovider"]
    assert state == "unreachable"
