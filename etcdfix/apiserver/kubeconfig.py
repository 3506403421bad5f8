"""Credentials, certificate authority and proxy of a kubeconfig, and connections to API servers made with them.

The ``kubernetes`` package reads the kubeconfig, runs its plugins, and prepares TLS and proxies; it is an optional
extra and imported here, when it is needed. Its models and its logger are not used: they would take an answer without
a field for an error of ours, and write whole answers. Nothing of what the package says in its errors is repeated: it
quotes parts of the file, and the output of plugins, and those hold tokens.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from etcdfix.apiserver.client import AuthorizationRefused, Pace, RefusalReason, Server, without_user
from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, read_input
from etcdfix.model.errors import ConfigurationError, EtcdfixError, why
from etcdfix.model.side_by_side import run_within

CREDENTIALS_SECONDS: Final = 30.0
"""For the plugins of a kubeconfig."""

_SERVICE = "kubernetes.default.svc"
# What a kubeconfig of the wrong shape, or a broken plugin, makes the package raise. Their texts quote the file, and
# a chained exception would show them too.
_LIBRARY_FAILURES = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)


class KubernetesClientMissing(ConfigurationError):
    """Raised when ``--kubeconfig`` is used and the package that reads it is not installed."""

    code = "kubernetes-client-missing"


class KubeconfigInvalid(ConfigurationError):
    """Raised when the kubeconfig cannot be read, or lacks the context that is asked for."""

    code = "kubeconfig-invalid"


class APIAccess(msgspec.Struct, frozen=True):
    """Which API servers to ask, and as whom.

    Attributes:
        kubeconfig: Path of the file.
        context: A context in the file; None for its current one.
        servers: Addresses of further servers, from :func:`~etcdfix.apiserver.servers.parse_server_url`.
    """

    kubeconfig: Path
    context: str | None = None
    servers: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The options that say so."""
        context = () if self.context is None else ("--context", self.context)
        servers = (word for url in self.servers for word in ("--server", url))
        return ("--kubeconfig", str(self.kubeconfig), *context, *servers)


class Access:
    """Makes connections to API servers.

    Attributes:
        url: Address of the server that the kubeconfig names.
    """

    def __init__(self, configuration: Any, credentials: dict[str, str], pace: Pace | None = None) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._pace = pace
        self._given_up = threading.Event()
        self._opened: list[Server] = []
        self.url = str(configuration.host).rstrip("/")

    def tls_names(self, url: str) -> tuple[str, ...]:
        """Return as whom a server may prove itself, in the order to try; "" is the host of its address.

        The name that the kubeconfig says holds for every server. Where it says none, a server other than its own may
        have a certificate without its address in it; then the name of service default/kubernetes will do, which stands
        in all of them, or the host of the kubeconfig's server.
        """
        given = str(self._configuration.tls_server_name or "")
        if given or url == self.url:
            return (given,)
        return ("", _SERVICE, urlsplit(self.url).hostname or "")

    def server(self, url: str, tls_name: str = "") -> Server:
        """Return one API server, with this kubeconfig's credentials and certificate authority.

        Raises:
            AuthorizationRefused: Nothing would prove who answers.
        """
        from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 - optional, and slow to import

        address = without_user(url)
        if not url.startswith("https://") or not self._configuration.verify_ssl:
            raise AuthorizationRefused(
                f"nothing proves that {address} is the API server: the kubeconfig asks for no verified TLS",
                reason=RefusalReason.TLS_FAILED,
                hint="give the cluster's certificate-authority in the kubeconfig",
            )
        configuration = copy.copy(self._configuration)
        configuration.host = url
        configuration.tls_server_name = tls_name or None
        found = Server(
            url,
            RESTClientObject(configuration).pool_manager,
            self._credentials,
            given_up=self._given_up,
            pace=self._pace,
        )
        self._opened.append(found)
        return found

    def close(self) -> None:
        """Send no further request, and close the connections. Threads that still wait end by themselves."""
        self._given_up.set()
        for server in self._opened:
            server.close()


