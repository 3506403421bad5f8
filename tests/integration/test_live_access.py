"""Who may read a live etcd: TLS, client certificates, users; each refusal says what is wrong in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest

from etcdfix.errors import ConfigurationError, SourceDenied, SourceError, SourceUnreachable
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing.certificates import CertificateAuthority, CertificateFiles
from etcdfix.testing.servers import READER, ROOT_USER, EtcdServer
from tests.support.etcd_proxy import RANGE, EtcdProxy

pytestmark = pytest.mark.etcd

ALLOWED = b"/registry/secrets/"
KEY = ALLOWED + b"shop/a"


def keys(source: LiveSource, prefix: bytes) -> list[bytes]:
    with source:
        return [stored.key for stored in source.current(prefix)]


class Certificate(TypedDict):
    cert: str
    key: str


def with_certificate(files: CertificateFiles) -> Certificate:
    return {"cert": str(files.cert), "key": str(files.key)}


# TLS


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("stranger"), name="another CA")


@pytest.fixture(scope="module")
def mutual(start_etcd: Callable[..., EtcdServer], authority: CertificateAuthority) -> EtcdServer:
    """Wants to see a certificate of its own authority."""
    server = start_etcd(authority=authority, client_certificates=True)
    server.put(KEY, b"v")
    return server


@pytest.fixture(scope="module")
def client(authority: CertificateAuthority) -> CertificateFiles:
    return authority.issue("reading-client")


def test_both_sides_show_certificates(
    mutual: EtcdServer, authority: CertificateAuthority, client: CertificateFiles
) -> None:
    connection = EtcdConnection(
        endpoints=(mutual.endpoint,), cacert=str(authority.cert), **with_certificate(client)
    )
    assert keys(LiveSource(connection), b"") == [KEY]


def test_the_server_is_not_checked_when_told_so(mutual: EtcdServer, client: CertificateFiles) -> None:
    connection = EtcdConnection(
        endpoints=(f"https://{mutual.endpoint}",), insecure_skip_tls_verify=True, **with_certificate(client)
    )
    assert keys(LiveSource(connection), b"") == [KEY]


def refused(error: type[SourceError], *endpoints: str, **options: Any) -> SourceError:
    with pytest.raises(error) as caught:
        LiveSource(EtcdConnection(endpoints=endpoints, **options)).close()
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_the_wrong_authority(
    mutual: EtcdServer, stranger: CertificateAuthority, client: CertificateFiles
) -> None:
    files = with_certificate(client)
    error = refused(SourceUnreachable, mutual.endpoint, cacert=str(stranger.cert), **files)
    assert "is not signed by a CA that is trusted here" in error.message
    assert "--cacert" in error.hint


def test_no_authority_but_the_systems(mutual: EtcdServer, client: CertificateFiles) -> None:
    error = refused(SourceUnreachable, mutual.endpoint, **with_certificate(client))
    assert "is not signed by a CA that is trusted here" in error.message


def test_no_client_certificate(mutual: EtcdServer, authority: CertificateAuthority) -> None:
    error = refused(SourceUnreachable, mutual.endpoint, cacert=str(authority.cert))
    assert "--cert and --key" in error.hint


def test_a_client_certificate_of_another_authority(
    mutual: EtcdServer, authority: CertificateAuthority, stranger: CertificateAuthority
) -> None:
    files = with_certificate(stranger.issue("stranger"))
    error = refused(SourceUnreachable, mutual.endpoint, cacert=str(authority.cert), **files)
    assert "certificate" in error.message + error.hint


def test_an_expired_server_certificate(
    start_etcd: Callable[..., EtcdServer], authority: CertificateAuthority
) -> None:
    server = start_etcd(authority=authority, expired=True)
    error = refused(SourceUnreachable, server.endpoint, cacert=str(authority.cert))
    assert "has expired" in error.message
    assert "snapshot save" in error.hint


def test_plain_text_to_a_port_that_speaks_tls(mutual: EtcdServer) -> None:
    error = refused(SourceUnreachable, mutual.endpoint)
    assert "https://" in error.hint


def test_tls_to_a_port_that_speaks_plain_text(etcd: EtcdServer, authority: CertificateAuthority) -> None:
    error = refused(SourceUnreachable, etcd.endpoint, cacert=str(authority.cert))
    assert "http://" in error.hint


def test_files_that_make_no_sense(
    mutual: EtcdServer, authority: CertificateAuthority, client: CertificateFiles, tmp_path: Path
) -> None:
    other = authority.issue("other")
    text = tmp_path / "text"
    text.write_text("no certificate")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"cacert": str(tmp_path / "missing")}, "no such file"),
        ({"cacert": str(text)}, "no usable PEM certificate"),
        ({"cert": str(client.cert), "key": str(other.key)}, "does not belong to"),
        ({"cert": str(text), "key": str(text)}, "not a usable PEM certificate and private key"),
    )
    for options, expected in cases:
        with pytest.raises(ConfigurationError, match=expected):
            LiveSource(EtcdConnection(endpoints=(mutual.endpoint,), **options))


# Users


@pytest.fixture(scope="module")
def guarded(start_etcd: Callable[..., EtcdServer]) -> EtcdServer:
    """Authentication enabled; READER may read below ALLOWED only."""
    server = start_etcd()
    server.put_all([(KEY, b"v"), (b"/registry/pods/shop/a", b"v")])
    server.require_login(ALLOWED)
    return server


def logged_in(server: EtcdServer, user: tuple[str, str], **more: Any) -> EtcdConnection:
    return EtcdConnection(endpoints=(server.endpoint,), user=user[0], password=user[1], **more)


def test_a_user_who_may_read_everything(guarded: EtcdServer) -> None:
    source = LiveSource(logged_in(guarded, ROOT_USER))
    assert source.estimate() == 2
    assert keys(source, b"") == [b"/registry/pods/shop/a", KEY]


def test_a_user_who_may_read_one_prefix(guarded: EtcdServer) -> None:
    source = LiveSource(logged_in(guarded, READER))
    assert source.get(KEY) is not None
    assert [kept.stored for kept in source.history(KEY)] == [source.get(KEY)]
    assert source.estimate() == 0
    assert keys(source, ALLOWED) == [KEY]


def test_a_range_that_the_user_may_not_read(guarded: EtcdServer) -> None:
    with (
        LiveSource(logged_in(guarded, READER)) as source,
        pytest.raises(SourceDenied, match="permission denied") as caught,
    ):
        list(source.current(b"/registry/"))
    assert "grant-permission" in caught.value.hint


def test_a_key_that_the_user_may_not_read(guarded: EtcdServer) -> None:
    with LiveSource(logged_in(guarded, READER)) as source, pytest.raises(SourceDenied):
        source.get(b"/registry/pods/shop/a")


def test_a_wrong_password_is_not_repeated(guarded: EtcdServer) -> None:
    with pytest.raises(SourceDenied, match="authentication failed") as caught:
        LiveSource(logged_in(guarded, (ROOT_USER[0], "so-not-the-password")))
    assert "so-not-the-password" not in f"{caught.value!r} {caught.value.message} {caught.value.hint}"
    assert "--user" in caught.value.hint


def test_an_unknown_user(guarded: EtcdServer) -> None:
    with pytest.raises(SourceDenied):
        LiveSource(logged_in(guarded, ("nobody", "x")))


def test_no_user_where_one_is_needed(guarded: EtcdServer) -> None:
    with (
        LiveSource(EtcdConnection(endpoints=(guarded.endpoint,))) as source,
        pytest.raises(SourceDenied) as caught,
    ):
        list(source.current(b""))
    assert "--user" in caught.value.hint


def test_a_user_where_none_is_needed(etcd: EtcdServer, prefix: bytes) -> None:
    etcd.put(prefix + b"k", b"v")
    notices: list[str] = []
    source = LiveSource(logged_in(etcd, ROOT_USER), on_notice=notices.append)
    assert keys(source, prefix) == [prefix + b"k"]
    (notice,) = notices
    assert "no authentication enabled" in notice


def test_a_token_that_became_invalid_is_renewed(guarded: EtcdServer) -> None:
    with (
        EtcdProxy(guarded.endpoint) as proxy,
        LiveSource(EtcdConnection(endpoints=(proxy.endpoint,), user=READER[0], password=READER[1])) as source,
    ):
        assert source.get(KEY) is not None
        guarded.forget_tokens()
        assert [stored.key for stored in source.current(ALLOWED)] == [KEY]
        assert proxy.calls.count("/etcdserverpb.Auth/Authenticate") == 2
        assert proxy.calls.count(RANGE) == 3
        guarded.forget_tokens()
        assert len(list(source.history(KEY))) == 1
