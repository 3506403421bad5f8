"""The get command over a source in memory: words, errors, streams, exit codes."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.cli import get as get_module
from etcdfix.cli.root import run
from etcdfix.model.model import StoredValue
from etcdfix.remediation.audit.verify import read_records
from tests.support.collecting import ALPHA
from tests.support.fixtures import Captured, CapturedBytes, Patch
from tests.support.memory_source import MemorySource
from tests.support.objects import aescbc, config_map, namespace_object, secret

HOLDS = {
    "compact_rev_key": b"589",
    "/other/thing": b"\x00",
    "/registry/configmaps/default/settings": config_map(namespace="default"),
    "/registry/configmaps/shop/cut": config_map("cut")[:-9],
    "/registry/configmaps/shop/settings": config_map(),
    "/registry/namespaces/kube-system": namespace_object("kube-system"),
    "/registry/secrets/shop/broken": b"k8s:enc:aescbc:v1:key1:short",
    "/registry/secrets/shop/plain": secret("plain"),
    "/registry/secrets/shop/web": aescbc(secret()),
}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def get(monkeypatch: Patch, capfd: Captured, config: str, no_variables: None) -> Run:
    """Return a function that runs ``etcdfix get`` over records in memory, with a configuration."""

    def run_get(
        *arguments: str, source: MemorySource | None = None, bare: bool = False
    ) -> tuple[int, str, str]:
        under_test = source or MemorySource(HOLDS)
        monkeypatch.setattr(get_module, "open_source", lambda _inputs, say: under_test)
        code = run(["get", *arguments, *([] if bare else ["--encryption-config", config])])
        captured = capfd.readouterr()
        assert under_test.closed or code == 2
        return code, captured.out, captured.err

    return run_get


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["configmaps/settings"], ["settings"]),
        (["namespaces", "-n", "shop"], ["kube-system"]),
        (["/registry/configmaps/shop/settings"], ["settings"]),
        ([f"base64:{base64.b64encode(b'/registry/configmaps/shop/settings').decode()}"], ["settings"]),
        (["secrets", "web", "plain", "-n", "shop"], ["web", "plain"]),
        (["cm"], ["settings"]),
        (["ConfigMap/settings"], ["settings"]),
        (["ns,cm", "-n", "shop"], ["kube-system", "settings"]),
        (["secret,cm", "web", "settings", "-n", "shop"], ["web", "settings"]),
        (["cm/settings", "secret/plain", "-n", "shop"], ["settings", "plain"]),
        (["secret,cm/web", "-n", "shop"], ["web"]),
        (["cm", "-n", "nowhere", "-A"], ["settings", "settings"]),
    ],
)
def test_words(get: Run, arguments: list[str], names: list[str]) -> None:
    _code, out, _err = get(*arguments, "-o", "json")
    found = json.loads(out)
    assert [item["metadata"]["name"] for item in found.get("items", [found])] == names


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        ([], "names no objects", "write a KEY"),
        (["/registry/a", "pods"], "a KEY stands alone", "write a KEY"),
        (["base64:%"], "not base64", ""),
        (["pods/"], "'pods/' names no object", "TYPE/NAME"),
        (["pods", ""], "names no objects", "TYPE/NAME"),
        (["pods,"], "'pods,' names no resource", "po,svc"),
        (["po/a", "b"], "names no objects", "TYPE/NAME"),
        (["po/a/b"], "'po/a/b' names no object", "TYPE/NAME"),
        (["pods,secrt"], "unknown resource 'secrt'", "did you mean secrets?"),
        (["pods", "-n", "a/b"], "not a namespace name", "-n NAME"),
        (["pods", "-o", "csv"], "'csv' is not one of", ""),
        (["/registry/a", "-A"], "-n and -A go with a RESOURCE", "leave them out"),
    ],
)
def test_words_that_make_no_sense(get: Run, arguments: list[str], words: str, hint: str) -> None:
    code, out, err = get(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert hint in err
    assert bool(hint) == ("  next: " in err)


@pytest.mark.parametrize("arguments", [["configmaps", "nix"], ["configmaps", "settings"]])
def test_a_source_with_holes_is_incomplete(get: Run, arguments: list[str]) -> None:
    code, _out, err = get(*arguments, source=MemorySource(HOLDS, problems=["page 7 cannot be read"]))
    assert code == 3
    assert "incomplete: page 7 cannot be read" in err


def test_without_configuration_it_is_undetermined(get: Run) -> None:
    code, out, err = get("/registry/secrets/shop/web", bare=True)
    assert (code, out) == (3, "")
    assert "undetermined (no-configuration)" in err
    command = shlex.split(err.splitlines()[-1])
    assert command == ["etcdfix", "scan", "--encryption-config", "FILE", "/registry/secrets/shop/web"]


def test_a_list_says_one_line_for_each_that_is_missing(get: Run) -> None:
    code, out, err = get("configmaps", "-n", "shop", "-o", "json")
    assert [item["metadata"]["name"] for item in json.loads(out)["items"]] == ["settings"]
    assert code == 1
    assert err.startswith("etcdfix: /registry/configmaps/shop/cut: decode-failure")
    assert "etcdfix: BREAKS NOW" in err
    assert "etcdfix: Do not restart an API server: " in err


def test_revealing_is_said(get: Run) -> None:
    code, out, err = get("secrets", "web", "-n", "shop", "--reveal", "-o", "json")
    assert base64.b64decode(json.loads(out)["data"]["password"]) == b"never-to-be-shown"
    assert (code, err) == (0, "etcdfix: --reveal: the contents of Secrets are shown, unmasked\n")


def test_an_interruption_is_said(get: Run) -> None:
    class Interrupted(MemorySource):
        def get(self, key: bytes) -> StoredValue | None:
            raise KeyboardInterrupt

    code, out, err = get("/registry/configmaps/shop/settings", source=Interrupted(HOLDS))
    assert (code, out) == (130, "")
    assert "interrupted before the end: what is shown is not everything" in err


def test_what_is_revealed_is_recorded_first(tmp_path: Path, capfdbinary: CapturedBytes) -> None:
    tmp_path.chmod(0o700)
    log = tmp_path / "audit.jsonl"
    arguments = ["--snapshot", str(ALPHA / "snapshot.db.gz"), "--audit-log", str(log), "-o", "json"]
    assert run(["get", "/registry/secrets/pay/db-plain-0", *arguments]) == 0
    for form in ("wide", "text"):
        listing = ["--snapshot", str(ALPHA / "snapshot.db.gz"), "--audit-log", str(log), "-o", form]
        assert run(["get", "/registry/secrets/pay/db-plain-0", *listing, "--reveal"]) == 0
    assert not log.exists()
    assert run(["get", "/registry/secrets/pay/db-plain-0", *arguments, "--reveal"]) == 0
    run(["get", "secrets", "-n", "pay", *arguments, "--reveal"])
    first, second = (event.subject for event in read_records(log))
    assert (first.namespace, first.name) == ("pay", "db-plain-0")
    assert (second.resource, second.namespace, second.name) == ("secrets", "pay", "")
    log.write_text("not a log\n")
    capfdbinary.readouterr()
    assert run(["get", "/registry/secrets/pay/db-plain-0", *arguments, "--reveal"]) == 4
    assert capfdbinary.readouterr().out == b""
