"""``etcdfix encryption check``, ``diff`` and ``merge``: codes, files, records, and no key in any output."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.encryption.config import load_configuration
from etcdfix.errors import NotDurable
from etcdfix.operations.look.encryption import merge as merge_module
from etcdfix.operations.look.encryption.check import check_files
from etcdfix.remediation.audit.verify import read_records, verify
from etcdfix.report.render.text import text_lines
from etcdfix.text.commands import RunOptions
from tests.support.audit_logs import own_directory
from tests.support.objects import IDENTITY, configuration_yaml, provider

KEY, OTHER = bytes(range(200, 232)), b"\x9c\x01\xf3\x44\xab\x20\x71\x5e" + bytes(range(70, 94))
SECRETS = [base64.b64encode(key).decode() for key in (KEY, OTHER)] + [key.hex() for key in (KEY, OTHER)]


@pytest.fixture(autouse=True)
def _no_variables(no_variables: None) -> None:
    """Nothing is taken from the environment."""


@pytest.fixture
def today(tmp_path: Path) -> Path:
    return written(tmp_path / "today.yaml", provider("aescbc", k=KEY), IDENTITY)


@pytest.fixture
def older(tmp_path: Path) -> Path:
    return written(tmp_path / "older.yaml", provider("aescbc", k=OTHER))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"


def written(path: Path, *providers: dict[str, object]) -> Path:
    path.write_bytes(configuration_yaml(*providers))
    path.chmod(0o600)
    return path


def assert_no_keys(*texts: str) -> None:
    for text in texts:
        assert not any(secret[:16] in text for secret in SECRETS)


def test_merge(
    today: Path, older: Path, log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "merged.yaml"
    words = ["--output-file", str(output), "--audit-log", str(log)]
    assert run(["encryption", "merge", str(today), str(older), *words, "-o", "json"]) == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert load_configuration(output).sha256 == report["output"]["sha256"]
    assert [decision["decision"] for decision in report["decisions"]] == ["same-name-other-bytes"]
    keys = [key["transformer"] for key in report["rules"][0]["keys"]]
    assert keys == ["aescbc/v1/k", "aescbc/v1/k", "identity"]
    ((link, event),) = read_records(log)
    assert report["audit_record"] == {"path": str(log), "sequence": 1, "hash": f"sha256:{link.sha256}"}
    assert (event.verb, event.annotations.type) == ("merge-configurations", "merge-configurations")
    for digest in [*(file["sha256"] for file in report["files"]), report["output"]["sha256"]]:
        assert digest in (event.annotations.detail or "")
    assert verify(log).exit_code == 0
    assert_no_keys(out, err, log.read_text())


def test_nothing_that_is_there_is_written_over(
    today: Path, older: Path, log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = today.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for output in (today, older, link, tmp_path, Path("/dev/stdout"), Path("-")):
        words = ["--output-file", str(output), "--audit-log", str(log)]
        assert run(["encryption", "merge", str(today), str(older), *words]) == 2
        assert "name a new file" in capfd.readouterr().err
    assert today.read_bytes() == before
    assert not log.exists()


def test_without_the_record_that_was_asked_for_nothing_is_written(
    today: Path, older: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "merged.yaml"
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    words = ["--output-file", str(output), "--audit-log", str(loose / "audit.jsonl")]
    assert run(["encryption", "merge", str(today), str(older), *words]) != 0
    assert not output.exists()
    assert not list(tmp_path.glob(".etcdfix*"))
    assert_no_keys(*capfd.readouterr())


@pytest.mark.parametrize("suffix", ["", ".head", ".reserve"])
@pytest.mark.parametrize("linked", [False, True])
def test_the_output_is_not_the_log(
    today: Path,
    older: Path,
    log: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    suffix: str,
    *,
    linked: bool,
) -> None:
    (tmp_path / "link").symlink_to(log.parent)
    output = (tmp_path / "link" if linked else log.parent) / (log.name + suffix)
    words = ["--output-file", str(output), "--audit-log", str(log)]
    assert run(["encryption", "merge", str(today), str(older), *words]) == 2
    assert "is the audit log, or a file that belongs to it" in capfd.readouterr().err
    assert not list(log.parent.iterdir())


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("failing", ["finish", "rename"])
def test_a_file_that_could_not_be_made_is_not_on_record(
    today: Path, older: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setattr(f"etcdfix.inputs.outputfile._Partial.{failing}", no_space)
    output = tmp_path / "merged.yaml"
    words = ["--output-file", str(output), "--audit-log", str(log)]
    assert run(["encryption", "merge", str(today), str(older), *words]) not in {0, 1}
    assert not output.exists()
    assert list(read_records(log)) == []
    assert verify(log).exit_code == 0


def test_a_file_that_could_not_be_recorded_goes_again(
    today: Path,
    older: Path,
    log: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        no_space()

    output = tmp_path / "merged.yaml"
    words = ["--output-file", str(output), "--audit-log", str(log)]
    with monkeypatch.context() as full:
        full.setattr("etcdfix.remediation.audit.log.write_fully", half)
        assert run(["encryption", "merge", str(today), str(older), *words]) == 4
    assert f"{output} was removed again" in capfd.readouterr().err
    assert not output.exists()
    assert list(read_records(log)) == []
    assert run(["encryption", "merge", str(today), str(older), *words]) == 0


def test_a_file_whose_record_stands_stays(
    today: Path,
    older: Path,
    log: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "merged.yaml"
    words = ["--output-file", str(output), "--audit-log", str(log)]
    assert (
        run(["encryption", "merge", str(today), str(older), "--output-file", str(tmp_path / "a"), *words[2:]])
        == 0
    )

    def fail(*_: object) -> None:
        raise NotDurable("no space", path=log)

    with monkeypatch.context() as full:
        full.setattr("etcdfix.remediation.audit.log.AuditLog._write_head", fail)
        assert run(["encryption", "merge", str(today), str(older), *words]) == 4
    assert f"{output} was made" in capfd.readouterr().err
    assert output.exists()
    assert len(list(read_records(log))) == 2


def test_without_the_default_log_it_is_said(
    today: Path,
    older: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(merge_module, "default_audit_log", lambda: tmp_path / "file" / "audit.jsonl")
    output = tmp_path / "merged.yaml"
    assert run(["encryption", "merge", str(today), str(older), "--output-file", str(output)]) == 0
    assert "NOT RECORDED in an audit log: " in capfd.readouterr().out
    assert output.exists()
    monkeypatch.setattr(merge_module, "default_audit_log", lambda: tmp_path / "made" / "audit.jsonl")
    words = ["--output-file", str(tmp_path / "two.yaml")]
    assert run(["encryption", "merge", str(today), str(older), *words]) == 0
    assert "record 1" in capfd.readouterr().out


def test_merge_refuses_what_api_servers_refuse(
    today: Path, log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = written(tmp_path / "bad.yaml", provider("aescbc", k=KEY[:15]))
    output = tmp_path / "merged.yaml"
    for files in ([str(today), str(bad)], [str(today)]):
        words = ["--output-file", str(output), "--audit-log", str(log)]
        assert run(["encryption", "merge", *files, *words]) == 2
        assert_no_keys(*capfd.readouterr())
    assert not output.exists()
    assert not log.exists()


@pytest.mark.parametrize("size", [16, 24, 32])
@pytest.mark.parametrize("form", ["base64", "two slashes", "hex"])
def test_a_key_in_the_place_of_a_file_is_not_repeated(
    today: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], size: int, form: str
) -> None:
    key = (b"\xff" * 3 + KEY if form == "two slashes" else KEY)[:size]
    typed = key.hex() if form == "hex" else base64.b64encode(key).decode()
    merged = ["--output-file", str(tmp_path / "merged.yaml"), "--audit-log", str(tmp_path / "audit.jsonl")]
    for words in (
        ["encryption", "try", "--snapshot", "none.db", "--no-encryption", "--candidate-config", typed],
        ["encryption", "what-if", "--snapshot", "none.db", "--no-encryption", "--new", typed],
        ["encryption", "check", str(today), typed],
        ["encryption", "merge", str(today), typed, *merged],
        ["scan", "--snapshot", "none.db", "--encryption-config", typed],
    ):
        assert run(words) == 2, words
        told = "".join(capfd.readouterr())
        assert "bytes withheld>: it cannot be read: no such file or directory" in told, words
        assert typed[-12:] not in told


def test_several_files_are_checked_and_compared(
    today: Path, older: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def checked(*words: str) -> tuple[int, dict[str, Any]]:
        code = run(["encryption", "check", *words, "-o", "json"])
        out, err = capfd.readouterr()
        assert_no_keys(out, err)
        return code, json.loads(out)

    code, alike = checked(str(older), str(older))
    assert (code, alike["compared"]) == (0, True)
    assert all((one["level"], one["files"]) == ("advice", [0, 1]) for one in alike["findings"])
    code, report = checked(str(today), str(older))
    assert code == 1
    found = [(one["check"], one["level"], one["files"], one["lacks"]) for one in report["findings"]]
    assert found[:3] == [
        ("written-not-read", "error", [0], [1]), ("written-not-read", "error", [1], [0]),
        ("key-missing", "warning", [0], [1]),
    ]  # fmt: skip
    refused = written(today.parent / "bad.yaml", provider("aescbc", k=KEY[:15]))
    code, report = checked(str(today), str(refused))
    assert (code, report["compared"], report["findings"][0]["files"]) == (1, False, [1])


def test_the_first_screen_of_a_check(today: Path, older: Path) -> None:
    document = check_files([today, older]).document()
    assert document.status.headline.startswith("2 files do not read and write alike: 2 errors, ")
    assert document.next is not None
    assert document.next.action.startswith("Add this key to the files that lack it")
    assert len([*text_lines(document, RunOptions(), 100)]) <= 24


def test_levels_decide_the_exit_code(today: Path, older: Path, tmp_path: Path) -> None:
    def code(*words: object) -> int:
        return run(["encryption", "check", *map(str, words)])

    assert (code(older), code(older, "--fail-on", "advice")) == (0, 1)
    today.chmod(0o644)
    assert (code(today), code(today, "--fail-on", "error")) == (1, 0)
    refused = written(tmp_path / "bad.yaml", provider("aescbc", k=KEY[:15]))
    assert code(refused, "--fail-on", "error") == 1
    (tmp_path / "text.yaml").write_text("hello")
    assert (code(tmp_path / "text.yaml"), code(tmp_path / "none.yaml")) == (2, 2)
