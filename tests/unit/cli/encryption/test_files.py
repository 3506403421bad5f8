"""``etcdfix encryption check``, ``diff`` and ``merge``: codes, files, records, and no key in any output."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.encryption.config import load_configuration
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from etcdfix.remediation.errors import NotDurable
from tests.support.audit_logs import own_directory
from tests.support.fixtures import Captured, Patch
from tests.support.objects import IDENTITY, configuration_yaml, provider

KEY, OTHER = bytes(range(200, 232)), b"\x9c\x01\xf3\x44\xab\x20\x71\x5e" + bytes(range(70, 94))
SECRETS = [base64.b64encode(key).decode() for key in (KEY, OTHER)] + [key.hex() for key in (KEY, OTHER)]


@pytest.fixture(autouse=True)
def _no_variables(no_variables: None) -> None:
    """Nothing is taken from the environment."""


def written(path: Path, *providers: dict[str, object]) -> Path:
    path.write_bytes(configuration_yaml(*providers))
    path.chmod(0o600)
    return path


def assert_no_keys(*texts: str) -> None:
    for text in texts:
        assert not any(secret[:16] in text for secret in SECRETS)


class Merge:
    """Two files, and where the one that is made of them and its record go."""

    def __init__(self, folder: Path) -> None:
        self.today = written(folder / "today.yaml", provider("aescbc", k=KEY), IDENTITY)
        self.older = written(folder / "older.yaml", provider("aescbc", k=OTHER))
        self.log = own_directory(folder / "log") / "audit.jsonl"
        self.output = folder / "merged.yaml"

    def run(
        self, *files: Path, output: Path | None = None, log: Path | None = None, form: str = "text"
    ) -> int:
        names = map(str, files or (self.today, self.older))
        target, record = str(output or self.output), str(log or self.log)
        return run(
            ["encryption", "merge", *names, "--output-file", target, "--audit-log", record, "-o", form]
        )


@pytest.fixture
def merge(tmp_path: Path) -> Merge:
    return Merge(tmp_path)


def test_merge(merge: Merge, capfd: Captured) -> None:
    assert merge.run(form="json") == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert stat.S_IMODE(merge.output.stat().st_mode) == 0o600
    assert load_configuration(merge.output).sha256 == report["output"]["sha256"]
    assert [decision["decision"] for decision in report["decisions"]] == ["same-name-other-bytes"]
    keys = [key["transformer"] for key in report["rules"][0]["keys"]]
    assert keys == ["aescbc/v1/k", "aescbc/v1/k", "identity"]
    (event,) = read_records(merge.log)
    assert report["audit_record"] == {
        "path": str(merge.log), "sequence": 1, "hash": f"sha256:{event.link.sha256}",
    }  # fmt: skip
    assert (event.verb, event.type) == ("merge-configurations", "merge-configurations")
    for digest in [*(file["sha256"] for file in report["files"]), report["output"]["sha256"]]:
        assert digest in (event.detail or "")
    assert verify(merge.log).state is ChainState.WHOLE
    assert_no_keys(out, err, merge.log.read_text())


def test_nothing_that_is_there_is_written_over(merge: Merge, tmp_path: Path, capfd: Captured) -> None:
    before = merge.today.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for output in (merge.today, merge.older, link, tmp_path, Path("/dev/stdout"), Path("-")):
        assert merge.run(output=output) == 2
        assert "name a new file" in capfd.readouterr().err
    assert merge.today.read_bytes() == before
    assert not merge.log.exists()


def test_without_the_record_that_was_asked_for_nothing_is_written(
    merge: Merge, tmp_path: Path, capfd: Captured
) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    assert merge.run(log=loose / "audit.jsonl") != 0
    assert not merge.output.exists()
    assert not list(tmp_path.glob(".etcdfix*"))
    assert_no_keys(*capfd.readouterr())


@pytest.mark.parametrize("suffix", ["", ".head", ".reserve"])
@pytest.mark.parametrize("linked", [False, True])
def test_output_is_not_log(merge: Merge, tmp_path: Path, capfd: Captured, suffix: str, linked: bool) -> None:
    (tmp_path / "link").symlink_to(merge.log.parent)
    folder = tmp_path / "link" if linked else merge.log.parent
    assert merge.run(output=folder / (merge.log.name + suffix)) == 2
    assert "is the audit log, or a file that belongs to it" in capfd.readouterr().err
    assert not list(merge.log.parent.iterdir())


@pytest.mark.parametrize("failing", ["write_fully", "AuditLog._write_head"])
def test_file_that_could_not_be_recorded_is_not_there(merge: Merge, monkeypatch: Patch, failing: str) -> None:
    def fail(*_: object) -> None:
        raise NotDurable("no space", path=merge.log)

    assert merge.run(output=merge.output.with_name("first.yaml")) == 0
    with monkeypatch.context() as full:
        full.setattr(f"etcdfix.remediation.audit.log.{failing}", fail)
        assert merge.run() == 4
    assert not merge.output.exists()
    assert not [*merge.output.parent.glob(".etcdfix*")]
    assert merge.run() == 0
    assert verify(merge.log).state is ChainState.WHOLE


def test_merge_refuses_what_api_servers_refuse(merge: Merge, tmp_path: Path, capfd: Captured) -> None:
    bad = written(tmp_path / "bad.yaml", provider("aescbc", k=KEY[:15]))
    for files in ([merge.today, bad], [merge.today]):
        assert merge.run(*files) == 2
        assert_no_keys(*capfd.readouterr())
    assert not merge.output.exists()
    assert not merge.log.exists()


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("form", ["base64", "two slashes", "hex"])
def test_a_key_in_the_place_of_a_file_is_not_repeated(
    merge: Merge, capfd: Captured, size: int, form: str
) -> None:
    key = (b"\xff" * 3 + KEY if form == "two slashes" else KEY)[:size]
    typed = key.hex() if form == "hex" else base64.b64encode(key).decode()
    today, merged = str(merge.today), ["--output-file", str(merge.output), "--audit-log", str(merge.log)]
    for words in (
        ["encryption", "try", "--snapshot", "none.db", "--no-encryption", "--in", f"candidate:{typed}"],
        ["encryption", "what-if", "--snapshot", "none.db", "--no-encryption", "--new", typed],
        ["encryption", "check", today, typed],
        ["encryption", "merge", today, typed, *merged],
        ["scan", "--snapshot", "none.db", "--encryption-config", typed],
    ):
        assert run(words) == 2, words
        told = "".join(capfd.readouterr())
        assert "bytes withheld>: it cannot be read: no such file or directory" in told, words
        assert typed[-12:] not in told


def test_several_files_are_checked_and_compared(merge: Merge, capfd: Captured) -> None:
    def checked(*files: Path) -> tuple[int, dict[str, Any]]:
        code = run(["encryption", "check", *map(str, files), "-o", "json"])
        out, err = capfd.readouterr()
        assert_no_keys(out, err)
        return code, json.loads(out)

    code, alike = checked(merge.older, merge.older)
    assert (code, alike["compared"]) == (0, True)
    code, report = checked(merge.today, merge.older)
    found = [(one["check"], one["level"], one["files"], one["lacks"]) for one in report["findings"]]
    assert (code, found[0]) == (1, ("written-not-read", "error", [0], [1]))
    refused = written(merge.today.parent / "bad.yaml", provider("aescbc", k=KEY[:15]))
    code, report = checked(merge.today, refused)
    assert (code, report["compared"], report["findings"][0]["files"]) == (1, False, [1])


def test_levels_decide_the_exit_code(merge: Merge, tmp_path: Path) -> None:
    def code(*words: object) -> int:
        return run(["encryption", "check", *map(str, words)])

    assert (code(merge.older), code(merge.older, "--fail-on", "advice")) == (0, 1)
    merge.today.chmod(0o644)
    assert (code(merge.today), code(merge.today, "--fail-on", "error")) == (1, 0)
    refused = written(tmp_path / "bad.yaml", provider("aescbc", k=KEY[:15]))
    assert code(refused, "--fail-on", "error") == 1
    (tmp_path / "text.yaml").write_text("hello")
    assert (code(tmp_path / "text.yaml"), code(tmp_path / "none.yaml")) == (2, 2)
