"""The KMS plugins of one run: which there are, where they listen, and how they are asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from etcdfix.encryption.config_model import KMSProvider, socket_path
from etcdfix.encryption.kms.answers import PluginClient, PluginReport
from etcdfix.encryption.kms.pacing import Clock
from etcdfix.encryption.kms.session import AskingMode, PluginSession
from etcdfix.golang.goquote import go_quote
from etcdfix.model.closing import Closing
from etcdfix.model.errors import ConfigurationError

MAX_RATE = 50.0
DEFAULT_PATIENCE_SECONDS = 30.0
_HINT = "Name the provider and its socket: --kms-endpoint NAME=unix:///path, or unix:///@name for an abstract one."

Connect = Callable[[KMSProvider, str], PluginClient]


def connect(provider: KMSProvider, socket_path: str) -> PluginClient:
    """Return a gRPC client of one plugin; gRPC is loaded here, so that only runs which ask a plugin wait for it."""
    from etcdfix.encryption.kms.client import KMSClient  # noqa: PLC0415

    return KMSClient(provider, socket_path)


class KMSPlugins(Closing):
    """One session for each KMS provider; close it, or use it in a ``with`` statement.

    How long a run can take is bounded for each plugin. ``n`` distinct wrapped keys take about ``n / max_rate``
    seconds, or ``n / 16`` times as long as the plugin takes for one, whichever is more, and at most three times that
    where every call has to be repeated; a plugin that does not answer is given up after ``patience_seconds`` and one
    time-out of the provider, one that answers with errors alone after ten times ``patience_seconds``.
    """

    def __init__(
        self,
        endpoints: Mapping[str, str] = MappingProxyType({}),
        *,
        max_rate: float = MAX_RATE,
        patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
        connect: Connect = connect,
        clock: Clock | None = None,
    ) -> None:
        """Prepare a run; nothing is connected yet.

        ``max_rate`` is calls a second to each plugin, health and retries included; 0 for no limit.

        Raises:
            ConfigurationError: An endpoint is not a unix URL.
        """
        self._endpoints = {name: (text, _socket_path(name, text)) for name, text in endpoints.items()}
        self._max_rate = max_rate
        self._patience_seconds = patience_seconds
        self._connect = connect
        self._clock = clock
        self._sessions: dict[KMSProvider, PluginSession] = {}
        self._mode = AskingMode()

    @property
    def deferring(self) -> bool:
        """Whether ``unwrap`` raises :class:`~etcdfix.encryption.kms.envelopes.KMSPending` instead of waiting."""
        return self._mode.deferring

    @deferring.setter
    def deferring(self, value: bool) -> None:
        self._mode.deferring = value

    def start_over(self) -> None:
        """Forget what counts for or against values: only what etcd holds from now on speaks for a plugin."""
        for session in self._sessions.values():
            session.start_over()

    @contextmanager
    def without_recording(self) -> Iterator[None]:
        """Look at values that are not of the run: each waits for its answer, and none speaks for those of the run."""
        deferring = self.deferring
        before = {provider: session.opened.copy() for provider, session in self._sessions.items()}
        self.deferring = False
        try:
            yield
        finally:
            self.deferring = deferring
            for provider, session in self._sessions.items():
                session.opened &= before.get(provider, Counter())

    @property
    def final(self) -> bool:
        """Whether what is said of a value now is the last word: every answer against one is asked for anew."""
        return self._mode.final

    @final.setter
    def final(self, value: bool) -> None:
        self._mode.final = value
        for session in self._sessions.values() if value else ():
            session.begin_final()

    @property
    def over(self) -> bool:
        """Whether no plugin is asked any more: all that were have been given up."""
        return bool(self._sessions) and all(session.over for session in self._sessions.values())

    def plugin_for(self, provider: KMSProvider) -> PluginSession:
        """Return the session of a provider, always the same for equal providers."""
        session = self._sessions.get(provider)
        if session is None:
            endpoint, path = self._endpoints.get(provider.name, (provider.endpoint, provider.socket_path))
            session = PluginSession(
                lambda: self._connect(provider, path),
                PluginReport(
                    provider.api_version,
                    provider.name,
                    endpoint,
                    max_rate=self._max_rate,
                ),
                self._mode,
                patience_seconds=self._patience_seconds,
                clock=self._clock,
            )
            self._sessions[provider] = session
        return session

    def abort(self) -> None:
        """Stop asking: what has no answer yet is unreachable at once, and everything waiting returns."""
        for session in self._sessions.values():
            session.abort()

    def close(self) -> None:
        """End all connections and threads and forget all keys; take :meth:`reports` before."""
        self.abort()
        for session in self._sessions.values():
            session.close()

    def reports(self) -> tuple[PluginReport, ...]:
        """Return what became of each plugin, in the order of the configuration."""
        return tuple(session.report() for session in self._sessions.values())


def _socket_path(name: str, endpoint: str) -> str:
    path = socket_path(endpoint)
    if not path:
        raise ConfigurationError(
            f"invalid endpoint for KMS provider {go_quote(name)}: a URL such as unix:///run/kms.sock is expected",
            hint=_HINT,
        )
    return path
