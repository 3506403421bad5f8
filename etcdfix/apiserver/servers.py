"""Asks every API server whether it reads the object that etcdfix cannot read.

A configuration may be wrong in ways that nothing in etcd shows. An API server that reads the object is the proof: then
the configuration given here is wrong or old, and nothing may be changed on its word. Each server holds a configuration
of its own, so each is asked: the one of the kubeconfig, those that were named beside it, and those that service
``default/kubernetes`` lists. Only a server that proves by TLS who it is, and by the uid of its kube-system that it
belongs to this cluster, counts as an answer. And one that answers is asked for permission too.

Answers are never shown: what a server reads may be a Secret.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from etcdfix.apiserver.authorization import Authorization, authorize
from etcdfix.apiserver.client import (
    Access,
    RefusalReason,
    Server,
    open_access,
    require_done,
    without_user,
)
from etcdfix.apiserver.objects import Answer, APIObject, Foretold, Said, look_for
from etcdfix.apiserver.reach import listed_by, reach
from etcdfix.errors import AuthorizationRefused, ConfigurationError, EtcdfixError
from etcdfix.model import ClusterIdentity
from etcdfix.rules import Rule, refuse
from etcdfix.side_by_side import run_within

DEFAULT_TIMEOUT_SECONDS = 30.0
"""For everything together, plugins of the kubeconfig included; one request may take a third of it."""


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one API server.

    Attributes:
        server: Its address, as it may be shown.
        answer: In one word.
        detail: Why, or what exactly; "" where the word says it all.
        passing: It may say something else in a moment.
    """

    server: str
    answer: Answer
    detail: str = ""
    passing: bool = False


class ServerAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What the API servers said.

    Attributes:
        answers: One for each that was asked, in the order in which they were found.
        warnings: Why there may be more servers than these, one sentence each.
        authorization: A clear yes to what is about to happen; None where no server answered, or none was asked.
        all_known: A server of the cluster told which others there are, and each of them was asked.
    """

    answers: tuple[ServerAnswer, ...] = ()
    warnings: tuple[str, ...] = ()
    authorization: Authorization | None = None
    all_known: bool = False


class APIAccess(msgspec.Struct, frozen=True):
    """Which API servers to ask, and as whom.

    Attributes:
        kubeconfig: Path of the file.
        context: Which context of it; None for its current one.
        servers: Addresses of further servers, from :func:`parse_server_url`.
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


def parse_server_url(text: str) -> str:
    """Return the address of an API server as it was given, without a slash at its end.

    Raises:
        ConfigurationError: It is no ``https://HOST[:PORT][/PATH]``.
    """
    try:
        parts = urlsplit(text)
        fits = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or "@" in text or "?" in text or "#" in text or " " in text or not text.isprintable():
        raise ConfigurationError(
            f"--server {without_user(text)}: not the address of an API server",
            hint="--server https://HOST:PORT, without a user, a query or a fragment",
        )
    return text.rstrip("/")


