"""``etcdfix scan``: options, streams, a junit file that is red where the code is not 0, a KMS plugin that is away."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from etcdfix.cli import look as look_module
from etcdfix.cli.root import run
from etcdfix.cli.scan import command
from etcdfix.model.errors import EndedEarly
from etcdfix.report.scan import WHOLE
from tests.support.collecting import ALPHA
from tests.support.fixtures import Captured, CapturedBytes, Patch
from tests.support.junit import ReadJUnit, read_junit
from tests.support.memory_source import MemorySource
from tests.support.objects import aescbc, namespace_object, secret

pytestmark = pytest.mark.usefixtures("no_variables")


HOLDS = {
    "/registry/namespaces/kube-system": namespace_object("kube-system"),
    "/registry/secrets/pay/web": secret("web", "pay"),
    "/registry/secrets/shop/broken": b"k8s:enc:aescbc:v1:key1:short",
    "/registry/secrets/shop/web": aescbc(secret()),
}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def scan(monkeypatch: Patch, capfd: Captured, no_variables: None) -> Run:
    """Return a function that runs ``etcdfix scan`` over records in memory."""

    def run_scan(*arguments: str, source: MemorySource | None = None) -> tuple[int, str, str]:
        under_test = source or MemorySource(HOLDS)
        monkeypatch.setattr(look_module, "open_source", lambda _inputs, say: under_test)
        code = run(["scan", *arguments])
        captured = capfd.readouterr()
        assert under_test.closed or code == 2
        return code, captured.out, captured.err

    return run_scan


def test_without_configuration_the_scan_is_incomplete(scan: Run) -> None:
    code, out, err = scan("-o", "name")
    assert (code, err) == (3, "")
    assert out.splitlines() == ["/registry/secrets/shop/broken", "/registry/secrets/shop/web"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gadgets"], "unknown resource 'gadgets'"),
        (["/registry/secrets", "-n", "shop"], "goes with resources"),
        (["base64:?"], "base64:…: not base64"),
        (["base64:"], "base64:…: names no key"),
        (["-o", "xml"], "is not one of"),
        (["--kubernetes-version", "9"], "is not a release"),
        (["--encryption-config", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--etcd-prefix", "\udcff"], "--etcd-prefix is not UTF-8"),
    ],
)
def test_usage_errors(scan: Run, arguments: list[str], words: str) -> None:
    code, out, err = scan(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_form_and_baseline_by_variable(scan: Run, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("ETCDFIX_OUTPUT", "name")
    code, out, _err = scan()
    assert out.startswith("/registry/")
    monkeypatch.setenv("ETCDFIX_OUTPUT", "jsonl")
    _code, out, _err = scan()
    report = tmp_path / "report.jsonl"
    report.write_text(out)
    monkeypatch.setenv("ETCDFIX_BASELINE", str(report))
    code, _out, _err = scan()
    assert code == 0


# Options of one question, not of a run as such.
WITHOUT_VARIABLE = {"--all-namespaces", "--orphans"}


@pytest.mark.parametrize(
    "option", [o for o in command.params if isinstance(o, click.Option)], ids=lambda o: o.opts[0]
)
def test_every_option_has_its_variable(option: click.Option) -> None:
    long = next(name for name in option.opts if name.startswith("--"))
    if long in WITHOUT_VARIABLE:
        assert option.envvar is None
    else:
        assert option.envvar == "ETCDFIX_" + re.sub("-", "_", long[2:]).upper()


def test_remedies_can_be_pasted_and_name_no_password(scan: Run, config: str) -> None:
    _code, out, _err = scan(
        "--encryption-config", config, "--endpoints", "10.0.0.1:2379", "--user", "root:letmein",
        "--kubernetes-version", "1.36", "secrets", "-o", "json",
    )  # fmt: skip
    (finding,) = json.loads(out)["findings"]
    reading = f"--encryption-config {config} --kubernetes-version 1.36"
    commands = [remedy["command"] for remedy in finding["remedies"]]
    look = f"etcdfix copies --endpoints 10.0.0.1:2379 --user root {reading} /registry/secrets/shop/broken --in log:DIR"
    assert any(command.startswith(f"{look} ") for command in commands)
    _code, out, _err = scan("--endpoints", "10.0.0.1:2379", "--user", "root:letmein", "secrets", "-o", "json")
    commands = [r["command"] for f in json.loads(out)["findings"] for r in f["remedies"]]
    assert commands[0] == (
        "etcdfix scan --endpoints 10.0.0.1:2379 --user root --encryption-config FILE /registry/secrets/shop/broken"
    )
    assert "letmein" not in out


@pytest.mark.parametrize("text", ["", "none,undetermined", "secrets", "decrypt-failure,,"])
def test_outcomes_that_nothing_can_have(scan: Run, text: str) -> None:
    code, out, err = scan("--fail-on", text)
    assert (code, out) == (2, "")
    assert "no outcome that a scan could fail on" in err


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


READ = [
    "--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", str(ALPHA / "config-lost.yaml"),
    "--no-kms",
]  # fmt: skip
RunForJUnit = Callable[..., tuple[int, bytes]]


@pytest.fixture
def run_for_junit(capfdbinary: CapturedBytes, no_variables: None) -> RunForJUnit:
    def run_command(*arguments: object) -> tuple[int, bytes]:
        code = run([*map(str, arguments)])
        return code, capfdbinary.readouterr().out

    return run_command


@pytest.fixture
def scan_as_junit(run_for_junit: RunForJUnit) -> Callable[..., tuple[int, ReadJUnit]]:
    def run_scan(*arguments: object) -> tuple[int, ReadJUnit]:
        code, out = run_for_junit("scan", *READ, "-o", "junit", *arguments)
        return code, read_junit(out)

    return run_scan


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["namespaces"], 0),
        (["pods"], 1),
        (["pods", "--fail-on", "none"], 0),
        (["--fail-on", "undetermined"], 3),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else str(one),
)
def test_it_is_red_where_the_exit_code_is_not_0(
    scan_as_junit: Callable[..., tuple[int, ReadJUnit]], arguments: list[str], code: int
) -> None:
    got, found = scan_as_junit(*arguments)
    assert got == code
    assert found.is_red == (code != 0)
    assert found.of("ScanReport")[WHOLE].state != "failure"
    assert any(case.state == "failure" for case in found.cases) == (code == 1)


def test_a_scan_that_was_ended_is_red_though_nothing_was_found(
    run_for_junit: RunForJUnit, monkeypatch: Patch
) -> None:
    holds = {
        "/registry/namespaces/kube-system": namespace_object("kube-system"),
        "/registry/secrets/pay/web": secret("web", "pay"),
    }
    source = MemorySource(holds, fails_after=1, failure=EndedEarly("ended by SIGTERM", 143))
    monkeypatch.setattr(look_module, "open_source", lambda _inputs, say: source)
    code, out = run_for_junit("scan", "--no-encryption", "-o", "junit", "--fail-on", "none")
    found = read_junit(out)
    assert code == 143
    assert found.of("ScanReport")[WHOLE].message == "ended by SIGTERM before the end"
