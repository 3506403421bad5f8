"""``etcdfix scan`` on a live etcd: the same report as of the snapshot, and one clear line for bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import READER, ROOT_USER, EtcdServer
from tests.support.collecting import ALPHA
from tests.support.etcd_proxy import EtcdProxy, Refusal

pytestmark = pytest.mark.etcd

SNAPSHOT = ALPHA / "snapshot.db.gz"
# Exit codes of the contract.
FINDINGS, USAGE, INCOMPLETE, SOURCE = 1, 2, 3, 5


@pytest.fixture(scope="module")
def alpha(start_etcd: Callable[..., EtcdServer]) -> EtcdServer:
    return start_etcd(snapshot=SNAPSHOT)


def report(folder: Path, *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    target = folder / "report.json"
    code = run(["scan", *map(str, arguments), "-o", "json", "--output-file", str(target)])
    return code, json.loads(target.read_bytes())


# What names a source, or a way out that only one of the two has; an earlier revision is not sought in each.
ABOUT_THE_SOURCE = {
    "source", "generated_at", "finished_at", "at_stake", "do_not_restart", "groups", "next", "remedies", "command",
}  # fmt: skip


def without_source(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: without_source(one) for name, one in document.items() if name not in ABOUT_THE_SOURCE}
    if isinstance(document, list):
        return [
            without_source(one)
            for one in document
            if not (isinstance(one, dict) and one.get("check") == "earlier-revision")
        ]
    return document


def with_configuration(name: str | None) -> list[str]:
    return ["--encryption-config", str(ALPHA / name)] if name is not None else []


@pytest.mark.parametrize(
    ("configuration", "scope"),
    [("config-lost.yaml", ()), ("config-rotated.yaml", ("secrets",)), (None, ("/registry/pods/pay",))],
)
def test_report_of_the_live_etcd_and_of_the_snapshot(
    alpha: EtcdServer, tmp_path: Path, configuration: str | None, scope: tuple[str, ...]
) -> None:
    arguments = [*scope, *with_configuration(configuration)]
    code_live, live = report(tmp_path, *arguments, "--endpoints", alpha.endpoint)
    code_file, file = report(tmp_path, *arguments, "--snapshot", SNAPSHOT)
    sources = live["source"], file["source"]
    live, file = without_source(live), without_source(file)
    assert live == file
    assert list(live) == list(file)
    assert code_live == code_file
    assert live["summary"]["keys"] > 5
    assert sources[0]["type"] == "etcd"
    assert sources[0]["endpoints"] == [alpha.endpoint]
    assert sources[0]["single_revision"]
    for same in ("revision", "kube_system_uid"):
        assert sources[0][same] == sources[1][same]


def complaint(capfd: pytest.CaptureFixture[str], code: int, *arguments: str | Path) -> tuple[str, str]:
    capfd.readouterr()
    assert run(["scan", *map(str, arguments)]) == code
    captured = capfd.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.startswith("etcdfix: warning: ")]
    sentence, hint = lines if len(lines) == 2 else (*lines, "")
    assert sentence.startswith("etcdfix: ")
    assert not hint or hint.startswith("  next: ")
    assert len(sentence) < 250
    return sentence.removeprefix("etcdfix: "), hint.partition("next: ")[2]


@pytest.fixture(scope="module")
def mutual(start_etcd: Callable[..., EtcdServer], authority: CertificateAuthority) -> EtcdServer:
    return start_etcd(authority=authority, client_certificates=True, snapshot=SNAPSHOT)


@pytest.fixture(scope="module")
def guarded(start_etcd: Callable[..., EtcdServer]) -> EtcdServer:
    server = start_etcd(snapshot=SNAPSHOT)
    server.require_login(b"/registry/secrets/")
    return server


def test_wrong_certificate(
    mutual: EtcdServer, authority: CertificateAuthority, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stranger = CertificateAuthority(tmp_path / "stranger", name="another CA")
    theirs, ours = stranger.issue("operator"), authority.issue("operator-too")
    at = ["--endpoints", mutual.endpoint]
    ok: list[str | Path] = ["--cert", ours.cert, "--key", ours.key]
    sentence, hint = complaint(capfd, SOURCE, *at, "--cacert", stranger.cert, *ok)
    assert f"{mutual.endpoint}: the server's certificate is not signed by a CA" in sentence
    assert "--cacert" in hint
    sentence, hint = complaint(
        capfd, SOURCE, *at, "--cacert", authority.cert, "--cert", theirs.cert, "--key", theirs.key
    )
    assert "certificate" in sentence + hint
    _, hint = complaint(capfd, SOURCE, *at, "--cacert", authority.cert)
    assert "--cert and --key" in hint


def test_wrong_password(guarded: EtcdServer, capfd: pytest.CaptureFixture[str]) -> None:
    at = ["--endpoints", guarded.endpoint]
    sentence, hint = complaint(capfd, SOURCE, *at, "--user", f"{ROOT_USER[0]}:wrong-password")
    assert "authentication failed" in sentence
    assert "password" in hint
    assert "wrong-password" not in sentence + hint
    sentence, hint = complaint(capfd, SOURCE, *at)
    assert "--user" in hint


def test_a_user_who_may_not_read_it_all(guarded: EtcdServer, capfd: pytest.CaptureFixture[str]) -> None:
    user = ["--user", READER[0], "--password", READER[1]]
    sentence, hint = complaint(capfd, SOURCE, "--endpoints", guarded.endpoint, *user)
    assert "permission denied" in sentence
    assert "grant-permission" in hint


LIMITED = ("limited", "reads-the-prefix")


@pytest.fixture(scope="module")
def limited(start_etcd: Callable[..., EtcdServer]) -> EtcdServer:
    server = start_etcd(snapshot=SNAPSHOT)
    server.add_reader(LIMITED, "prefix", b"/registry/")
    server.require_login(b"/elsewhere/")
    return server


def refuses_status(path: str, _first: bytes) -> Refusal | None:
    status = path == "/etcdserverpb.Maintenance/Status"
    return Refusal("PERMISSION_DENIED", "etcdserver: permission denied") if status else None


@pytest.mark.parametrize(("scope", "status"), [((), True), ((), False), (("/registry",), True)])
def test_least_privilege(
    limited: EtcdServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    scope: tuple[str, ...],
    status: bool,
) -> None:
    arguments = [*scope, *with_configuration("config-lost.yaml")]
    code_file, file = report(tmp_path, *arguments, "--snapshot", SNAPSHOT)
    capfd.readouterr()
    with EtcdProxy(limited.endpoint, before=None if status else refuses_status) as proxy:
        as_limited = ["--endpoints", proxy.endpoint, "--user", LIMITED[0], "--password", LIMITED[1]]
        code_live, live = report(tmp_path, *arguments, *as_limited)
    told = capfd.readouterr().err
    live, file = without_source(live), without_source(file)
    assert live["scope"]["prefixes"] == ([*scope] or ["/registry/"])
    assert file["scope"]["prefixes"] == [*scope]
    assert live["findings"] == file["findings"]
    assert live["summary"]["keys"] > 100
    assert (code_live, live["complete"], live["incomplete_reasons"]) == (
        code_file, file["complete"], file["incomplete_reasons"],
    )  # fmt: skip
    if not scope:
        assert "permission denied outside /registry/: only keys that start with it are read" in told
    if scope == ("/registry",):
        assert "permission denied: the key /registry itself, outside the storage prefix, was not read" in told
    assert "NOTHING WAS EXAMINED" not in told


@pytest.mark.parametrize(
    "arguments",
    [["scan"], ["scan", "secrets"], ["explain", "/registry/secrets/shop/s-0"], ["get", "secrets", "-A"],
     ["encryption", "usage"]],
    ids=lambda arguments: "-".join(arguments[:2]).replace("/", ""),
)  # fmt: skip
@pytest.mark.parametrize("user", [READER, None], ids=["denied", "nobody"])
def test_who_may_read_nothing(
    limited: EtcdServer, capfd: pytest.CaptureFixture[str], arguments: list[str], user: tuple[str, str] | None
) -> None:
    who = ["--user", user[0], "--password", user[1]] if user is not None else []
    assert run([*arguments, "--endpoints", limited.endpoint, *who]) == SOURCE
    told = capfd.readouterr().err
    assert "permission denied" in told or "user name is empty" in told
    for lie in ("no key", "nothing is stored", "not found"):
        assert lie not in told


def test_what_lies_outside_is_not_called_absent(
    limited: EtcdServer, capfd: pytest.CaptureFixture[str]
) -> None:
    as_limited = ["--endpoints", limited.endpoint, "--user", LIMITED[0], "--password", LIMITED[1]]
    assert run(["scan", "--orphans", *as_limited]) == INCOMPLETE
    assert "permission denied: keys outside /registry/ were not looked at" in capfd.readouterr().err
    key = "/registry/secrets/shop/no-such-secret"
    assert run(["explain", key, "--impact", *as_limited]) == SOURCE
    assert "nothing is stored under" in capfd.readouterr().err
    assert run(["explain", "/elsewhere/x", "--impact", *as_limited]) == SOURCE
    told = capfd.readouterr().err
    assert "nothing is stored" not in told