def ask_servers(
    kubeconfig: str | Path,
    context: str | None,
    extra_servers: Sequence[str] = (),
    *,
    group: str,
    version: str,
    resource: str,
    namespace: str,
    name: str,
    cluster: ClusterIdentity,
    held: bool = True,
    readable_is_fine: bool = False,
    foretold: Foretold | None = None,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> ServerAnswers:
    """Ask each API server for an object, and one of them for the permission to delete it.

    With ``held``, etcd holds the object, so that a server which finds none reads something else. With
    ``readable_is_fine`` the change does not rest on the object being unreadable. ``timeout_seconds`` is for everything
    together; ``foretold`` as for :func:`~etcdfix.apiserver.objects.look_for`.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        RefusedByRule: A server reads the object.
        AuthorizationRefused: A server is of another cluster, does not say of which it is, or says no.
    """
    if not cluster.is_known:
        raise AuthorizationRefused(
            "nothing in etcd names the cluster, so nothing can be compared with the API server's",
            reason=RefusalReason.OTHER_CLUSTER,
        )
    request_seconds = timeout_seconds / 3
    deadline = time.monotonic() + timeout_seconds
    access = open_access(
        str(kubeconfig), context, timeout_seconds=timeout_seconds, request_seconds=request_seconds
    )
    thing = APIObject(group, version, resource, namespace, name)
    try:
        found = _Inquiry(access, thing, cluster, deadline, request_seconds, held=held, foretold=foretold)
        found.ask([access.url, *extra_servers])
        found.ask(found.listed())
        if not readable_is_fine:
            found.refuse_readable()
        authorization = None
        server = found.spokesman()
        if server is not None:
            (said,) = run_within([lambda: authorize(server, thing, cluster=cluster)], found.left())
            authorization = require_done(said, timeout_seconds)
    finally:
        access.close()
    return ServerAnswers(
        answers=tuple(asked.answer for asked in found.asked),
        warnings=tuple(found.warnings),
        authorization=authorization,
        all_known=found.all_known,
    )


class _Asked(msgspec.Struct, frozen=True):
    """One server that was asked.

    Attributes:
        answer: What it said.
        server: The connection, where it showed that it is of this cluster, or nothing could show it.
        doubt: Why its answer counts as none, although it gave one.
        warning: Why it could not be compared which cluster it is of; "" where it was.
    """

    answer: ServerAnswer
    server: Server | None = None
    doubt: AuthorizationRefused | None = None
    warning: str = ""

    @property
    def counts(self) -> bool:
        """It is a server of this cluster, and it looked for the object."""
        return self.server is not None and self.answer.answer not in {Answer.DENIED, Answer.NO_ANSWER}


class _Inquiry:
    """The conversation with all servers; what each said stands in ``asked``, and what else to know in ``warnings``."""

    def __init__(
        self,
        access: Access,
        thing: APIObject,
        cluster: ClusterIdentity,
        deadline: float,
        request_seconds: float,
        *,
        held: bool,
        foretold: Foretold | None,
    ) -> None:
        self.asked: list[_Asked] = []
        self.warnings: list[str] = []
        self.all_known = False
        self._access = access
        self._thing = thing
        self._cluster = cluster
        self._deadline = deadline
        self._request_seconds = request_seconds
        self._held = held
        self._foretold = foretold

    def left(self) -> float:
        """Return how many seconds are left."""
        return max(0.0, self._deadline - time.monotonic())

    def ask(self, urls: Sequence[str]) -> None:
        """Ask servers side by side: one that does not answer keeps no other waiting.

        Raises:
            AuthorizationRefused: One belongs to another cluster, or nothing would prove who answers.
        """
        known = {asked.answer.server for asked in self.asked}
        new = [url for url in dict.fromkeys(urls) if without_user(url) not in known]
        seconds = min(self._request_seconds, self.left())
        found = run_within([partial(self._ask, url) for url in new], seconds)
        for url, said in zip(new, found, strict=True):
            if isinstance(said, EtcdfixError):
                raise said
            if isinstance(said, _Asked):
                self.asked.append(said)
                continue
            why = f"no answer within {seconds:g} s" if said is None else type(said).__name__
            answer = ServerAnswer(server=without_user(url), answer=Answer.NO_ANSWER, detail=why)
            self.asked.append(_Asked(answer))

    def listed(self) -> list[str]:
        """Return the addresses that service default/kubernetes lists, as a server of this cluster says."""
        server = next((asked.server for asked in self.asked if asked.server is not None), None)
        if server is None:
            return []
        found = listed_by(server, min(self._request_seconds, self.left()))
        self.warnings += filter(None, [found.warning])
        self.all_known = bool(found.urls) and not found.warning
        return list(found.urls)

    def refuse_readable(self) -> None:
        """Refuse where a server reads the object."""
        for asked in self.asked:
            if asked.answer.answer is Answer.READS_IT:
                detail = f" ({asked.answer.detail})" if asked.answer.detail else ""
                raise refuse(
                    Rule.CONFIGURATION_WRONG,
                    f"the API server at {asked.answer.server} reads {self._thing}{detail}: the configuration given "
                    "here is wrong or old, or this is not that server's etcd",
                    hint="compare with that server's --encryption-provider-config, --etcd-servers and --etcd-prefix",
                )

    def spokesman(self) -> Server | None:
        """Return the first server whose answer counts, None where none answered.

        Raises:
            AuthorizationRefused: Servers answered, and none of them showed that it is of this cluster.
        """
        for asked in sorted(
            self.asked, key=lambda asked: asked.warning != ""
        ):  # those that were compared first
            if asked.counts:
                return asked.server
        for asked in self.asked:
            if asked.doubt is not None:
                raise asked.doubt
        return None

    def _ask(self, url: str) -> _Asked:
        reached = reach(self._access, url, self._cluster)
        server, failure, warning = reached.server, reached.failure, reached.warning
        if reached.why_not_reached:
            return _Asked(_answer(server, Answer.NO_ANSWER, reached.why_not_reached))
        said = look_for(server, self._thing, certain=failure is None, foretold=self._foretold)
        if failure is None and self._held and said == Said(Answer.NOT_FOUND):
            said = Said(Answer.NOT_FOUND, "though etcd holds it: it reads another etcd, or another prefix")
            elsewhere = AuthorizationRefused(
                f"the API server at {server.address} finds no {self._thing}, {said.detail}",
                reason=RefusalReason.OTHER_CLUSTER,
                hint="compare with that server's --etcd-servers and --etcd-prefix",
            )
            return _Asked(_answer(server, said.answer, said.detail), doubt=elsewhere)
        answer = _answer(server, said.answer, "; ".join(filter(None, (said.detail, warning))))
        if failure is None:
            return _Asked(answer, server, warning=warning)
        if said.answer in {Answer.READS_IT, Answer.DENIED, Answer.NO_ANSWER}:
            return _Asked(answer)
        denied = failure.reason in {RefusalReason.UNAUTHENTICATED, RefusalReason.FORBIDDEN}
        word = Answer.DENIED if denied else Answer.NO_ANSWER
        return _Asked(_answer(server, word, str(failure)), doubt=failure)


def _answer(server: Server, answer: Answer, detail: str) -> ServerAnswer:
    return ServerAnswer(server=server.address, answer=answer, detail=detail)
