"""``etcdfix encryption recover`` on a real etcd: a rotation of k3s, and all that may be wrong with what it kept."""

from __future__ import annotations

import json
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.encryption.config import load_configuration
from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue
from etcdfix.remediation import places
from etcdfix.testing.servers import EtcdServer
from etcdfix.text.commands import RunOptions
from tests.support.change_runs import Registry
from tests.support.fixtures import Captured, Patch, StartEtcd
from tests.support.k3s_bootstrap import CA_KEY, PASSWORD, TOKEN, bootstrap, path, stage_line
from tests.support.k3s_cluster import NEW, NEW_KEY, NEW_NAME, OLD, OLD_KEY, OLD_NAME, K3s, node
from tests.support.kine import KineWriter
from tests.support.memory_source import MemorySource
from tests.support.objects import aescbc, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


@pytest.fixture(scope="module")
def server(start_etcd: StartEtcd) -> EtcdServer:
    return start_etcd()


@pytest.fixture
def k3s(server: EtcdServer, tmp_path: Path, capfd: Captured, monkeypatch: Patch) -> K3s:
    monkeypatch.setattr(places, "default_audit_log", lambda: tmp_path / "state" / "audit.jsonl")
    server.etcdctl("del", "--prefix", "")
    server.compact()
    return K3s(server, tmp_path, capfd)


def states(report: dict[str, Any]) -> list[str]:
    return [value["state"] for value in report["values"]]


def test_a_snapshot_and_the_token_give_the_keys_back(k3s: K3s) -> None:
    k3s.keep(OLD)
    k3s.node("server-1", OLD)
    k3s.node("agent-1", None)
    for number in range(3):
        k3s.secret(f"web-{number}", OLD_KEY, OLD_NAME)
    for live in (False, True):
        code, report = k3s.report(live=live)
        assert (code, report["complete"], report["tried"], report["opened"]) == (0, True, 3, 3)
        (one,) = report["configurations"]
        assert (one["name"], one["opens"], one["nodes"]) == ("recovered-1", 3, ["server-1"])
        assert (one["current"], one["stage"], one["usable"]) == (True, "start", True)
        assert [key["transformer"] for key in one["rules"][0]["keys"]] == ["aescbc/v1/aescbckey", "identity"]
        assert one["file"] is None
        assert report["values"] == [{"state": "recovered", "reason": "", "number": 1}]
        assert "--save-dir DIR" in report["next"]["command"]


def test_a_rotation_keeps_both_configurations_until_it_is_compacted(k3s: K3s) -> None:
    first = k3s.keep(OLD)
    k3s.secret("old", OLD_KEY, OLD_NAME)
    second = k3s.keep(NEW, stage="reencrypt_finished")
    k3s.secret("new", NEW_KEY, NEW_NAME)
    k3s.node("server-1", NEW, "reencrypt_finished")
    code, report = k3s.report(live=True)
    assert (code, report["tried"], report["opened"]) == (0, 2, 2)
    newest, oldest = report["configurations"]
    assert (newest["last_mod_revision"], newest["current"], newest["opens"], newest["nodes"]) == (
        second, True, 1, ["server-1"],
    )  # fmt: skip
    assert (oldest["last_mod_revision"], oldest["current"], oldest["opens"], oldest["nodes"]) == (
        first, False, 1, [],
    )  # fmt: skip
    k3s.server.compact()
    code, report = k3s.report()
    assert (code, report["opened"], len(report["configurations"])) == (1, 1, 1)
    assert "No configuration opens 1 value" in " ".join(report["notes"])


def test_a_snapshot_in_the_middle_of_a_rotation_lacks_the_new_key_and_says_so(k3s: K3s) -> None:
    k3s.keep(OLD)
    k3s.secret("old", OLD_KEY, OLD_NAME)
    k3s.secret("new", NEW_KEY, NEW_NAME)
    k3s.node("server-1", NEW, "rotate")
    code, report = k3s.report()
    assert (code, report["configurations"][0]["nodes"]) == (1, [])
    assert "The Nodes name a configuration that was not found" in report["notes"][0]
    assert "lacks the new key" in report["notes"][0]


