"""``etcdfix encryption recover`` on a real etcd: a rotation of k3s, and all that may be wrong with what it kept."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.encryption.config import load_configuration
from etcdfix.remediation import places
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import Registry
from tests.support.fixtures import Captured, Patch, StartEtcd
from tests.support.k3s_bootstrap import CA_KEY, PASSWORD, TOKEN, bootstrap, path, stage_line
from tests.support.k3s_cluster import NEW, NEW_KEY, NEW_NAME, OLD, OLD_KEY, OLD_NAME, K3s, node
from tests.support.kine import KineWriter
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


def test_configuration_that_servers_refuse_is_withheld_whole(k3s: K3s, tmp_path: Path) -> None:
    k3s.keep(OLD.replace(b'"secret":"', b'"secret":"PRIVATE-KEY-OF-THE-CA*'))
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
