"""TLS material: read, checked before it is used, and turned into gRPC credentials.

gRPC answers every mistake in these files with the same UNAVAILABLE, so they are tried out with the standard
library first, which can say what is wrong.

``--insecure-skip-tls-verify``: gRPC for Python cannot leave verification out. Instead the certificate that
the server shows is fetched without verification and then becomes the only trusted root, under the name that it
bears itself. So the server is still not checked, but it must stay the same one for the rest of the run. One
thing is not lifted by this: BoringSSL still looks at the dates.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, read_input
from etcdfix.model.errors import ConfigurationError
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.endpoints import Endpoint
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind, classify


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSMaterial:
    """Contents of the files named in a connection; None where none was named.

    Attributes:
        private_key: Its private key, PEM; never shown.
        files: Paths of the client certificate and its key, as Python's ``ssl`` wants them.
    """

    roots: bytes | None = None
    certificate: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    files: tuple[str, str] | None = None


def load_tls_material(connection: EtcdConnection) -> TLSMaterial:
    """Read and check the files that a connection names.

    Raises:
        ConfigurationError: A file is missing, unreadable or no PEM, the private key is encrypted, or it does
            not belong to the certificate.
    """
    roots = _read(connection.cacert, "--cacert") if connection.cacert is not None else None
    if roots is not None:
        _check_roots(roots, f"--cacert {connection.cacert}")
    if connection.cert is None or connection.key is None:
        return TLSMaterial(roots=roots)
    material = TLSMaterial(
        roots=roots,
        certificate=_read(connection.cert, "--cert"),
        private_key=_read(connection.key, "--key"),
        files=(connection.cert, connection.key),
    )
    _check_pair(connection.cert, connection.key)
    return material


def channel_credentials(
    grpc: Any, endpoint: Endpoint, material: TLSMaterial, connection: EtcdConnection
) -> tuple[Any, list[tuple[str, str]]]:
    """Return gRPC credentials for an endpoint that speaks TLS, and the channel options that go with them.

    Raises:
        CallFailed: The server's certificate was to be fetched, and could not be.
    """
    roots, options = material.roots, []
    if connection.insecure_skip_tls_verify:
        roots, name = fetch_certificate(endpoint, material, timeout_seconds=connection.dial_timeout_seconds)
        options.append(("grpc.ssl_target_name_override", name))
    elif roots is None:
        roots = _system_roots()
    if endpoint.port == 0 and not options:
        # As in etcd's client: the file name stands for the host.
        options.append(("grpc.ssl_target_name_override", Path(endpoint.host).name.partition(":")[0]))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=roots, private_key=material.private_key, certificate_chain=material.certificate
    )
    return credentials, options


def fetch_certificate(
    endpoint: Endpoint, material: TLSMaterial, *, timeout_seconds: float
) -> tuple[bytes, str]:
    """Take whatever certificate the server shows, and a name that it is valid for.

    Returns:
        The certificate as PEM, and a host name or address out of it.

    Raises:
        CallFailed: Nobody speaks TLS there, or the certificate is outside its dates.
    """
    shown = shown_certificate(endpoint, material, timeout_seconds=timeout_seconds)
    try:
        name = _name_in(shown, endpoint)
    except ValueError as exc:
        raise _unreachable(endpoint, "the server's certificate is malformed", "") from exc
    return ssl.DER_cert_to_PEM_cert(shown).encode(), name


def shown_certificate(endpoint: Endpoint, material: TLSMaterial, *, timeout_seconds: float) -> bytes:
    """Return the certificate that the server shows as DER, whatever it says and whoever signed it.

    Raises:
        CallFailed: Nobody speaks TLS there.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if material.files is not None:
        context.load_cert_chain(*material.files)
    try:
        with (
            endpoint.dial(timeout_seconds) as plain,
            context.wrap_socket(plain, server_hostname=endpoint.host if endpoint.port else None) as wrapped,
        ):
            shown = wrapped.getpeercert(binary_form=True)
    except TimeoutError as exc:
        raise _unreachable(endpoint, "no connection in time", "raise --dial-timeout") from exc
    except ssl.SSLError as exc:
        failure = classify(
            "UNAVAILABLE",
            str(exc),
            endpoint,
            timeout_seconds=timeout_seconds,
            client_certificate=material.certificate,
        )
        raise CallFailed(failure) from exc
    except OSError as exc:
        raise _unreachable(endpoint, (exc.strerror or "connection failed").lower(), "") from exc
    except ValueError as exc:
        # Names that cannot be turned into ASCII, or that TLS does not take (a leading dot).
        raise _unreachable(endpoint, "that host name cannot be used", "") from exc
    if shown is None:
        raise _unreachable(endpoint, "the server shows no certificate", "use http://")
    return shown


def _name_in(der: bytes, endpoint: Endpoint) -> str:
    from cryptography import x509  # noqa: PLC0415 - slow to import, and needed only here

    certificate = x509.load_der_x509_certificate(der)
    now = dt.datetime.now(dt.UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise _unreachable(
            endpoint,
            f"the server's certificate is valid only from {certificate.not_valid_before_utc:%Y-%m-%d} to "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}, and gRPC looks at dates even with "
            "--insecure-skip-tls-verify",
            "etcdctl --insecure-skip-tls-verify snapshot save FILE, then scan with --snapshot FILE",
        )
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return str(common[0].value) if common else endpoint.host
    for name in names.get_values_for_type(x509.DNSName):
        return name.replace("*", "any", 1)
    for address in names.get_values_for_type(x509.IPAddress):
        return str(address)
    return endpoint.host


def _unreachable(endpoint: Endpoint, message: str, hint: str) -> CallFailed:
    return CallFailed(Failure(FailureKind.UNREACHABLE, f"{endpoint.text}: {message}", hint))


def _read(path: str, flag: str) -> bytes:
    try:
        return read_input(Path(path), most_bytes=MAX_SETTINGS_BYTES)
    except OSError as exc:
        raise ConfigurationError(f"{flag} {path}: {(exc.strerror or 'cannot be read').lower()}") from exc


def _check_roots(pem: bytes, name: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Comments between the certificates may be in any language.
        context.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as exc:
        raise ConfigurationError(f"{name} holds no usable PEM certificate") from exc


def _check_pair(cert: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    encrypted = False

    def no_password() -> str:
        nonlocal encrypted
        encrypted = True
        return ""

    try:
        context.load_cert_chain(cert, key, password=no_password)
    except (ssl.SSLError, ValueError) as exc:
        reason = getattr(exc, "reason", None)
        if encrypted:
            raise ConfigurationError(
                f"--key {key} is encrypted", hint="openssl pkey -in KEY -out KEY-WITHOUT-PASSWORD"
            ) from exc
        if reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(f"--key {key} does not belong to --cert {cert}") from exc
        raise ConfigurationError(
            f"--cert {cert} and --key {key} are not a usable PEM certificate and private key"
        ) from exc


def _system_roots() -> bytes | None:
    """Return the system's CA bundle; gRPC has one of its own, which knows no local CA."""
    if "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" in os.environ:
        return None
    bundle = ssl.get_default_verify_paths().cafile
    return read_input(Path(bundle), most_bytes=MAX_SETTINGS_BYTES) if bundle is not None else None