def test_a_deleted_key_of_a_former_token_is_found_with_that_token(k3s: K3s) -> None:
    k3s.keep(OLD, "former")
    k3s.keep(NEW)
    k3s.server.delete(path("former").encode())
    _, report = k3s.report()
    assert len(report["configurations"]) == 1
    former = k3s.token_file("former", "former")
    _, report = k3s.report(tokens=[k3s.token, former], live=True)
    assert len(report["configurations"]) == 2
    assert report["bootstrap_keys"] == 1
    assert report["token_files"] == [str(k3s.token), str(former)]


def test_another_token_is_a_count_and_no_path(k3s: K3s) -> None:
    k3s.keep(OLD, "one")
    k3s.keep(OLD, "two")
    ran = k3s.recover()
    assert ran.code == 1
    assert "2 values" in ran.out
    assert "of another token" in ran.out
    assert path("one") not in ran.out
    assert "--token-file FILE" in ran.out


def test_an_earlier_whole_value_helps_where_the_newest_is_damaged(k3s: K3s) -> None:
    k3s.keep(OLD)
    k3s.server.put(path().encode(), bootstrap(NEW)[:-30])
    k3s.secret("web", OLD_KEY, OLD_NAME)
    code, report = k3s.report()
    assert (code, states(report), report["opened"]) == (0, ["recovered", "damaged"], 1)
    assert not report["configurations"][0]["current"]


DAMAGED = [
    OLD[:-10] + b"PRIVATE-KEY-OF-THE-CA",
    OLD.replace(b"EncryptionConfiguration", b"PRIVATE-KEY-OF-THE-CA"),
    OLD.replace(b'"secret":"', b'"secret":"PRIVATE-KEY-OF-THE-CA*'),
    OLD.replace(b'"providers"', b'"PRIVATE-KEY-OF-THE-CA"'),
    CA_KEY,
    b"{" * 5000,
]


@pytest.mark.parametrize("config", DAMAGED)
def test_configuration_that_servers_refuse_is_withheld_whole(k3s: K3s, config: bytes, tmp_path: Path) -> None:
    k3s.keep(config)
    folder = tmp_path / "saved"
    code, report = k3s.report("--save-dir", folder)
    (one,) = report["configurations"]
    assert (code, one["usable"], one["rules"], one["file"]) == (1, False, [], None)
    assert not folder.exists()
    assert "refused by API servers" in k3s.recover().out


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]


