"""The scan command over a source in memory: options, variables, streams, last words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from etcdfix.cli import look as look_module
from etcdfix.cli.root import run
from etcdfix.cli.scan import command
from tests.support.fixtures import Captured, Patch
from tests.support.memory_source import MemorySource
from tests.support.objects import aescbc, namespace_object, secret

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
        (["--kubernetes-version", "9"], "is no release"),
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
