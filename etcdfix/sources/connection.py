"""How to reach a live etcd: a value, and how it is built from flags and ``ETCDCTL_*`` variables.

Nothing here touches the network or a file; grpc is not imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etcdfix.golang.gotime import parse_duration
from etcdfix.model.errors import ConfigurationError
from etcdfix.sources.etcd.endpoints import parse_endpoint

DEFAULT_ENDPOINT = "127.0.0.1:2379"
DEFAULT_DIAL_TIMEOUT_SECONDS = 2.0
DEFAULT_COMMAND_TIMEOUT_SECONDS = 5.0

_LONGEST_TIMEOUT_SECONDS = 24 * 3600.0

# strconv.ParseBool
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConnection:
    """Everything needed to reach a live etcd; its ``repr`` leaves the password out.

    Attributes:
        endpoints: As given: ``host:port``, ``http://``, ``https://``, ``unix://`` or ``unixs://``.
        cacert: File with the CA certificates that vouch for the server, or None for the system's.
        dial_timeout_seconds: Longest wait for an endpoint to come into reach.
        command_timeout_seconds: Longest wait for one small answer; pages of a scan get more, by their size.
    """

    endpoints: tuple[str, ...] = (DEFAULT_ENDPOINT,)
    cacert: str | None = None
    cert: str | None = None
    key: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    insecure_skip_tls_verify: bool = False
    dial_timeout_seconds: float = DEFAULT_DIAL_TIMEOUT_SECONDS
    command_timeout_seconds: float = DEFAULT_COMMAND_TIMEOUT_SECONDS

    @property
    def has_tls_material(self) -> bool:
        """Whether an endpoint without a scheme speaks TLS, as etcdctl decides it."""
        named = self.cacert is not None or (self.cert is not None and self.key is not None)
        return named or self.insecure_skip_tls_verify

    @property
    def access_options(self) -> tuple[str, ...]:
        """Options of etcdctl that repeat how one connects, to whichever endpoint; never the password."""
        user = (self.user or "").partition(":")[0]
        given = (("--cacert", self.cacert), ("--cert", self.cert), ("--key", self.key), ("--user", user))
        words = [word for option, value in given if value for word in (option, value)]
        return (*words, *(["--insecure-skip-tls-verify"] if self.insecure_skip_tls_verify else []))


def transport_warnings(connection: EtcdConnection, *, name: str = "") -> tuple[str, ...]:
    """Return what makes a connection less than safe, a sentence each; they belong on record too.

    Nothing is said of a Unix socket, which does not leave the machine.

    Raises:
        ConfigurationError: An endpoint makes no sense.
    """
    endpoints = [
        parse_endpoint(text, has_tls_material=connection.has_tls_material) for text in connection.endpoints
    ]
    warnings = []
    if connection.insecure_skip_tls_verify and any(endpoint.tls for endpoint in endpoints):
        warnings.append(
            "TLS certificates are not checked (--insecure-skip-tls-verify): whoever answers may be another etcd, or "
            "somebody in between who reads and changes everything"
        )
    plain = [endpoint.text for endpoint in endpoints if not endpoint.tls and endpoint.port]
    if connection.password is not None and plain:
        warnings.append(
            f"the password of etcd user {connection.user!r} is sent without TLS to {', '.join(plain)}: whoever is in "
            "between can read it; use https:// endpoints, and change it if others share that network"
        )
    return tuple(f"{name}: {warning}" if name else warning for warning in warnings)


def connection_from_options(
    *,
    endpoints: str | Sequence[str] | None = None,
    cacert: str | None = None,
    cert: str | None = None,
    key_file: str | None = None,
    user: str | None = None,
    password: str | None = None,
    insecure_skip_tls_verify: bool | None = None,
    dial_timeout: str | None = None,
    command_timeout: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> EtcdConnection:
    """Combine flags with the variables that etcdctl reads; a flag that was given wins.

    An empty variable counts as unset; ``ETCDCTL_API`` is not looked at.

    Raises:
        ConfigurationError: A value makes no sense, or two contradict each other.
    """
    variables = os.environ if environ is None else environ

    def choose(given: str | None, variable: str) -> str | None:
        return given if given is not None else variables.get(variable) or None

    if endpoints is not None and not isinstance(endpoints, str):
        endpoints = ",".join(endpoints)
    listed = choose(endpoints, "ETCDCTL_ENDPOINTS")
    cert = choose(cert, "ETCDCTL_CERT")
    key_file = choose(key_file, "ETCDCTL_KEY")
    if (cert is None) is not (key_file is None):
        present, absent = ("--cert", "--key") if key_file is None else ("--key", "--cert")
        raise ConfigurationError(
            f"{present} is given without {absent}", hint="a client certificate needs both"
        )
    if insecure_skip_tls_verify is None:
        insecure_skip_tls_verify = _parse_bool(
            variables.get("ETCDCTL_INSECURE_SKIP_TLS_VERIFY") or "false", "ETCDCTL_INSECURE_SKIP_TLS_VERIFY"
        )
    name, secret = _user_and_password(user, password, variables)
    dial = choose(dial_timeout, "ETCDCTL_DIAL_TIMEOUT")
    command = choose(command_timeout, "ETCDCTL_COMMAND_TIMEOUT")
    return EtcdConnection(
        endpoints=_split_endpoints(listed) if listed is not None else (DEFAULT_ENDPOINT,),
        cacert=choose(cacert, "ETCDCTL_CACERT"),
        cert=cert,
        key=key_file,
        user=name,
        password=secret,
        insecure_skip_tls_verify=insecure_skip_tls_verify,
        dial_timeout_seconds=DEFAULT_DIAL_TIMEOUT_SECONDS
        if dial is None
        else parse_timeout(dial, "--dial-timeout"),
        command_timeout_seconds=DEFAULT_COMMAND_TIMEOUT_SECONDS
        if command is None
        else parse_timeout(command, "--command-timeout"),
    )


def parse_timeout(text: str, flag: str) -> float:
    """Return the seconds that a time-out means.

    Raises:
        ConfigurationError: It is no duration, or not between 0 and 24 hours.
    """
    nanoseconds = parse_duration(text)
    if nanoseconds is None:
        raise ConfigurationError(f"{flag} {text!r} is not a duration", hint=f"for example {flag} 5s")
    seconds = nanoseconds / 1e9
    if not 0 < seconds <= _LONGEST_TIMEOUT_SECONDS:
        raise ConfigurationError(f"{flag} {text!r} is not between 0 and 24h", hint=f"for example {flag} 5s")
    return seconds


def _split_endpoints(text: str) -> tuple[str, ...]:
    # dict keeps the order and drops doubles: asking the same member twice is no failover.
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ConfigurationError("--endpoints is empty", hint=f"for example --endpoints {DEFAULT_ENDPOINT}")
    return found


def _user_and_password(
    user: str | None, password: str | None, variables: Mapping[str, str]
) -> tuple[str | None, str | None]:
    if user is None and password is not None and not variables.get("ETCDCTL_USER"):
        raise ConfigurationError("--password is given without --user", hint="add --user NAME")
    secret = password
    if user is None:
        user = variables.get("ETCDCTL_USER") or None
        secret = secret or variables.get("ETCDCTL_PASSWORD") or None
    if user is None:
        return None, None
    if secret is None:
        user, colon, rest = user.partition(":")
        secret = rest if colon else variables.get("ETCDCTL_PASSWORD") or None
    if not user:
        raise ConfigurationError("--user has no name", hint="--user NAME[:PASSWORD]")
    if secret is None:
        raise ConfigurationError(
            f"there is no password for etcd user {user!r}", hint="set ETCDCTL_PASSWORD, or use --password"
        )
    return user, secret


def _parse_bool(text: str, name: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ConfigurationError(f"{name} is {text!r}, not true or false")
