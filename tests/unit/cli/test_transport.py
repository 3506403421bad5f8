"""Every command that goes to a live etcd says, each time, what makes the way there less than safe."""

from __future__ import annotations

import pytest

from etcdfix.cli.root import run
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.text.commands import ACKNOWLEDGEMENT
from tests.support.audit_logs import entry, own_directory
from tests.support.collecting import ALPHA
from tests.support.fixtures import Captured, Patch

pytestmark = pytest.mark.usefixtures("no_variables")

KEY = "/registry/secrets/shop/db"
CONFIG = ["--encryption-config", str(ALPHA / "config-lost.yaml")]
NOBODY = ["--dial-timeout", "200ms"]
UNCHECKED = "etcdfix: warning: TLS certificates are not checked"
IN_THE_CLEAR = "etcdfix: warning: the password of etcd user 'ada' is sent without TLS to http://127.0.0.1:1"
COMMANDS = {
    "scan": ["scan"],
    "get": ["get", KEY],
    "impact": ["explain", KEY, "--impact"],
    "namespace": ["namespace", "shop"],
    "orphans": ["scan", "--orphans"],
    "usage": ["encryption", "usage"],
    "what-if": ["encryption", "what-if", "--new", CONFIG[1], *CONFIG],
    "try": ["encryption", "try", "--in", f"candidate:{CONFIG[1]}"],
    "plan": ["plan", "--from-report", "{report}", *CONFIG],
    "delete": ["delete", KEY, "--reason", "x", "--dry-run", ACKNOWLEDGEMENT, *CONFIG],
    "fix": ["fix", KEY, "--from", "revision:3", "--reason", "x", "--dry-run"],
    "reconcile": ["log", "settle", "{log}", "--dry-run"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = own_directory(tmp_path_factory.mktemp("files") / "own")
    report, log = str(folder / "report.json"), folder / "audit.jsonl"
    snapshot = ["--snapshot", str(ALPHA / "snapshot.db.gz"), *CONFIG]
    run(["scan", *snapshot, "secrets", "-o", "json", "--output-file", report])
    with AuditLog.open(log) as opened:
        opened.append(entry())
    return {"report": report, "log": str(log)}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_warns(
    words: list[str], files: dict[str, str], monkeypatch: Patch, capfd: Captured
) -> None:
    command = [word.format_map(files) for word in words]
    monkeypatch.setenv("ETCDCTL_PASSWORD", "not-to-be-shown")
    unsafe = [
        "--insecure-skip-tls-verify", "--user", "ada", "--endpoints",
        "http://127.0.0.1:1,https://127.0.0.1:1",
    ]  # fmt: skip
    assert run([*command, *NOBODY, *unsafe]) == 5
    told = capfd.readouterr()
    assert [line.startswith((UNCHECKED, IN_THE_CLEAR)) for line in told.err.splitlines()[:3]] == [
        True, True, False,
    ]  # fmt: skip
    assert "not-to-be-shown" not in told.out + told.err
    assert run([*command, *NOBODY, "--endpoints", "http://127.0.0.1:1"]) == 5
    assert "warning" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["delete", "fix", "reconcile"])
def test_the_way_to_the_main_etcd_is_warned_of_too(
    name: str, files: dict[str, str], monkeypatch: Patch, capfd: Captured
) -> None:
    command = [word.format_map(files) for word in COMMANDS[name]]
    monkeypatch.setenv("ETCDCTL_PASSWORD", "not-to-be-shown")
    ways = ["--user", "ada", "--endpoints", "https://127.0.0.1:1", "--main-endpoints", "http://127.0.0.1:2"]
    assert run([*command, *NOBODY, *ways]) == 5
    told = capfd.readouterr()
    warnings = [line for line in told.err.splitlines() if "warning: " in line]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "etcdfix: warning: main etcd: the password of etcd user 'ada' is sent without TLS to http://127.0.0.1:2"
    )
