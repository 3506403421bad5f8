"""Options that changes share: one key, places that are there, outcomes, and a safe way to etcd."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import click
import pytest

from etcdfix.cli.changing import acceptances, change_exit_code, require_reason
from etcdfix.cli.keys import one_key
from etcdfix.cli.options import _Word
from etcdfix.cli.root import run
from etcdfix.model.errors import ConfigurationError, RefusedByRule
from etcdfix.model.rules import MEANINGS, NAMED, Rule
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Link, Result
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.text.commands import ACKNOWLEDGEMENT
from tests.support.audit_logs import entry, own_directory
from tests.support.collecting import ALPHA
from tests.support.fixtures import Captured, Patch

pytestmark = pytest.mark.usefixtures("no_variables")


UNTYPED: dict[str, Any] = {"etcd_prefix": None}


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("/registry/secrets/shop/web", b"/registry/secrets/shop/web"),
        (os.fsdecode(b"/registry/\xff"), b"/registry/\xff"),
        ("/registry/café", "/registry/café".encode()),
        (f"base64:{base64.b64encode(b'/a*/').decode()}", b"/a*/"),
        (f"base64:{base64.b64encode(b'no-slash').decode()}", b"no-slash"),
    ],
)
def test_one_key(key: str, found: bytes) -> None:
    assert one_key(key, UNTYPED) == found


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("base64:L2E", ConfigurationError), ("base64:L2E=\n", ConfigurationError), ("base64:", RefusedByRule),
        ("", RefusedByRule), ("a", RefusedByRule), ("/a/", RefusedByRule), ("/a*", RefusedByRule),
        ("/a?", RefusedByRule), ("/a[", RefusedByRule),
    ],
)  # fmt: skip
def test_not_one_key(key: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        one_key(key, UNTYPED)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("no/one", "/registry/minions/one"),
        ("secret/db", "etcdfix explain secret/db -n NAMESPACE"),
        ("bootstrap/c0ffee123456", "etcdfix explain 'bootstrap/<withheld>' -n NAMESPACE"),
        ("registry/secrets/shop/db", "name exactly one key, in full"),
        ("secret,cm/db", "name exactly one key, in full"),
    ],
)
def test_a_change_takes_no_other_name_than_the_key(word: str, hint: str) -> None:
    with pytest.raises(RefusedByRule, match="is not a key: keys start with /") as caught:
        one_key(word, UNTYPED)
    assert hint in caught.value.hint


def test_the_key_to_type_is_of_the_storage_prefix() -> None:
    with pytest.raises(RefusedByRule) as caught:
        one_key("no/one", {"etcd_prefix": "/kubernetes.io"})
    assert caught.value.hint.endswith(": /kubernetes.io/minions/one")


def test_empty_reason() -> None:
    with pytest.raises(click.UsageError, match="--reason is empty"):
        require_reason({"reason": "\n\t"})


def test_acceptances() -> None:
    assert acceptances({"accepted_words": ()}) == Acceptances()
    words = ("unchecked-member=m1", "only-copy", "only-copy")
    given = acceptances({"accepted_words": words, "key_lost": "aescbc/v1/key1"})
    assert given.as_flags() == (
        "--accept unchecked-member=m1", "--accept only-copy", "--declare-key-lost aescbc/v1/key1"
    )  # fmt: skip
    assert (given.accepts(Rule.ONLY_COPY), given.accepts(Rule.UNCHECKED_MEMBER)) == (True, False)
    assert given.named(Rule.UNCHECKED_MEMBER) == ("m1",)


@pytest.mark.parametrize(
    ("result", "head", "code"),
    [
        (None, True, 0), (Result.DELETED, True, 0), (Result.UNDONE, True, 0), (Result.FIXED, True, 0),
        (Result.DELETED, False, 3), (Result.NOT_APPLIED, True, 3), (Result.APPLIED_OR_GONE, True, 3),
        (Result.UNKNOWN, True, 3), (Result.ANOMALY, True, 3),
    ],
)  # fmt: skip
def test_exit_code(result: Result | None, code: int, *, head: bool) -> None:
    link = Link(1, "ab" * 32) if head else None
    assert change_exit_code(ChangeOutcome(result=result, detail="", audit_log=Path("log"), head=link)) == code


_CLUSTER = {"no-api-server", "unknown-cluster", "unknown-release", "unchecked-member=NAME"}
_REPLACED = {
    "cluster-breaking", "unproven-damage", "newer-than-known", "mass-damage", "only-copy", "undeployed-write-key",
}  # fmt: skip
_DELETED = {*_REPLACED, "ends-cached-reads", "other-cluster-id"}
WORDS: dict[str, tuple[list[str], set[str]]] = {
    "delete": (["delete", "/x", ACKNOWLEDGEMENT, "--reason", "x"], {*_DELETED, *_CLUSTER}),
    "fix": (
        ["fix", "/x", "--reason", "x"],
        {
            *_REPLACED, "unproven-repair", "unlisted-source", "unknown-uid",
            "expired-lease", "other-cluster-id", "unchecked-server=URL", *_CLUSTER,
        },
    ),
    "undo": (
        ["undo", "b", "--reason", "x"],
        {"cluster-breaking", "unlisted-source", "expired-lease", "other-cluster-id", *_CLUSTER},
    ),
    "plan --run": (
        ["plan", "--run", "p", ACKNOWLEDGEMENT, "--reason", "x"],
        {*_DELETED, "unproven-repair", "unknown-uid", "expired-lease", *_CLUSTER},
    ),
    "log settle": (["log", "settle", "l"], {"unknown-cluster", "other-cluster-id"}),
    "log prune": (["log", "prune", "--older-than", "9d", "--reason", "x"], {"only-copy"}),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_a_word_that_no_check_of_a_command_asks_for_is_a_usage_error(capfd: Captured, name: str) -> None:
    arguments, known = WORDS[name]
    every = {f"{rule}={NAMED[rule]}" if rule in NAMED else rule.value for rule in MEANINGS}
    wrong = {*(every - known), "all", "", "*", *(f"{word}=x" for word in known if "=" not in word)}
    wrong |= {word.partition("=")[0] for word in known if "=" in word}
    wrong |= {word.partition("=")[0] + "=" for word in known if "=" in word} | {Rule.READABLE.value}
    for word in wrong:
        assert run([*arguments, "--accept", word]) == 2
        (line,) = [told for told in capfd.readouterr().err.splitlines() if told.startswith("Error")]
        assert line.startswith(f"Error: Invalid value for '--accept': {word!r} is not a word of this command")
        assert set(line.rpartition("which knows ")[2].removesuffix(".").split(", ")) == known


@pytest.mark.parametrize("name", WORDS)
def test_what_a_change_would_refuse_is_not_offered(capfd: Captured, name: str) -> None:
    changes_kine = name in {"fix", "plan --run", "log settle"}
    for option in ("--snapshot", "--revision", "--namespace", *([] if changes_kine else ["--kine"])):
        assert run([*WORDS[name][0], option, "1"]) == 2
        assert "Error: No such option" in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("url", ["http://one:6443", "one:6443", "https://", "https://one?x=1"])
def test_a_server_that_has_no_such_address_is_a_usage_error(capfd: Captured, url: str) -> None:
    assert run([*WORDS["fix"][0], "--accept", f"unchecked-server={url}"]) == 2
    told = f"Invalid value for '--accept': unchecked-server={url}: not the address of an API server"
    assert told in capfd.readouterr().err


def test_a_server_is_accepted_by_the_address_that_it_is_known_by() -> None:
    given = _Word((Rule.UNCHECKED_SERVER,)).convert("unchecked-server=https://one:6443/", None, None)
    assert given == "unchecked-server=https://one:6443"


@pytest.mark.parametrize("text", ["", "ab", "sha256:", "sha256:" + "g" * 64, "AB" * 32, "0" * 65])
@pytest.mark.parametrize(
    ("name", "option"),
    [("delete", "--expect-value-sha256"), ("undo", "--expect-value-sha256"), ("plan --run", "--expect-plan")],
)
def test_what_is_no_digest_is_a_usage_error(capfd: Captured, name: str, option: str, text: str) -> None:
    assert run([*WORDS[name][0], option, text]) == 2
    assert f"Invalid value for '{option}': {text!r} is not a digest" in capfd.readouterr().err


KEY = "/registry/secrets/shop/db"
REST = ["--endpoints", "127.0.0.1:1"]
FILES = ("snapshot", "backup", "object", "candidate")
NO_FILE = "it cannot be read: no such file or directory"


@pytest.mark.parametrize(
    ("place", "what"),
    [
        *((f"{kind}:{{folder}}", "it is a directory, not a file") for kind in FILES),
        *((f"{kind}:{{folder}}/none", NO_FILE) for kind in (*FILES, "log")),
        ("snapshot:{file}/inside", NO_FILE),
        ("log:{file}", "it is a file, not a directory"),
        ("log:{file}#7", "it is a file, not a directory"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["fix", KEY, "--reason", "a b", "--dry-run"], "--from"),
        (["fix", KEY, "--reason", "a b"], "--in"),
        (["explain", KEY], "--in"),
        (["copies"], "--in"),
    ],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_what_is_not_there_is_a_usage_error(
    tmp_path: Path, capfd: Captured, command: list[str], option: str, place: str, what: str
) -> None:
    (tmp_path / "file").touch()
    word = place.format(folder=tmp_path, file=tmp_path / "file")
    assert run([*command, option, word, *REST]) == 2
    told, hint = capfd.readouterr().err.splitlines()
    kind, _, path = word.partition("#")[0].partition(":")
    assert told == f"etcdfix: {option} {kind}: {path}: {what}"
    assert hint == f"  next: write {kind}:{'DIR[#ENTRY]' if kind == 'log' else 'FILE'}"


def test_a_key_in_another_option_is_not_repeated(capfd: Captured) -> None:
    typed = base64.b64encode(b"\x07" * 32).decode()
    assert run(["fix", KEY, "--reason", "x", "--from", "object:none", "--encryption-config", typed]) == 2
    assert typed not in capfd.readouterr().err


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
