from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from etcdfix.model.errors import ConfigurationError, SourceUnreachable
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import tls
from etcdfix.sources.etcd.endpoints import Endpoint, parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed, FailureKind
from etcdfix.sources.etcd.tls import TLSMaterial, channel_credentials, fetch_certificate, load_tls_material
from etcdfix.sources.live import LiveSource
from etcdfix.testing.certificates import CertificateAuthority, CertificateFiles
from tests.support.scripted_etcd import ScriptedEtcd


@pytest.fixture(scope="module")
def client(authority: CertificateAuthority) -> CertificateFiles:
    return authority.issue("client")


def server_credentials(files: CertificateFiles, *, clients: CertificateAuthority | None = None) -> Any:
    import grpc  # not at the top: the package sets variables that grpc reads when it is imported

    return grpc.ssl_server_credentials(
        [(files.key.read_bytes(), files.cert.read_bytes())],
        root_certificates=clients.cert.read_bytes() if clients is not None else None,
        require_client_auth=clients is not None,
    )


@pytest.fixture(scope="module")
def mutual(authority: CertificateAuthority) -> Iterator[ScriptedEtcd]:
    credentials = server_credentials(authority.issue("server"), clients=authority)
    with ScriptedEtcd({b"k": b"v"}, credentials=credentials) as server:
        yield server


def at(server: ScriptedEtcd) -> Endpoint:
    return parse_endpoint(f"https://{server.endpoint}", has_tls_material=True)


# Files


def test_everything_named(authority: CertificateAuthority, client: CertificateFiles) -> None:
    material = load_tls_material(
        EtcdConnection(cacert=str(authority.cert), cert=str(client.cert), key=str(client.key))
    )
    assert material.roots == authority.cert.read_bytes()
    assert material.certificate == client.cert.read_bytes()
    assert material.private_key == client.key.read_bytes()
    assert material.files == (str(client.cert), str(client.key))
    assert "PRIVATE" not in repr(material)


def encrypted(files: CertificateFiles, folder: Path, *, traditional: bool) -> Path:
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    shape = (
        serialization.PrivateFormat.TraditionalOpenSSL if traditional else serialization.PrivateFormat.PKCS8
    )
    target = folder / "encrypted.key"
    target.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, shape, serialization.BestAvailableEncryption(b"x"))
    )
    return target


@pytest.mark.parametrize("traditional", [False, True], ids=["pkcs8", "traditional"])
def test_an_encrypted_key(client: CertificateFiles, tmp_path: Path, traditional: bool) -> None:
    key = encrypted(client, tmp_path, traditional=traditional)
    with pytest.raises(ConfigurationError, match="is encrypted") as caught:
        load_tls_material(EtcdConnection(cert=str(client.cert), key=str(key)))
    assert str(key) in caught.value.message
    assert "openssl pkey" in caught.value.hint


def test_a_key_of_another_certificate(authority: CertificateAuthority, client: CertificateFiles) -> None:
    other = authority.issue("other")
    with pytest.raises(ConfigurationError, match=r"--key .* does not belong to --cert"):
        load_tls_material(EtcdConnection(cert=str(client.cert), key=str(other.key)))


