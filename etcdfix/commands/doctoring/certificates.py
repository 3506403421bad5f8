"""How long the certificates are good for. Keys are never shown; that of the client is used to shake hands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from etcdfix.commands.doctoring.check import fail, ok, told_by, unknown, warn
from etcdfix.report.doctor import Check, State
from etcdfix.side_by_side import run_within
from etcdfix.sources.connection import EtcdConnection, transport_warnings
from etcdfix.sources.etcd.endpoints import Endpoint, parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.sources.etcd.tls import TLSMaterial, load_tls_material, shown_certificate
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

SOON: Final = timedelta(days=30)
"""What expires within this time is warned of."""

_SERVER: Final = "renew it, and restart that member (kubeadm certs renew etcd-server)"
_CLIENT: Final = "renew it (kubeadm certs renew apiserver-etcd-client)"
_AUTHORITY: Final = "make a new certificate authority, and renew everything that this one has signed"


def check_tls(connection: EtcdConnection, *, now: datetime) -> Iterator[Check]:
    """Yield what makes the way to etcd less than safe, and how long each certificate is good for."""
    for warning in transport_warnings(connection):
        yield warn("tls", warning, "give etcd's CA with --cacert, and name endpoints with https://")
    material = load_tls_material(connection)
    endpoints = [
        parse_endpoint(text, has_tls_material=connection.has_tls_material) for text in connection.endpoints
    ]
    spoken = [endpoint for endpoint in endpoints if endpoint.tls]
    if not spoken:
        yield ok("tls", "etcd is spoken to without TLS: there is no certificate to check")
        return
    if material.roots is not None:
        yield _check_file(f"--cacert {connection.cacert}", material.roots, now, _AUTHORITY, bundle=True)
    if material.certificate is not None:
        yield _check_file(f"--cert {connection.cert}", material.certificate, now, _CLIENT)
    yield from _check_servers(connection, material, spoken, now)


def _check_file(what: str, pem: bytes, now: datetime, renew: str, *, bundle: bool = False) -> Check:
    """Look at a file: a chain is as good as its first to expire, a bundle of authorities as its valid ones."""
    from cryptography import x509  # noqa: PLC0415 - slow to import, and needed only here

    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return unknown("tls", f"{what}: its dates cannot be read", "look at it with openssl x509 -dates")
    valid = [one for one in found if one.not_valid_before_utc <= now <= one.not_valid_after_utc]
    if bundle and valid and len(valid) < len(found):
        told = f"{what}: {len(valid)} of {counted(len(found), 'certificate')} are valid now"
        return warn("tls", told, "take out those that are not, once nothing needs them")
    return _expiry(what, found, now, renew)


def _check_servers(
    connection: EtcdConnection, material: TLSMaterial, endpoints: Sequence[Endpoint], now: datetime
) -> Iterator[Check]:
    from cryptography import x509  # noqa: PLC0415 - as above

    limit = connection.dial_timeout_seconds
    calls = [partial(shown_certificate, endpoint, material, timeout_seconds=limit) for endpoint in endpoints]
    # A server that sends byte by byte knows no limit.
    for endpoint, found in zip(endpoints, run_within(calls, 2 * limit + 1), strict=True):
        what = f"certificate of the server at {endpoint.text}"
        if isinstance(found, CallFailed):
            yield told_by("tls", State.UNKNOWN, found, otherwise="see what is said of reach")
        elif isinstance(found, bytes):
            try:
                yield _expiry(what, [x509.load_der_x509_certificate(found)], now, _SERVER)
            except ValueError:
                yield unknown("tls", f"{what}: it cannot be read", _SERVER)
        elif found is None:
            yield unknown("tls", f"{what}: the server does not show it in time", "raise --dial-timeout")
        else:
            raise found


def _expiry(what: str, certificates: Sequence[Certificate], now: datetime, renew: str) -> Check:
    begins = max(one.not_valid_before_utc for one in certificates)
    ends = min(one.not_valid_after_utc for one in certificates)
    if now < begins:
        told = f"{what} is not valid before {begins:%Y-%m-%d %H:%M} UTC"
        return fail("tls", told, "compare the clock of this machine with the one that made it")
    if now > ends:
        return fail(
            "tls", f"{what} has expired on {ends:%Y-%m-%d}, {counted((now - ends).days, 'day')} ago", renew
        )
    left = ends - now
    told = f"{what} is valid until {ends:%Y-%m-%d}, {counted(left.days, 'day')} from now"
    return warn("tls", told, renew) if left < SOON else ok("tls", told)
