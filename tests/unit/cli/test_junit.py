"""``-o junit`` on the command line: the file is red where the exit code is not 0, and green where it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etcdfix.cli import look as look_module
from etcdfix.cli.root import run
from etcdfix.model.errors import EndedEarly
from etcdfix.report.scan import WHOLE
from tests.support.collecting import ALPHA
from tests.support.fixtures import CapturedBytes, Patch
from tests.support.junit import ReadJUnit, read_junit
from tests.support.memory_source import MemorySource
from tests.support.objects import namespace_object, secret

READ = [
    "--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", str(ALPHA / "config-lost.yaml"),
    "--no-kms",
]  # fmt: skip
Run = Callable[..., tuple[int, bytes]]


@pytest.fixture
def command(capfdbinary: CapturedBytes, no_variables: None) -> Run:
    def run_command(*arguments: object) -> tuple[int, bytes]:
        code = run([*map(str, arguments)])
        return code, capfdbinary.readouterr().out

    return run_command


@pytest.fixture
def scan(command: Run) -> Callable[..., tuple[int, ReadJUnit]]:
    def run_scan(*arguments: object) -> tuple[int, ReadJUnit]:
        code, out = command("scan", *READ, "-o", "junit", *arguments)
        return code, read_junit(out)

    return run_scan


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 3),
        (["namespaces"], 0),
        (["pods"], 1),
        (["pods", "--fail-on", "decode-failure,undetermined"], 1),
        (["--fail-on", "decode-failure"], 1),
        (["--fail-on", "none"], 0),
        (["--fail-on", "undetermined"], 3),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else str(one),
)
def test_it_is_red_where_the_exit_code_is_not_0(
    scan: Callable[..., tuple[int, ReadJUnit]], arguments: list[str], code: int
) -> None:
    got, found = scan(*arguments)
    assert got == code
    assert found.is_red == (code != 0)
    assert found.of("ScanReport")[WHOLE].state != "failure"
    assert any(case.state == "failure" for case in found.cases) == (code == 1 or arguments == [])


def test_a_scan_that_was_ended_is_red_though_nothing_was_found(command: Run, monkeypatch: Patch) -> None:
    holds = {
        "/registry/namespaces/kube-system": namespace_object("kube-system"),
        "/registry/secrets/pay/web": secret("web", "pay"),
    }
    source = MemorySource(holds, fails_after=1, failure=EndedEarly("ended by SIGTERM", 143))
    monkeypatch.setattr(look_module, "open_source", lambda _inputs, say: source)
    code, out = command("scan", "--no-encryption", "-o", "junit", "--fail-on", "none")
    found = read_junit(out)
    assert code == 143
    assert found.of("ScanReport")[WHOLE].message == "ended by SIGTERM before the end"


@pytest.mark.parametrize(
    ("today", "new", "code"),
    [("rotated", "rotated", 0), ("lost", "rotated", 1), ("lost", "lost", 0), ("rotated", "lost", 1)],
)
def test_what_a_new_configuration_would_do(command: Run, today: str, new: str, code: int) -> None:
    configurations = [
        "--encryption-config", ALPHA / f"config-{today}.yaml", "--new", ALPHA / f"config-{new}.yaml",
    ]  # fmt: skip
    got, out = command("encryption", "what-if", *READ[:2], "--no-kms", *configurations, "-o", "junit")
    found = read_junit(out)
    undetermined = any(case.state == "error" for case in found.cases)
    assert got == (code or (3 if undetermined else 0))
    assert found.is_red == (got != 0)
    assert any(case.state == "failure" for case in found.of("secrets").values()) == (code == 1)
