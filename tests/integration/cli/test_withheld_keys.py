"""Under /bootstrap/ stands a digest of the server's token: no output shows it, whatever fails, in whatever form."""

from __future__ import annotations

import base64
import hashlib
import json
import os
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


FORMS = ["text", "json"]
# Whatever a person may type: of one key, and of everything.
OF_ONE = [
    ["explain", "KEY"], ["explain", "KEY", "--history"], ["get", "KEY"], ["explain", "KEY", "--impact"],
    ["scan", "KEY"], ["get", "KEY/"], ["scan", "KEY0"], ["explain", "KEY0", "--history"],
]  # fmt: skip
OF_ALL = [
    ["scan"], ["scan", "--orphans"], ["encryption", "usage"], ["doctor"], ["namespace", "shop"],
    ["scan", "/bootstrap"],
]  # fmt: skip


def look(words: list[str], tmp_path: Path, capfdbinary: CapturedBytes) -> bytes:
    run(words)
    captured = capfdbinary.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("source", range(3))
@pytest.mark.parametrize("words", [*OF_ONE[:3], *OF_ALL[:2]], ids=" ".join)
def test_no_source_shows_it(
    stores: list[list[str]], source: int, words: list[str], tmp_path: Path, capfdbinary: CapturedBytes
) -> None:
    require_nothing_shown(stores[source], words, tmp_path, capfdbinary)


@pytest.mark.parametrize("words", [*OF_ONE, *OF_ALL], ids=" ".join)
def test_nothing_shows_it(
    stores: list[list[str]], words: list[str], tmp_path: Path, capfdbinary: CapturedBytes
) -> None:
    require_nothing_shown(stores[2], words, tmp_path, capfdbinary)


def require_nothing_shown(
    source: list[str], words: list[str], tmp_path: Path, capfdbinary: CapturedBytes
) -> None:
    forms = in_any_form()
    keys = HOSTILE if "KEY" in "".join(words) else [b""]
    for key in keys:
        named = os.fsdecode(key)
        command = [word.replace("KEY", named) for word in words]
        for form in FORMS:
            said = look([*command, *source, "--no-encryption", "-o", form], tmp_path, capfdbinary)
            assert [one for one in forms if one in said] == []
            assert b"Traceback" not in said
            if form == "json" and words[:2] == ["explain", "KEY"] and b"{" in said:
                document, _ = json.JSONDecoder().raw_decode(said[said.index(b"{") :].decode())
                assert document["key"].endswith("bootstrap/<withheld>")
                assert document["key_base64"] is None


@pytest.mark.parametrize("prefix", ["/", "/bootstrap", "/bootstrap/", "/k3s"])
@pytest.mark.parametrize(
    "words", [["scan"], ["scan", "-o", "wide"], ["scan", "--orphans"], *OF_ONE[:4]], ids=" ".join
)
def test_no_storage_prefix_makes_it_a_name(
    stores: list[list[str]], words: list[str], prefix: str, tmp_path: Path, capfdbinary: CapturedBytes
) -> None:
    """Below another prefix its parts would be a resource and a name."""
    require_nothing_shown([*stores[2], "--etcd-prefix", prefix], words, tmp_path, capfdbinary)


def test_the_record_of_a_look_does_not_show_it(
    stores: list[list[str]], tmp_path: Path, monkeypatch: Patch, capfdbinary: CapturedBytes
) -> None:
    log = tmp_path / "audit.jsonl"
    monkeypatch.setenv("ETCDFIX_AUDIT_LOG", str(log))
    for key in HOSTILE:
        encoded = base64.b64encode(key).decode()
        look(["get", f"base64:{encoded}", "--reveal", "--revision", "3", *stores[2]], tmp_path, capfdbinary)
    assert log.read_bytes()
    assert [one for one in in_any_form() if one in log.read_bytes()] == []
    assert run(["log", "verify", str(log)]) == 0


@pytest.mark.parametrize("command", ["explain", "get"])
def test_as_base64(stores: list[list[str]], command: str, tmp_path: Path, capfdbinary: CapturedBytes) -> None:
    for key in HOSTILE:
        words = [command, f"base64:{base64.b64encode(key).decode()}", *stores[2], "--no-encryption"]
        said = look(words, tmp_path, capfdbinary)
        assert [one for one in in_any_form() if one in said] == []


CHANGES = [
    ["delete", "KEY", "--ignore-store-read-error-with-cluster-breaking-potential"],
    ["fix", "KEY"],
    ["fix", "KEY", "--from", "revision:2"],
    ["fix", "KEY", "--from", "candidate:none.yaml"],
]


@pytest.mark.parametrize("words", CHANGES, ids=lambda words: words[0])
@pytest.mark.parametrize("form", FORMS)
def test_refusals_do_not_show_it(
    stores: list[list[str]], words: list[str], form: str, tmp_path: Path, capfdbinary: CapturedBytes
) -> None:
    places = ["--backup-dir", str(tmp_path / "b"), "--audit-log", str(tmp_path / "audit.jsonl")]
    for key in (*HOSTILE, KEY + b"*", KEY + b"/"):
        command = [word.replace("KEY", os.fsdecode(key)) for word in words]
        said = look(
            [*command, *stores[0], "--no-encryption", "--reason", "x", "--yes", "-o", form, *places],
            tmp_path,
            capfdbinary,
        )
        assert [one for one in in_any_form() if one in said] == []
    log = tmp_path / "audit.jsonl"
    assert not log.exists() or TOKEN not in log.read_bytes()


def test_a_key_of_that_name_below_the_prefix_is_shown(
    stores: list[list[str]], tmp_path: Path, capfdbinary: CapturedBytes
) -> None:
    """A namespace may be called bootstrap: its objects must be found, and commands must name them."""
    key = "/registry/secrets/bootstrap/c0ffee123456"
    said = look(["explain", key, *stores[2], "--no-encryption"], tmp_path, capfdbinary)
    assert key.encode() in said
