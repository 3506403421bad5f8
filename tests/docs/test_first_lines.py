"""The first lines of thirteen situations, each made for real, are those that ``docs/first-lines.md`` shows.

A changed output is looked at and then accepted with::

    ETCDFIX_UPDATE_SNAPSHOTS=1 pytest -n0 tests/docs/test_first_lines.py
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.cli.root import run
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import READER, EtcdServer
from etcdfix.text.commands import ACKNOWLEDGEMENT
from tests.support.audit_logs import own_directory
from tests.support.etcd_members import etcd_members
from tests.support.impact_objects import protobuf
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aesgcm,
    configuration_yaml,
    crd,
    namespace_object,
    provider,
    secret,
    widget,
)

pytestmark = pytest.mark.etcd

PAGE = Path(__file__).parents[2] / "docs" / "first-lines.md"
UPDATE = os.environ.get("ETCDFIX_UPDATE_SNAPSHOTS") == "1"
LINES = 6
WIDTH = 100
WEB, POD = "/registry/secrets/shop/web", "/registry/pods/shop/web-0"
DEFINITION = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
PLAIN = ("--no-encryption",)
CONFIGURED = ("--encryption-config", "encryption.yaml")
FINDINGS, INCOMPLETE, REFUSED, SOURCE = 1, 3, 4, 5


def pod(name: str) -> bytes:
    uid = "aaaaaaaa-2222-3333-4444-555555555555"
    metadata = {"name": name, "namespace": "shop", "uid": uid, "labels": {"app": "web"}}
    return protobuf("v1", "Pod", {"metadata": metadata, "spec": {"nodeName": "node-1"}})


def secrets(count: int, key: bytes = KEY_1) -> dict[str, bytes]:
    places = [f"/registry/secrets/shop/s-{number:03}" for number in range(count)]
    return {place: aesgcm(secret(place.rpartition("/")[2]), place, key) for place in places}


CLUSTER: Mapping[str, bytes] = {
    "/registry/namespaces/kube-system": namespace_object("kube-system"),
    "/registry/namespaces/shop": namespace_object("shop"),
    "/registry/pods/shop/web-1": pod("web-1"),
    DEFINITION: crd(),
    "/registry/example.com/widgets/shop/w-0": widget(),
}


class Ground(msgspec.Struct):
    """What situations are made on: an etcd for each, and the working directory."""

    start: Callable[..., EtcdServer]
    stack: ExitStack
    authority: CertificateAuthority

    def etcd(self, *values: Mapping[str, bytes]) -> EtcdServer:
        server = self.start()
        for some in (CLUSTER, *values):
            server.put_all((key.encode(), value) for key, value in some.items())
        return server


def configure(*providers: dict[str, Any]) -> None:
    Path("encryption.yaml").write_bytes(configuration_yaml(*(providers or (provider("aesgcm", key1=KEY_1),))))


def scan(server: EtcdServer, *options: str) -> list[str]:
    return ["scan", "--endpoints", server.endpoint, *options]


def one_pod(ground: Ground) -> tuple[list[str], int]:
    server = ground.etcd({POD: pod("web-0")}, {POD: pod("web-0")[:60]})
    return scan(server, *PLAIN), FINDINGS


def one_secret(ground: Ground) -> tuple[list[str], int]:
    configure()
    server = ground.etcd(secrets(20), {WEB: aesgcm(secret(), WEB)[:-20]})
    return scan(server, *CONFIGURED), FINDINGS


def one_bit(ground: Ground) -> tuple[list[str], int]:
    configure()
    damaged = bytearray(aesgcm(secret("web"), WEB))
    damaged[90] ^= 0x08
    return scan(ground.etcd({WEB: bytes(damaged)}, secrets(20)), *CONFIGURED), FINDINGS


def a_definition(ground: Ground) -> tuple[list[str], int]:
    return scan(ground.etcd({DEFINITION: crd()[:200]}), *PLAIN), FINDINGS


def a_namespace(ground: Ground) -> tuple[list[str], int]:
    broken = {"/registry/namespaces/shop": namespace_object("shop")[:30]}
    return scan(ground.etcd(broken), *PLAIN), FINDINGS


def lost_key(ground: Ground) -> tuple[list[str], int]:
    configure(provider("aesgcm", key2=KEY_2))
    return scan(ground.etcd(secrets(300)), *CONFIGURED), FINDINGS


def _kms(ground: Ground, count: int) -> tuple[EtcdServer, KMSPlugin]:
    plugin = ground.stack.enter_context(KMSPlugin("v2", "kms.sock", {"kek-1": b"k" * 32, "kek-2": b"l" * 32}))
    endpoint = f"unix://{Path('kms.sock').absolute()}"
    configure({"kms": {"apiVersion": "v2", "name": "vault", "endpoint": endpoint, "timeout": "3s"}}, IDENTITY)
    places = [f"/registry/secrets/shop/s-{number:03}" for number in range(count)]
    values = {
        place: plugin.stored_v2(
            secret(place.rpartition("/")[2]), place.encode(), name="vault", key_id="kek-1"
        )
        for place in places
    }
    return ground.etcd(values), plugin


def kms_away(ground: Ground) -> tuple[list[str], int]:
    server, plugin = _kms(ground, 20)
    plugin.stop()
    Path("kms.sock").unlink(missing_ok=True)
    return scan(server, *CONFIGURED), INCOMPLETE


def kms_key_gone(ground: Ground) -> tuple[list[str], int]:
    server, plugin = _kms(ground, 20)
    del plugin.keks["kek-1"]
    key = "/registry/secrets/shop/today"
    server.put(key.encode(), plugin.stored_v2(secret("today"), key.encode(), name="vault", key_id="kek-2"))
    return scan(server, *CONFIGURED), INCOMPLETE


def wrong_configuration(ground: Ground) -> tuple[list[str], int]:
    configure(provider("aesgcm", key1=KEY_2), IDENTITY)
    return scan(ground.etcd(secrets(40)), *CONFIGURED), FINDINGS


def member_differs(ground: Ground) -> tuple[list[str], int]:
    Path("members").mkdir()
    members = ground.stack.enter_context(etcd_members(Path("members").absolute()))
    broken = secret().replace(b"\x12\x06Secret", b"\x12\x7fSecret")
    with ExitStack() as stack:
        server = members.server("member-0")
        stack.callback(server.stop)
        server.put_all((key.encode(), value) for key, value in {**CLUSTER, WEB: broken}.items())
    members.stop("member-2")
    members.tamper("member-2", broken, secret())
    members.start("member-2", state="existing")
    endpoints = ",".join(members.endpoints())
    options = ["--endpoints", endpoints, *PLAIN, "--reason", "damaged", ACKNOWLEDGEMENT, "--dry-run"]
    return ["delete", WEB, *options], REFUSED


def snapshot(ground: Ground) -> tuple[list[str], int]:
    configure()
    server = ground.etcd(secrets(20), {WEB: aesgcm(secret(), WEB)[:-20]})
    server.etcdctl("snapshot", "save", Path("snapshot.db").absolute())
    return ["scan", "--snapshot", "snapshot.db", *CONFIGURED], FINDINGS


def no_permission(ground: Ground) -> tuple[list[str], int]:
    server = ground.start(authority=ground.authority)
    server.require_login(b"/elsewhere/")
    Path("ca.crt").write_bytes(ground.authority.cert.read_bytes())
    os.environ["ETCDCTL_PASSWORD"] = READER[1]  # the fixture takes it back
    return scan(server, "--cacert", "ca.crt", "--user", READER[0], *PLAIN), SOURCE


def nothing_wrong(ground: Ground) -> tuple[list[str], int]:
    configure()
    return scan(ground.etcd(secrets(20)), *CONFIGURED), 0


SITUATIONS = {
    "One Pod": one_pod,
    "One Secret": one_secret,
    "One flipped bit": one_bit,
    "A CustomResourceDefinition": a_definition,
    "A Namespace": a_namespace,
    "A lost encryption key": lost_key,
    "The KMS plugin is away": kms_away,
    "The key in the KMS is gone": kms_key_gone,
    "A wrong configuration was given": wrong_configuration,
    "One member of etcd differs": member_differs,
    "A snapshot": snapshot,
    "No permission": no_permission,
    "Nothing is wrong": nothing_wrong,
}


@pytest.fixture
def ground(
    start_etcd: Callable[..., EtcdServer],
    authority: CertificateAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_variables: None,
) -> Iterator[Ground]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("ETCDCTL_PASSWORD", "")
    with ExitStack() as stack:
        yield Ground(start_etcd, stack, authority)


@pytest.mark.parametrize("title", SITUATIONS)
def test_the_page_shows_the_first_lines(
    title: str, ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, exit_code = SITUATIONS[title](ground)
    capfd.readouterr()
    code = run(arguments)
    out, err = capfd.readouterr()
    assert code == exit_code, err
    lines = (out or err).splitlines()[:LINES]
    if "" in lines:
        lines = lines[: lines.index("")]
    shown = plain("\n".join([f"$ {shlex.join(['etcdfix', *arguments])}", *lines]), tmp_path)
    if UPDATE:
        update(title, shown)
    assert block(title).group(1) == shown
    command = next((line for line in lines if line.startswith("  etcdfix ")), "")
    if command and "FILE" not in command:
        changing = ["--backup-dir", "places", "--audit-log", "places/audit.jsonl"]
        own_directory(tmp_path / "places")
        words = shlex.split(command)[1:]
        assert run([*words, *(changing if words[0] in {"restore", "repair"} else [])]) in {
            0,
            FINDINGS,
            INCOMPLETE,
        }


def plain(text: str, folder: Path) -> str:
    text = text.replace(f"{folder}/", "")
    addresses = dict.fromkeys(re.findall(r"\d+\.\d+\.\d+\.\d+:\d+", text))
    for number, address in enumerate(addresses, start=1):
        text = re.sub(rf"(?:http://)?{re.escape(address)}", f"10.0.0.{number}:2379", text)
    text = re.sub(r"\([0-9a-f]{10,16}\)", "(ID)", text)
    return re.sub(r"(revision[ :]\(?)\d+", r"\1N", text)


def block(title: str) -> re.Match[str]:
    found = re.search(
        rf"^## {re.escape(title)}\n\n<!-- parsed -->\n```console\n(.*?)\n```\n\n[A-Z]",
        PAGE.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None, title
    return found


def update(title: str, shown: str) -> None:
    found, text = block(title), PAGE.read_text()
    PAGE.write_text(text[: found.start(1)] + shown + text[found.end(1) :])


def test_the_page_has_these_situations_and_no_other() -> None:
    assert re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE) == list(SITUATIONS)