def test_missing_files(client: CertificateFiles, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    for connection, flag in (
        (EtcdConnection(cacert=missing), "--cacert"),
        (EtcdConnection(cert=missing, key=str(client.key)), "--cert"),
        (EtcdConnection(cert=str(client.cert), key=missing), "--key"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            load_tls_material(connection)
        assert caught.value.message == f"{flag} {missing}: no such file or directory"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"\xff\xfe",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n",
    ],
)
def test_no_pem(content: bytes, client: CertificateFiles, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match="holds no usable PEM certificate"):
        load_tls_material(EtcdConnection(cacert=str(file)))
    with pytest.raises(ConfigurationError, match="are not a usable PEM certificate and private key"):
        load_tls_material(EtcdConnection(cert=str(file), key=str(client.key)))
    with pytest.raises(ConfigurationError, match="are not a usable PEM certificate and private key"):
        load_tls_material(EtcdConnection(cert=str(client.cert), key=str(file)))


def test_a_private_key_is_no_authority_and_is_not_repeated(client: CertificateFiles) -> None:
    with pytest.raises(ConfigurationError, match="holds no usable PEM certificate") as caught:
        load_tls_material(EtcdConnection(cacert=str(client.key)))
    assert client.key.read_text().splitlines()[1] not in f"{caught.value!r}"


# Connections


@pytest.mark.parametrize("checked", [True, False])
def test_both_sides_show_certificates(
    mutual: ScriptedEtcd, authority: CertificateAuthority, client: CertificateFiles, checked: bool
) -> None:
    """A server that is not checked has to stay the same."""
    way = {"cacert": str(authority.cert)} if checked else {"insecure_skip_tls_verify": True}
    connection = EtcdConnection(
        endpoints=(mutual.endpoint,), cert=str(client.cert), key=str(client.key), **way
    )
    with LiveSource(connection) as source:
        assert [stored.value for stored in source.current(b"")] == [b"v"]


@pytest.mark.parametrize("checked", [True, False])
def test_our_own_certificate_that_expired_is_told_with_its_day(
    mutual: ScriptedEtcd, authority: CertificateAuthority, checked: bool
) -> None:
    old = authority.issue("old-client", expired=True)
    way = {"cacert": str(authority.cert)} if checked else {"insecure_skip_tls_verify": True}
    connection = EtcdConnection(endpoints=(mutual.endpoint,), cert=str(old.cert), key=str(old.key), **way)
    day = x509.load_pem_x509_certificate(old.cert.read_bytes()).not_valid_after_utc
    with pytest.raises(SourceUnreachable) as caught:
        LiveSource(connection)
    assert f"does not accept our client certificate, which expired on {day:%Y-%m-%d}" in caught.value.message


def test_the_file_name_of_a_socket_stands_for_the_host(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    path = tmp_path / "named:2379"
    credentials = server_credentials(authority.issue("for-socket", hosts=("named",)))
    with ScriptedEtcd({b"k": b"v"}, address=f"unix:{path}", credentials=credentials):
        for options in ({"cacert": str(authority.cert)}, {"insecure_skip_tls_verify": True}):
            with LiveSource(EtcdConnection(endpoints=(f"unixs://{path}",), **options)) as source:
                assert source.get(b"k") is not None


# The certificate that a server shows


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (("etcd.example", "10.0.0.1"), "etcd.example"),
        (("10.0.0.1",), "10.0.0.1"),
        (("*.etcd.example",), "any.etcd.example"),
        ((), "just-a-name"),
    ],
)
def test_the_name_that_a_certificate_bears(
    authority: CertificateAuthority, hosts: tuple[str, ...], expected: str
) -> None:
    files = authority.issue("just-a-name", hosts=hosts)
    with ScriptedEtcd(credentials=server_credentials(files)) as server:
        pem, name = fetch_certificate(at(server), TLSMaterial(), timeout_seconds=5)
        assert name == expected
        assert ssl.PEM_cert_to_DER_cert(pem.decode()) == ssl.PEM_cert_to_DER_cert(files.cert.read_text())


def refused(endpoint: Endpoint, *, timeout_seconds: float = 5) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        fetch_certificate(endpoint, TLSMaterial(), timeout_seconds=timeout_seconds)
    assert caught.value.failure.kind is FailureKind.UNREACHABLE
    assert caught.value.failure.message.startswith(f"{endpoint.text}: ")
    return caught.value


def test_dates_are_looked_at_even_so(authority: CertificateAuthority) -> None:
    files = authority.issue("old", expired=True)
    with ScriptedEtcd(credentials=server_credentials(files)) as server:
        failure = refused(at(server)).failure
    assert "gRPC looks at dates even with --insecure-skip-tls-verify" in failure.message
    assert "snapshot save" in failure.hint


def test_no_tls_there() -> None:
    with ScriptedEtcd() as server:
        failure = refused(at(server)).failure
    assert "does not speak TLS" in failure.message


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        endpoint = parse_endpoint(f"https://127.0.0.1:{port}", has_tls_material=True)
        assert "no connection in time" in refused(endpoint, timeout_seconds=0.05).failure.message


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_host_name_that_cannot_be_used(host: str) -> None:
    endpoint = parse_endpoint(f"https://{host}:2379", has_tls_material=True)
    assert "that host name cannot be used" in refused(endpoint).failure.message


# What gRPC is told


class Recorder:
    def ssl_channel_credentials(self, **given: object) -> dict[str, object]:
        return given


def credentials_for(text: str, material: TLSMaterial) -> tuple[dict[str, object], list[tuple[str, str]]]:
    endpoint = parse_endpoint(text, has_tls_material=True)
    return channel_credentials(Recorder(), endpoint, material, EtcdConnection())


def test_without_roots_the_systems_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.write_bytes(b"the system's")
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert credentials_for("https://etcd:1", TLSMaterial())[0]["root_certificates"] == b"the system's"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    assert tls._system_roots() is None
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert tls._system_roots() is None
