"""Our own files are known by their ends, however damaged they are between them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.apiserver.memory import Identity
from etcdfix.apiserver.objects import APIObject
from etcdfix.cli.root import run
from etcdfix.copies.rescued import INDEX_NAME
from etcdfix.inputs.ownfiles import OwnFile, own_file
from etcdfix.remediation.saved_objects import RescueStore
from tests.support.audit_logs import delete_with, own_directory, write_log
from tests.support.collecting import ALPHA

SNAPSHOT = str(ALPHA / "snapshot.db.gz")
WHERE = ["--snapshot", SNAPSHOT, "--encryption-config", str(ALPHA / "config-lost.yaml")]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = own_directory(tmp_path / "state")
    for name in ("one", "two"):
        own_directory(folder / name)
    delete_with(folder)
    write_log(folder / "long.jsonl", pairs=30)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    report, plan = str(folder / "report.json"), str(folder / "plan.json")
    run(["scan", *WHERE, "secrets", "-o", "json", "--output-file", report])
    run(["plan", *WHERE, "--from-report", report, "-o", "json", "--output-file", plan])
    return folder


@pytest.fixture
def plan(made: Path, tmp_path: Path) -> Path:
    for name in ("report.json", "plan.json"):
        shutil.copy(made / name, tmp_path)
    return tmp_path / "plan.json"


def kind(path: Path) -> OwnFile | None:
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        return own_file(directory, path.name)
    finally:
        os.close(directory)


def backup(state: Path) -> Path:
    return next((state / "one").glob("*.json"))


def test_whole_files(state: Path, plan: Path) -> None:
    assert kind(state / "audit.jsonl") is OwnFile.AUDIT_LOG
    assert kind(state / "audit.jsonl.head") is OwnFile.HEAD
    assert kind(backup(state)) is OwnFile.BACKUP
    assert kind(plan) is OwnFile.PLAN
    assert kind(plan.with_name("report.json")) is None


def test_nothing_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (
        b"",
        b"\n",
        b"last night",
        b'{"kind":"ScanReport","note":"\\"etcdfix.io/sequence\\":\\"1\\""}',
        b'etcdfix.io/sequence":"1" in a table\n',
        b'{"kind":"DeletionPlan"}',
        b'{"message":"{\\"kind\\":\\"EncryptionConfiguration\\"}"}',
        b"the file has no kind: EncryptionConfiguration was expected\n",
        b"kind: EncryptionConfigurationReport\n",
        bytes(range(256)) * 20_000,
    ):
        path.write_bytes(data)
        assert kind(path) is None


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "middle": lambda raw: raw[:64] + bytes(len(raw) - 160) + raw[-96:],
    "first line gone": lambda raw: bytes(raw.index(b"\n")) + raw[raw.index(b"\n") :],
    "last line torn": lambda raw: raw[:-30],
    "only a torn line": lambda raw: raw[:200],
    "first sectors zeroed": lambda raw: bytes(512) + raw[512:],
    "later records are huge": lambda raw: raw + b"x" * (3 << 20),
}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_is_still_a_log(state: Path, tmp_path: Path, damage: str, *, alone: bool) -> None:
    log = state / "long.jsonl"
    damaged = DAMAGES[damage](log.read_bytes())
    if alone:
        log = tmp_path / "alone"
    log.write_bytes(damaged)
    assert kind(log) is OwnFile.AUDIT_LOG


def test_a_log_of_noise_is_known_by_its_head_file(state: Path) -> None:
    log = state / "audit.jsonl"
    log.write_bytes(bytes(len(log.read_bytes())))
    assert kind(log) is OwnFile.AUDIT_LOG


def test_a_damaged_head_file_is_known_by_its_log(state: Path) -> None:
    head = state / "audit.jsonl.head"
    head.write_bytes(b"3:zz\n")
    assert kind(head) is OwnFile.HEAD
    head.write_bytes(b"")
    assert kind(head) is OwnFile.HEAD


@pytest.mark.parametrize("damage", ["middle", "last line torn", "first sectors zeroed"])
def test_a_damaged_backup_is_still_a_backup(state: Path, damage: str) -> None:
    path = backup(state)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert kind(path) is OwnFile.BACKUP


def test_a_backup_of_another_version_is_one_too(state: Path) -> None:
    path = backup(state)
    path.write_bytes(path.read_bytes().replace(b"etcdfix.backup/v1", b"etcdfix.backup/v9"))
    assert kind(path) is OwnFile.BACKUP


@pytest.mark.parametrize("damage", ["last line torn", "only a torn line"])
def test_a_damaged_plan_is_still_a_plan(plan: Path, damage: str) -> None:
    plan.write_bytes(DAMAGES[damage](plan.read_bytes()))
    assert kind(plan) is OwnFile.PLAN


def test_nothing_is_read_through_a_link(state: Path) -> None:
    (state / "link").symlink_to("audit.jsonl")
    with pytest.raises(OSError, match="symbolic links"):
        kind(state / "link")


@pytest.mark.parametrize(
    "data",
    [
        b"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n",
        b"kind: 'EncryptionConfiguration'  # all nodes\r\nresources: []\r\n",
        b'{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[]}',
        b'{\n  "kind" : "EncryptionConfiguration"\n}',
        b"kind: EncryptionConfig\napiVersion: v1\n",
        b"resources:\n" + b"# a long comment\n" * 80_000 + b"kind: EncryptionConfiguration\n",
    ],
)
def test_an_encryption_configuration_whoever_made_it(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert kind(path) is OwnFile.CONFIGURATION


class TestOnTheCommandLine:
    def test_no_report_replaces_an_encryption_configuration(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lost, current, merged = (
            ALPHA / "config-lost.yaml",
            ALPHA / "config-rotated.yaml",
            tmp_path / "merged.yaml",
        )
        log = own_directory(tmp_path / "log") / "audit.jsonl"
        files = ["encryption", "merge", str(current), str(lost)]
        assert run([*files, "--output-file", str(merged), "--audit-log", str(log)]) == 0
        before = merged.read_bytes()
        assert run(["scan", *WHERE, "--output-file", str(merged)]) == 2
        assert "is an EncryptionConfiguration, which is never written over" in capsys.readouterr().err
        assert merged.read_bytes() == before

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("audit.jsonl", ["scan"]),
            ("audit.jsonl.head", ["namespace", "shop"]),
            ("a backup", ["explain", "/registry/pods/a/b", "--impact"]),
            ("a backup", ["encryption", "usage"]),
        ],
    )
    def test_no_report_replaces_a_record(
        self, state: Path, capsys: pytest.CaptureFixture[str], name: str, words: list[str]
    ) -> None:
        path = backup(state) if name == "a backup" else state / name
        before = path.read_bytes()
        assert run([*words, "--snapshot", SNAPSHOT, "--output-file", str(path)]) == 2
        assert "of etcdfix, which is never written over" in capsys.readouterr().err
        assert path.read_bytes() == before

    def test_only_a_plan_replaces_a_plan(self, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
        plan.chmod(0o644)
        before = plan.stat()
        report = str(plan.with_name("report.json"))
        for words in (
            ["scan", *WHERE, "-o", "json"],
            ["plan", *WHERE, "--from-report", report],  # a table
        ):
            assert run([*words, "--output-file", str(plan)]) == 2
            assert f"--output-file {plan} is a plan of etcdfix" in capsys.readouterr().err
            assert (plan.stat().st_ino, plan.stat().st_size) == (before.st_ino, before.st_size)
        run(["plan", *WHERE, "--from-report", report, "-o", "json", "--output-file", str(plan)])
        assert plan.stat().st_ino != before.st_ino
        assert plan.stat().st_mode & 0o777 == 0o600

    def test_a_baseline_is_not_written_over(self, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
        report = plan.with_name("report.json")
        before = report.read_bytes()
        words = ["scan", "--snapshot", SNAPSHOT, "--baseline", str(report), "-o", "json"]
        assert run([*words, "--output-file", str(report)]) == 2
        assert "is a file that this command reads" in capsys.readouterr().err
        assert report.read_bytes() == before


def test_what_was_saved_from_api_servers_is_never_written_over(tmp_path: Path) -> None:
    with RescueStore.open(own_directory(tmp_path / "saved")) as store:
        identity = Identity(
            version="v1", kind="Secret", namespace="a", name="b", uid="u", resource_version="7"
        )
        saved = store.save(
            b"/registry/secrets/a/b",
            APIObject("", "v1", "secrets", "a", "b"),
            identity,
            b"{}",
            server="https://one",
        )
    assert kind(tmp_path / "saved" / INDEX_NAME) is OwnFile.RESCUE_INDEX
    path = tmp_path / "saved" / saved.file
    assert kind(path) is OwnFile.RESCUED
    assert run(["scan", *WHERE, "secrets", "-o", "json", "--output-file", str(path)]) == 2
    assert path.read_bytes() == b"{}"
