"""How long certificates are good for."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.doctoring.certificates import check_tls
from etcdfix.report.doctor import Check
from etcdfix.sources.connection import EtcdConnection
from etcdfix.testing.certificates import CertificateAuthority, CertificateFiles
from tests.support.doctoring import states

# What the authority signs is good for ten days, itself for thirty.
NOW = datetime.now(UTC)
EARLIER, LATER = NOW - timedelta(days=25), NOW + timedelta(days=40)


@contextmanager
def speaking(files: CertificateFiles) -> Iterator[str]:
    """A server that shakes hands, and no more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    plain, _ = listening.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(plain, server_side=True).close()
                except (OSError, ValueError):
                    plain.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def looked_at(now: datetime = NOW, **options: Any) -> list[Check]:
    found = list(check_tls(EtcdConnection(**{"dial_timeout_seconds": 5, **options}), now=now))
    states(found)
    return found


def test_a_password_in_the_clear_is_warned_of_and_not_shown() -> None:
    found = looked_at(user="ada", password="not-to-be-shown")
    assert [check.state for check in found] == ["warn", "ok"]
    assert "not-to-be-shown" not in str(found)


def test_every_certificate_is_told(authority: CertificateAuthority) -> None:
    client = authority.issue("doctor-client")
    with speaking(authority.issue("doctor-server")) as endpoint:
        found = looked_at(
            NOW + timedelta(hours=1),
            endpoints=(endpoint,),
            cacert=str(authority.cert),
            cert=str(client.cert),
            key=str(client.key),
        )
    # All of them expire within thirty days.
    assert [check.state for check in found] == ["warn"] * 3
    assert [check.what.partition(" is valid until ")[0] for check in found] == [
        f"--cacert {authority.cert}", f"--cert {client.cert}", f"certificate of the server at {endpoint}",
    ]  # fmt: skip
    assert found[1].what.endswith("9 days from now")
    assert "PRIVATE" not in str(found)


@pytest.mark.parametrize(("now", "words"), [(LATER, "has expired on"), (EARLIER, "is not valid before")])
def test_outside_their_dates(authority: CertificateAuthority, now: datetime, words: str) -> None:
    client = authority.issue("doctor-client")
    with speaking(authority.issue("doctor-server")) as endpoint:
        found = looked_at(now, endpoints=(endpoint,), cert=str(client.cert), key=str(client.key))
    assert [(check.state, words in check.what) for check in found] == [("fail", True)] * 2


def test_an_expired_server(authority: CertificateAuthority) -> None:
    with speaking(authority.issue("doctor-expired", expired=True)) as endpoint:
        (check,) = looked_at(endpoints=(endpoint,))
    assert (check.state, "kubeadm certs renew etcd-server" in check.next_step) == ("fail", True)


def test_a_bundle_is_as_good_as_what_is_valid_in_it(authority: CertificateAuthority, tmp_path: Path) -> None:
    old = authority.issue("doctor-old", expired=True)
    bundle = tmp_path / "bundle.crt"
    bundle.write_bytes("# vérifié\n".encode() + old.cert.read_bytes() + authority.cert.read_bytes())
    (check, _) = looked_at(cacert=str(bundle), endpoints=("https://127.0.0.1:1",))
    assert (check.state, "1 of 2 certificates are valid now" in check.what) == ("warn", True)
    bundle.write_bytes(old.cert.read_bytes())
    (check, _) = looked_at(cacert=str(bundle), endpoints=("https://127.0.0.1:1",))
    assert (check.state, "has expired" in check.what) == ("fail", True)


def test_checks_that_are_off_are_warned_of(authority: CertificateAuthority) -> None:
    with speaking(authority.issue("doctor-server")) as endpoint:
        found = looked_at(endpoints=(endpoint,), insecure_skip_tls_verify=True)
    assert [check.state for check in found] == ["warn", "warn"]
    assert "not checked" in found[0].what


def test_who_does_not_speak_tls_and_who_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"https://127.0.0.1:{silent.getsockname()[1]}"
        found = looked_at(endpoints=(endpoint, "https://127.0.0.1:1"), dial_timeout_seconds=0.2)
    assert [check.state for check in found] == ["unknown", "unknown"]
