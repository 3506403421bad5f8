"""Certificates for TLS tests, made on the spot; every key here is a test key."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = dt.timedelta(days=1)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """Paths of one PEM certificate and its private key."""

    cert: Path
    key: Path


# Of nine uses in the order of RFC 5280, those of a CA: it signs certificates and revocation lists.
_SIGNS = x509.KeyUsage(*(use in {5, 6} for use in range(9)))


class CertificateAuthority:
    """A throw-away CA that signs server and client certificates into one folder."""

    def __init__(self, folder: Path, *, name: str = "etcdfix test CA") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        builder = self._begun(self._name, self._key, now - 30 * _DAY, now + 30 * _DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_SIGNS, critical=True)
        self.cert = folder / "ca.crt"
        self.cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1"),
        expired: bool = False,
    ) -> CertificateFiles:
        """Sign a certificate for server and client use; without ``hosts`` it names only its CN."""
        now = dt.datetime.now(dt.UTC)
        until = now - _DAY if expired else now + 10 * _DAY
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = self._begun(subject, key, now - 20 * _DAY, until).add_extension(usage, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        files = CertificateFiles(cert=self.folder / f"{name}.crt", key=self.folder / f"{name}.key")
        files.cert.write_bytes(certificate.public_bytes(_PEM))
        files.key.write_bytes(
            key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return files

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, start: dt.datetime, end: dt.datetime
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        # Python 3.13 asks for what names the issuer's key.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(issuer, critical=False).add_extension(subject_key, critical=False)
        return builder.not_valid_before(start).not_valid_after(end)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