def open_access(api: APIAccess, *, pace: Pace | None = None) -> Access:
    """Read a kubeconfig, and have its plugins give the credentials.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        AuthorizationRefused: The credentials could not be obtained, or not in time.
    """
    kubeconfig = str(api.kubeconfig)
    _require_client()
    _check_readable(kubeconfig)

    def load() -> Access:
        configuration = _load(kubeconfig, api.context)
        return Access(configuration, _credentials(configuration), pace)

    (found,) = run_within([load], CREDENTIALS_SECONDS)
    if found is None:
        raise AuthorizationRefused(
            f"the credentials that the kubeconfig names were not there within {CREDENTIALS_SECONDS:g} s",
            reason=RefusalReason.TIMED_OUT,
        )
    if isinstance(found, EtcdfixError):
        raise found
    if isinstance(found, BaseException):
        raise AuthorizationRefused(
            f"the API server could not be asked ({type(found).__name__})", reason=RefusalReason.CREDENTIALS
        )
    return found


def _require_client() -> None:
    try:
        import kubernetes.config  # noqa: F401, PLC0415 - optional, and slow to import
    except ImportError as exc:
        raise KubernetesClientMissing(
            "--kubeconfig needs the Python package kubernetes, which is not installed",
            hint="pip install 'etcdfix[kubernetes]'",
        ) from exc


def _check_readable(kubeconfig: str) -> None:
    if os.pathsep in kubeconfig:
        # The package would take it for a list of files.
        raise KubeconfigInvalid(f"--kubeconfig {kubeconfig}: one file, and no {os.pathsep!r} in its path")
    try:
        read_input(Path(kubeconfig), most_bytes=MAX_SETTINGS_BYTES)
    except OSError as exc:
        raise KubeconfigInvalid(f"--kubeconfig {kubeconfig}: {why(exc).lower()}") from exc


def _load(kubeconfig: str, context: str | None) -> Any:
    import yaml  # noqa: PLC0415 - only for the class of its errors
    from kubernetes import config  # noqa: PLC0415 - optional, and slow to import

    load: Any = config.new_client_from_config
    try:
        with _silent_root_logger():
            return load(config_file=kubeconfig, context=context, persist_config=False).configuration
    except (config.ConfigException, yaml.YAMLError, *_LIBRARY_FAILURES) as exc:
        what = "its current context" if context is None else f"context {context!r}"
        raise KubeconfigInvalid(
            f"--kubeconfig {kubeconfig}: {what}, or the cluster or user that it names, cannot be used "
            f"({type(exc).__name__})",
            hint="kubectl config get-contexts",
        ) from None


def _credentials(configuration: Any) -> dict[str, str]:
    import urllib3  # noqa: PLC0415 - comes with the optional package

    try:
        with _silent_root_logger():
            settings = configuration.auth_settings()
    except (urllib3.exceptions.HTTPError, *_LIBRARY_FAILURES) as exc:
        raise AuthorizationRefused(
            f"the credentials that the kubeconfig names could not be obtained ({type(exc).__name__})",
            reason=RefusalReason.CREDENTIALS,
        ) from None
    return {setting["key"]: setting["value"] for setting in settings.values() if setting["value"]}


@contextlib.contextmanager
def _silent_root_logger() -> Iterator[None]:
    """Drop what is logged by the root logger itself meanwhile.

    The kubernetes package reports failing plugins there, with their output; on a root logger without handlers that
    would even install one. Loggers of other names are not touched by a filter on this one.
    """
    root = logging.getLogger()
    silence = logging.NullHandler()
    root.addHandler(silence)
    root.addFilter(_drop)
    try:
        yield
    finally:
        root.removeFilter(_drop)
        root.removeHandler(silence)


def _drop(_record: logging.LogRecord) -> bool:
    return False
