"""What is printed is pasted into a shell as it is, on a machine with one disk that holds etcd's data, too.

For each cause in alpha, restored into a live etcd. What is in capitals is filled in: a reason, a configuration.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from etcdfix.cli.root import run
from etcdfix.testing.servers import EtcdServer
from tests.support.collecting import ALPHA
from tests.support.documented_commands import check
from tests.support.fixtures import StartEtcd
from tests.support.kms_plugin import KMSPlugin, load_keks
from tests.support.pasted import own_var_lib, programs
from tests.support.thorough import some

pytestmark = pytest.mark.etcd

# With every encryption key: outcome, cause, and from where it is put back; "" where nothing of etcdfix does.
CAUSES: Final = (
    ("decrypt-failure", "ciphertext-damaged", "bit"), ("decrypt-failure", "key-renamed", ""),
    ("decrypt-failure", "kms-envelope-damaged", "bit"), ("decrypt-failure", "nonce-damaged", "bit"),
    ("decrypt-failure", "unknown-envelope", ""), ("decrypt-failure", "value-moved", ""),
    ("decrypt-failure", "value-truncated", "revision"), ("decode-failure", "empty-value", "revision"),
    ("decode-failure", "iv-damaged", "bit"), ("decode-failure", "kind-missing", "revision"),
    ("decode-failure", "kind-not-registered", ""), ("decode-failure", "magic-damaged", "bit"),
    ("decode-failure", "protobuf-damaged", "revision"), ("decode-failure", "trailing-bytes", "bit"),
    ("decode-failure", "unknown-encoding", ""), ("decode-failure", "value-truncated", "revision"),
    ("decode-failure", "wrong-kind-for-key", ""), ("decode-failure", "zeroed-value", "revision"),
    ("inconsistent", "identity-mismatch", ""), ("inconsistent", "raw-json-invalid", ""),
)  # fmt: skip
# What a command says of what it found; a change, or its dry run, must go through.
CODES: Final = {"scan": {0, 1, 3}, "explain": {0, 1, 3}, "copies": {0, 1, 3}, "get": {0, 1}}
CHANGES: Final = ("delete", "fix")


class Shell:
    def __init__(self, folder: Path, etcd: EtcdServer) -> None:
        self.folder = folder
        self.var_lib = folder / "var-lib"
        (self.var_lib / "etcd" / "member").mkdir(parents=True)
        (folder / "home").mkdir()
        self._path = f"{programs(folder / 'bin')}:/usr/bin:/bin"
        self.source: Sequence[str] = ("--endpoints", etcd.endpoint)
        self.reading: dict[str, list[str]] = {}

    def paste(self, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        prefix = own_var_lib(self.var_lib)
        assert prefix is not None
        return subprocess.run(
            [*prefix, "bash", "-c", line],
            cwd=self.folder,
            env={"HOME": str(self.folder / "home"), "PATH": self._path, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def look(self, command: str, *words: str, keys: str = "all") -> dict[str, Any]:
        target = self.folder / "report.json"
        given = [command, *words, *self.source, *self.reading[keys]]
        assert run([*given, "-o", "json", "--output-file", str(target)]) in {0, 1, 3}
        document: dict[str, Any] = json.loads(target.read_bytes())
        target.unlink()
        return document


@pytest.fixture(scope="module")
def shell(start_etcd: StartEtcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("machine")
    if own_var_lib(folder) is None:
        if os.environ.get("ETCDFIX_REQUIRE_APART") == "1":
            pytest.fail("no mount namespace can be made here")
        pytest.skip("no mount namespace can be made here")
    made = Shell(folder, start_etcd(snapshot=ALPHA / "snapshot.db.gz"))
    with (
        KMSPlugin("v2", folder / "1.sock", load_keks(ALPHA / "kms1.keys")) as new,
        KMSPlugin("v1", folder / "2.sock", load_keks(ALPHA / "kms2.keys")) as old,
    ):
        plugins = [f"--kms-endpoint=kmsnew={new.endpoint}", f"--kms-endpoint=kmsold={old.endpoint}"]
        every_key = folder / "every-key.yaml"
        every_key.write_text(yaml.safe_dump(_with_every_key()))
        lost = ALPHA / "config-lost.yaml"
        made.reading = {
            "all": ["--encryption-config", str(every_key), *plugins],
            "lost": ["--encryption-config", str(lost), plugins[0]],
        }
        yield made


def _with_every_key() -> dict[str, Any]:
    today = yaml.safe_load((ALPHA / "config-lost.yaml").read_text())
    providers = today["resources"][0]["providers"]
    for name in ("write-cbc-key2.yaml", "write-kmsv1.yaml"):
        first = yaml.safe_load((ALPHA / name).read_text())["resources"][0]["providers"][0]
        if "aescbc" in first:
            providers[0]["aescbc"]["keys"].append(first["aescbc"]["keys"][0])
        else:
            providers.insert(-1, first)
    found: dict[str, Any] = today
    return found


@pytest.fixture(scope="module")
def findings(shell: Shell) -> dict[tuple[str, str], dict[str, Any]]:
    scanned = shell.look("scan")["findings"]
    (waiting,) = (finding for finding in scanned if finding["outcome"] == "undetermined")
    fixes = (c for c in commands(shell.look("explain", waiting["key"])["remedies"]) if _from(c) == "bit")
    fix = next(fixes)
    for line in (fix, fix.replace(" --dry-run", " --yes")):
        done = shell.paste(filled(line, shell))
        assert done.returncode == 0, done.stderr
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for finding in scanned:
        if finding["cause"] is not None and finding is not waiting:
            found.setdefault((finding["outcome"], finding["cause"]), finding)
    return found


def commands(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            if name != "note":
                yield from commands(part)
    elif isinstance(value, list):
        for part in value:
            yield from commands(part)
    elif isinstance(value, str) and value.startswith("etcdfix "):
        yield value


def _is(command: str, *names: str) -> bool:
    return shlex.split(command)[1] in names


def _from(command: str) -> str:
    words = shlex.split(command)
    return words[words.index("--from") + 1].partition(":")[0] if words[1] == "fix" else ""


def filled(command: str, shell: Shell) -> str:
    command = command.replace("--reason REASON", "--reason 'ticket 4711'").replace("X.Y", "1.36")
    command = command.replace("--encryption-config FILE", shlex.join(shell.reading["all"][:2]))
    return re.sub(r" --(?:in (?:log:DIR|snapshot:FILE)|kubeconfig FILE)", "", command)


def pasted(shell: Shell, command: str) -> None:
    line = filled(command, shell)
    name = shlex.split(line)[1]
    if name == "rescue" or _from(line) == "memory":  # they ask API servers, of which there are none here
        check(shlex.split(command))
    elif name in CHANGES:
        done = shell.paste(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    else:
        # What is behind a pipe is for an API server.
        assert run(shlex.split(line.partition(" | ")[0])[1:]) in CODES.get(name, {0}), line


def test_these_are_all_causes(findings: dict[tuple[str, str], dict[str, Any]]) -> None:
    assert set(findings) == {(outcome, cause) for outcome, cause, _ in CAUSES}


@pytest.mark.parametrize(("outcome", "cause", "way"), some(CAUSES, of=7))
def test_every_printed_command_goes_through(
    outcome: str, cause: str, way: str, shell: Shell, findings: dict[tuple[str, str], dict[str, Any]]
) -> None:
    finding = findings[outcome, cause]
    key = finding["key"]
    documents = [shell.look(command, key) for command in ("explain", "copies")]
    printed = list(dict.fromkeys(commands([*documents, finding])))
    if cause == "value-moved":
        # The etcd key that it belongs to holds a value: nothing can be put back there.
        assert not [command for command in printed if _from(command) == "key"]
    assert printed
    for command in printed:
        pasted(shell, command)
        if _is(command, "delete") and "--accept" in command:
            # Without the words that accept something it is refused, and what the refusal prints goes through, too.
            done = shell.paste(re.sub(r" --accept [a-z-]+", "", filled(command, shell)))
            assert done.returncode == 4, command
            others = re.findall(r"etcdfix explain [^;\n]+", done.stderr)
            assert others
            for other in others:
                pasted(shell, other)
    changes = [filled(c, shell) for c in commands(documents[0]["remedies"]) if _from(c) not in {"", "memory"}]
    assert [_from(command) for command in changes][:1] == ([way] if way else [])
    if way:
        made = changes[0].replace(" --dry-run", " --yes")
        done = shell.paste(made)
        assert done.returncode == 0, f"{made}\n{done.stderr}"
        warned = [line for line in (done.stdout + done.stderr).splitlines() if "same disk as etcd" in line]
        assert len(warned) == 1
        assert run(["scan", key, *shell.source, *shell.reading["all"]]) == 0


def test_what_a_snapshot_prints_needs_only_to_be_told_where_etcd_is(
    shell: Shell, findings: dict[tuple[str, str], dict[str, Any]]
) -> None:
    target = shell.folder / "of-a-file.json"
    key = findings["decode-failure", "kind-not-registered"]["key"]  # no other test writes it anew
    words = [key, "--snapshot", str(ALPHA / "snapshot.db.gz"), *shell.reading["all"]]
    assert run(["explain", *words, "-o", "json", "--output-file", str(target)]) == 1
    printed = [c for c in commands(json.loads(target.read_bytes())) if _is(c, "delete")]
    (line,) = (filled(command, shell) for command in printed)
    assert shell.paste(line, ETCDCTL_ENDPOINTS=shell.source[1]).returncode == 0
