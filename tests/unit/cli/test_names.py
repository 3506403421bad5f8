"""Each line of ``scan -o name`` is a word that commands take; and ``etcdfix compare`` with snapshots."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.text.commands import ACKNOWLEDGEMENT
from tests.support.bbolt_writer import database, put
from tests.support.fixtures import Captured, Patch
from tests.support.objects import namespace_object

HOSTILE = [
    b"plain", "café".encode(), b" both ends ", b"-rf", b"--help", b"$(reboot);`id`&|<>'\"", b"100%25", b"*",
    b"a[b]?", b"base64:AAAA", b"a\nb", b"a\x00b", b"a\x1b[2Jb", b"\xff\xfe", "a\u202eb".encode(),
    "a\u2028b".encode(), b"x" * 600,
]  # fmt: skip
KEYS = sorted([*(b"/registry/secrets/shop/" + name for name in HOSTILE), b"/registry/secrets/shop/"])
NOBODY = ("--endpoints", "127.0.0.1:1", "--dial-timeout", "50ms", "-o", "json")
Read = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> str:
    broken = b"k8s:enc:aescbc:v1:key1:short"
    held = [(b"/registry/namespaces/kube-system", namespace_object("kube-system"))]
    held += [(key, broken) for key in KEYS]
    path = tmp_path_factory.mktemp("names") / "db"
    path.write_bytes(database([put(number, key, value) for number, (key, value) in enumerate(held, start=2)]))
    return str(path)


@pytest.fixture
def names(command: Read, snapshot: str) -> list[str]:
    _code, out, _err = command("scan", "--snapshot", snapshot, "-o", "name")
    assert out.endswith("\n")
    return out[:-1].split("\n")


def key_of(found: dict[str, Any]) -> bytes:
    encoded = found.get("key_base64")
    return base64.b64decode(encoded) if encoded else found["key"].encode()


def test_a_line_is_a_word_for_each_key(names: list[str]) -> None:
    assert len(names) == len(KEYS)
    assert all(name.isprintable() and name.startswith(("/", "base64:")) for name in names)


@pytest.mark.parametrize(
    ("words", "key_in"),
    [
        (["explain", "-o", "json"], lambda report: report["finding"]),
        (["explain", "--history", "-o", "json"], lambda report: report),
        (["explain", "--impact", "-o", "json"], lambda report: report["impact"]["object"]),
        (["copies", "-o", "json"], lambda report: report["objects"][0]),
    ],
    ids=["explain", "history", "impact", "copies"],
)
def test_who_looks_at_one_key_takes_it(
    command: Read, snapshot: str, names: list[str], words: list[str], key_in: Callable[[Any], dict[str, Any]]
) -> None:
    for name, key in zip(names, KEYS, strict=True):
        code, out, err = command(words[0], "--snapshot", snapshot, *words[1:], name)
        assert code in {0, 1, 3}, err
        assert key_of(key_in(json.loads(out))) == key


def test_delete_takes_it(command: Read, names: list[str]) -> None:
    """Once the key is known, etcd is asked."""
    for name, key in zip(names, KEYS, strict=True):
        code, out, err = command("delete", name, "--reason", "x", "--dry-run", ACKNOWLEDGEMENT, *NOBODY)
        assert code == 5, err
        assert key_of(json.loads(out)) == key


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