def test_what_is_saved_is_for_its_owner_marked_and_on_record(k3s: K3s, tmp_path: Path) -> None:
    k3s.keep(OLD)
    k3s.keep(NEW)
    k3s.secret("old", OLD_KEY, OLD_NAME)
    k3s.secret("new", NEW_KEY, NEW_NAME)
    folder, log = tmp_path / "saved", tmp_path / "audit.jsonl"
    words = ("--save-dir", folder, "--audit-log", log)
    code, report = k3s.report(*words)
    assert code == 0
    written = [Path(one["file"]["path"]) for one in report["configurations"]]
    assert sorted(written) == sorted(folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file, key in zip(written, (NEW_KEY, OLD_KEY), strict=True):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        configuration = load_configuration(file)
        assert configuration.made_by == "recover"
        (provider, _) = configuration.rules[0].providers
        assert provider.keys[0].material.expose() == key  # type: ignore[union-attr]
        assert CA_KEY not in file.read_bytes()
        assert PASSWORD.encode() not in file.read_bytes()
        assert path()[11:].encode() not in file.read_bytes()
    records = logged(tmp_path)
    assert [record["verb"] for record in records] == ["reveal", "reveal"]
    assert {record["objectRef"]["name"] for record in records} == {str(file) for file in written}
    assert len(report["audit_records"]) == 2
    assert all(hidden not in log.read_text() for hidden in (TOKEN, PASSWORD, path()[11:]))
    assert report["next"]["command"].startswith("etcdfix encryption merge ")
    assert all(str(file) in report["next"]["command"] for file in written)

    before = [file.read_bytes() for file in written]
    code, report = k3s.report(*words)
    assert (code, [file.read_bytes() for file in written]) == (0, before)
    assert len(logged(tmp_path)) == 4


def test_a_file_that_is_there_is_never_written_over(k3s: K3s, tmp_path: Path) -> None:
    k3s.keep(OLD)
    folder = tmp_path / "saved"
    _, report = k3s.report("--save-dir", folder)
    file = Path(report["configurations"][0]["file"]["path"])
    text = file.read_bytes()
    for other in (b"mine", text + b"\n", text[:-1]):
        file.write_bytes(other)
        ran = k3s.recover("--save-dir", folder)
        assert (ran.code, file.read_bytes()) == (2, other)
        assert "is there already" in ran.err
    (tmp_path / "copy").write_bytes(text)
    file.unlink()
    file.symlink_to(tmp_path / "copy")
    assert k3s.recover("--save-dir", folder).code == 2


def test_an_unsafe_directory_or_log_stops_it_before_anything_is_written(k3s: K3s, tmp_path: Path) -> None:
    k3s.keep(OLD)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    ran = k3s.recover("--save-dir", open_to_all)
    assert (ran.code, list(open_to_all.iterdir())) == (4, [])
    folder = tmp_path / "saved"
    ran = k3s.recover("--save-dir", folder, "--audit-log", open_to_all / "audit.jsonl")
    assert (ran.code, list(folder.iterdir())) == (4, [])
    ran = k3s.recover("--save-dir", tmp_path / "no" / "such" / "place")
    assert ran.code == 4
    assert not (tmp_path / "no").exists()


def test_without_log_it_is_said_that_there_is_no_record(k3s: K3s, tmp_path: Path, monkeypatch: Patch) -> None:
    k3s.keep(OLD)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(places, "default_audit_log", lambda: tmp_path / "file" / "audit.jsonl")
    ran = k3s.recover("--save-dir", tmp_path / "saved")
    assert ran.code == 0
    assert "NOT RECORDED in an audit log" in ran.out


def test_todays_configuration_leaves_what_it_opens_out(k3s: K3s, tmp_path: Path) -> None:
    k3s.keep(OLD)
    k3s.secret("old", OLD_KEY, OLD_NAME)
    k3s.secret("new", NEW_KEY, NEW_NAME)
    today = tmp_path / "today.json"
    today.write_bytes(NEW)
    code, report = k3s.report("--encryption-config", today, "--save-dir", tmp_path / "saved")
    assert (code, report["tried"], report["opened"]) == (0, 1, 1)
    assert "encryption merge" in report["next"]["command"]
    code, report = k3s.report("configmaps")
    assert (code, report["tried"]) == (0, 0)


def test_who_may_read_the_bootstrap_data_alone_gets_it(
    start_etcd: StartEtcd, tmp_path: Path, capfd: Captured
) -> None:
    k3s = K3s(start_etcd(), tmp_path, capfd)
    k3s.keep(OLD)
    k3s.server.require_login(b"/bootstrap/")
    words = ("--user", "reader", "--password", "reads:one prefix", "--save-dir", tmp_path / "saved")
    ran = k3s.recover(*words, "--audit-log", tmp_path / "audit.jsonl", live=True)
    assert ran.code == 3
    assert "no value could be read" in ran.out
    assert re.search(r"recovered-1 .* not tried", ran.out)
    assert len([*(tmp_path / "saved").iterdir()]) == 1
    assert "what the Nodes say could not be read" in ran.err


def test_a_token_in_the_place_of_its_file_is_not_repeated(k3s: K3s) -> None:
    ran = k3s.recover(tokens=[Path(TOKEN)])
    assert ran.code == 2
    assert "name withheld" in ran.err


def test_what_was_compacted_comes_out_of_the_log_of_a_running_etcd(
    start_local_etcd: StartEtcd, tmp_path: Path, capfd: Captured
) -> None:
    k3s = K3s(start_local_etcd(flags=(f"--data-dir={tmp_path / 'data'}",)), tmp_path, capfd)
    log = tmp_path / "data" / "member" / "wal"
    former = k3s.token_file("former", "former")
    first = k3s.keep(OLD, "former")
    k3s.server.delete(path("former").encode())
    k3s.keep(NEW)
    k3s.node("server-1", NEW)
    for number in range(4):
        k3s.secret(f"old-{number}", OLD_KEY, OLD_NAME)
    k3s.server.compact()
    code, report = k3s.report(tokens=[k3s.token, former])
    assert (code, report["opened"], len(report["configurations"])) == (1, 0, 1)
    for live in (True, False):
        code, report = k3s.report("--in", f"log:{log}", tokens=[k3s.token, former], live=live)
        assert (code, report["tried"], report["opened"]) == (0, 4, 4)
        assert [one["last_mod_revision"] for one in report["configurations"]][1:] == [first]
        assert report["looked_in"] == [f"log:{log}"]


def test_sqlite_of_k3s_gives_its_keys_back_beside_its_writer(tmp_path: Path, capfd: Captured) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    kine = KineWriter(tmp_path / "state.db")
    kine.put(path().encode(), bootstrap(OLD))
    kine.put(path().encode(), bootstrap(NEW))
    kine.put(b"/registry/secrets/shop/web", aescbc(secret("web"), OLD_KEY, OLD_NAME))
    kine.put(b"/registry/minions/server-1", node("server-1", stage_line(NEW)))
    capfd.readouterr()
    code = run(["encryption", "recover", "--kine", str(kine.path), "--token-file", str(token), "-o", "json"])
    out = capfd.readouterr().out
    report = json.loads(out)
    assert (code, report["opened"], report["source"]["type"]) == (0, 1, "kine")
    assert [(one["current"], one["nodes"]) for one in report["configurations"]] == [
        (True, ["server-1"]), (False, []),
    ]  # fmt: skip
    assert path() not in out
    where = ["--kine", str(kine.path), "--in", f"log:{tmp_path}", "--token-file", str(token)]
    assert run(["encryption", "recover", *where]) == 2
    assert "no log of one is of the other" in capfd.readouterr().err


def test_what_is_printed_leads_from_a_lost_configuration_to_scan_that_reads(k3s: K3s, tmp_path: Path) -> None:
    k3s.keep(OLD)
    k3s.keep(NEW)
    k3s.secret("old", OLD_KEY, OLD_NAME)
    k3s.secret("new", NEW_KEY, NEW_NAME)
    code, report = k3s.report()
    told = {"DIR": tmp_path / "saved", "FILE": tmp_path / "both.yaml"}
    for verb in ("recover", "merge"):
        words = shlex.split(report["next"]["command"])
        assert words[:3] == ["etcdfix", "encryption", verb]
        code, report = k3s.typed(*(str(told.get(word, word)) for word in words[1:]), "-o", "json")
        assert code == 0
    snapshot = ("--snapshot", str(k3s.snapshot()), "--encryption-config", str(told["FILE"]))
    code, report = k3s.typed("scan", *snapshot, "-o", "json")
    assert (code, report["findings"], report["summary"]["readable"]) == (0, [], 3)


@pytest.mark.parametrize("kept", [True, False])
def test_a_deletion_names_it_before_anything_is_deleted(k3s: K3s, kept: bool, capfd: Captured) -> None:
    """Both where the key has to be declared lost first, and in the preview of what that declaration permits."""
    if kept:
        k3s.keep(NEW)
    registry = Registry(k3s.server, b"/registry", k3s.folder, capfd, furnished=False)
    registry.config.write_bytes(OLD)
    k3s.secret("old", OLD_KEY, OLD_NAME)
    key = k3s.secret("new", NEW_KEY, NEW_NAME)
    recover = f"etcdfix encryption recover --token-file FILE --endpoints {registry.endpoints}"
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "key-name-missing", hint="only if that key is gone for ever: --declare-key-lost")
    assert "every way out: etcdfix explain" in ran.err
    accepted = ("--accept", "no-api-server", "--declare-key-lost", f"aescbc/v1/{NEW_NAME}")
    ran = registry.delete(key, "--dry-run", *accepted)
    assert ran.code == 0, ran.err
    assert (recover in ran.out + ran.err) is kept
    assert "never-to-be-shown" not in ran.out + ran.err


def test_nobody_asks_for_it_where_nothing_is_encrypted_or_nobody_may_read_there() -> None:
    class Denied(MemorySource):
        def current(self, prefix: bytes) -> Iterator[StoredValue]:
            raise SourceError(f"{prefix!r}: permission denied")

    denied = Denied()
    told = RunOptions(reading=("--no-encryption",))
    assert with_what_it_keeps(told, denied) is told
    assert with_what_it_keeps(RunOptions(), denied) == RunOptions()
