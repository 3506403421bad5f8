"""Under /bootstrap/ stands a digest of the server's token: no output shows it, whatever fails, in whatever form."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.fixtures import CapturedBytes, Patch, StartEtcd
from tests.support.kine import KineWriter
from tests.support.objects import config_map, namespace_object

pytestmark = pytest.mark.etcd

TOKEN = b"c0ffee123456"
KEY = b"/bootstrap/" + TOKEN
HOSTILE = [
    KEY, b"//bootstrap/" + TOKEN, b"/k3s/bootstrap/" + TOKEN, b"/bootstrap/\xff" + TOKEN,
    b"bootstrap/" + TOKEN,
]  # fmt: skip
VALUE = b"salt:" + base64.b64encode(b"never to be opened here")


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: Patch, tmp_path: Path, no_variables: None) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def in_any_form() -> list[bytes]:
    forms = [TOKEN, TOKEN.upper()]
    for key in HOSTILE:
        for shift in range(3):
            encoded = base64.b64encode(b"\0" * shift + key)
            forms.append(encoded[4 : len(encoded) - 4])
        forms += [hashlib.sha256(key).hexdigest().encode(), base64.b64encode(key)]
    return [form for form in forms if form]


@pytest.fixture(scope="module")
def stores(start_etcd: StartEtcd, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    folder = tmp_path_factory.mktemp("stores")
    etcd, kine = start_etcd(), KineWriter(folder / "state.db")
    pairs = [(key, VALUE) for key in HOSTILE]
    pairs += [
        (b"/registry/namespaces/kube-system", namespace_object("kube-system")),
        (b"/registry/configmaps/shop/settings", config_map()),
        (b"/registry/configmaps/shop/broken", config_map()[:-9]),
    ]
    for key, value in pairs:
        for _ in range(2):
            etcd.put(key, value)
            kine.put(key, value)
    kine.close()
    etcd.etcdctl("snapshot", "save", folder / "saved.db")
    return [
        ["--endpoints", etcd.endpoint],
        ["--snapshot", str(folder / "saved.db")],
        ["--kine", str(folder / "state.db")],
    ]


# Whatever a person may type, on one source each.
LOOKS = [
    ["explain", "KEY"], ["explain", "KEY0", "--history"], ["get", "KEY"], ["explain", "KEY", "--impact"],
    ["scan", "KEY"], ["get", "KEY/"], ["scan", "KEY", "--etcd-prefix", "/"], ["get", "BASE64"],
    ["explain", "KEY", "--etcd-prefix", "/bootstrap"], ["explain", "BASE64"],
    ["scan"], ["scan", "--orphans"], ["encryption", "usage"], ["doctor"], ["namespace", "shop"],
    ["scan", "-o", "wide", "--etcd-prefix", "/k3s"],
]  # fmt: skip
CHANGES = [
    ["delete", "KEY", "--ignore-store-read-error-with-cluster-breaking-potential"],
    ["delete", "/bootstrap/c0ffee123456*", "--ignore-store-read-error-with-cluster-breaking-potential"],
    ["fix", "KEY"],
    ["fix", "KEY", "--from", "revision:2"],
    ["fix", "/bootstrap/c0ffee123456/", "--from", "candidate:none.yaml"],
]


def look(words: list[str], capfdbinary: CapturedBytes) -> bytes:
    run(words)
    captured = capfdbinary.readouterr()
    said = captured.out + captured.err
    assert [one for one in in_any_form() if one in said] == []
    assert b"Traceback" not in said
    return said


def of_each(words: list[str]) -> Iterator[list[str]]:
    for key in HOSTILE if any(name in "".join(words) for name in ("KEY", "BASE64")) else [b""]:
        encoded = base64.b64encode(key).decode()
        yield [w.replace("BASE64", f"base64:{encoded}").replace("KEY", os.fsdecode(key)) for w in words]


@pytest.mark.parametrize(
    ("source", "words"), [pytest.param(n % 3, words, id=" ".join(words)) for n, words in enumerate(LOOKS)]
)
def test_no_look_shows_it(
    stores: list[list[str]], source: int, words: list[str], capfdbinary: CapturedBytes
) -> None:
    for command in of_each(words):
        look([*command, *stores[source], "--no-encryption"], capfdbinary)
        said = look([*command, *stores[source], "--no-encryption", "-o", "json"], capfdbinary)
        if words == ["explain", "KEY"] and b"{" in said:
            document, _ = json.JSONDecoder().raw_decode(said[said.index(b"{") :].decode())
            assert document["key"].endswith("bootstrap/<withheld>")
            assert document["key_base64"] is None


def test_the_record_of_a_look_does_not_show_it(
    stores: list[list[str]], tmp_path: Path, monkeypatch: Patch, capfdbinary: CapturedBytes
) -> None:
    log = tmp_path / "audit.jsonl"
    monkeypatch.setenv("ETCDFIX_AUDIT_LOG", str(log))
    for key in HOSTILE:
        encoded = base64.b64encode(key).decode()
        look(["get", f"base64:{encoded}", "--reveal", "--revision", "3", *stores[2]], capfdbinary)
    assert log.read_bytes()
    assert [one for one in in_any_form() if one in log.read_bytes()] == []
    assert run(["log", "verify", str(log)]) == 0


@pytest.mark.parametrize("words", CHANGES, ids=lambda words: " ".join(words[:2]))
@pytest.mark.parametrize("form", ["text", "json"])
def test_no_refusal_shows_it(
    stores: list[list[str]], words: list[str], form: str, tmp_path: Path, capfdbinary: CapturedBytes
) -> None:
    log = tmp_path / "audit.jsonl"
    places = ["--backup-dir", str(tmp_path / "b"), "--audit-log", str(log)]
    for command in of_each(words):
        given = ["--no-encryption", "--reason", "x", "--yes", "-o", form, *places]
        look([*command, *stores[0], *given], capfdbinary)
    assert not log.exists() or TOKEN not in log.read_bytes()


def test_a_key_of_that_name_below_the_prefix_is_shown(
    stores: list[list[str]], capfdbinary: CapturedBytes
) -> None:
    """A namespace may be called bootstrap: its objects must be found, and commands must name them."""
    key = "/registry/secrets/bootstrap/c0ffee123456"
    run(["explain", key, *stores[2], "--no-encryption"])
    assert key.encode() in capfdbinary.readouterr().err
