"""The only module that can change etcd: one transaction, about one key, sent once.

A :class:`Writer` sends a ``KV/Txn`` that compares where the key stands with where it stood when it was examined, and
when the landmarks of that cluster were made (:mod:`~etcdfix.remediation.landmarks`); then it deletes or puts that one
key, or else reads what was compared. The messages below can say nothing more than that: there is no ``range_end`` to
reach a second key, and no comparison of values, which members that disagree could answer differently. So the value is
read ahead of the transaction, whole, on the very connection that will carry it; unless it is what was examined, nothing
is sent. That connection is never made anew (:mod:`~etcdfix.sources.etcd.relay`): once it ended, nothing is sent
either. The channel is made here and nowhere else; every other channel of etcdfix takes read methods only.

What is known after a failure is what the errors say::

    TransactionNotSent      nothing went to etcd: nothing has happened
    TransactionRefused      etcd's own no, given before anything is written: nothing has happened
    TransactionUnanswered   everything else: it may have happened, read the key again. ``ended``: that tells for good
    TransactionAnomaly      an answer came, and it is not one that etcd gives to such a transaction

Format: etcd 3.6, ``api/etcdserverpb/rpc.proto`` (``TxnRequest``, ``Compare``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.closing import Closing
from etcdfix.errors import (
    TransactionAnomaly,
    TransactionError,
    TransactionNotSent,
    TransactionRefused,
    TransactionUnanswered,
)
from etcdfix.model import StoredValue
from etcdfix.remediation.datastore import Datastore
from etcdfix.remediation.landmarks import (
    Landmarks,
    Sighting,
    compared_in,
    find_elsewhere,
    other_bytes,
    questions,
    sighting_of,
)
from etcdfix.remediation.preflight.members import KeyReading, stored_value
from etcdfix.rules import Rule
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.channel import Answer, ReadOnlyChannel, RpcError, open_transport, settle
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import Endpoint
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind, classify
from etcdfix.sources.etcd.relay import Relay
from etcdfix.sources.etcd.tls import TLSMaterial
from etcdfix.wire.descriptors import MessageClasses, build_pool, parse_table
from etcdfix.wire.etcd import RANGE, read_messages

_TXN_PATH = "/etcdserverpb.KV/Txn"

# Named apart from the messages for reading: here a Range is about one key.
_TABLE = """
KeyRange: 1 key bytes, 8 keys_only bool
PutRequest: 1 key bytes, 2 value bytes, 3 lease int64, 4 prev_kv bool
PutResponse: 1 header ResponseHeader, 2 prev_kv KeyValue
DeleteRangeRequest: 1 key bytes, 3 prev_kv bool
DeleteRangeResponse: 1 header ResponseHeader, 2 deleted int64, 3 prev_kvs *KeyValue
RequestOp: 1 request_range KeyRange, 2 request_put PutRequest, 3 request_delete_range DeleteRangeRequest
ResponseOp: 1 response_range RangeResponse, 2 response_put PutResponse, 3 response_delete_range DeleteRangeResponse
Compare: 1 result int32, 2 target int32, 3 key bytes, 4 version int64, 5 create_revision int64, 6 mod_revision int64
TxnRequest: 1 compare *Compare, 2 success *RequestOp, 3 failure *RequestOp
TxnResponse: 1 header ResponseHeader, 2 succeeded bool, 3 responses *ResponseOp
"""
_SHARED = ("ResponseHeader", "KeyValue", "RangeResponse")

# etcdserverpb.Compare.CompareResult and CompareTarget
_EQUAL = 0
_TARGETS = {"version": 0, "create_revision": 1, "mod_revision": 2}

_MAY_WRITE: Final = "the user needs to write it: etcdctl role grant-permission ROLE readwrite KEY"

# etcd's words for a transaction that it turned away before writing anything: at the door
# (server/etcdserver/api/v3rpc/key.go), before proposing it (v3_server.go), or when the requests of the chosen branch
# are checked ahead of the first write (txn/txn.go, apply/apply_auth.go). "database space exceeded" is missing on
# purpose: the applier says it of a transaction that it has just carried out (apply/quota.go).
_REFUSALS = (
    "etcdserver: permission denied",
    "etcdserver: invalid auth token",
    "etcdserver: user name is empty",
    "etcdserver: user name not found",
    "etcdserver: revision of auth store is old",
    "etcdserver: request is too large",
    "etcdserver: too many requests",
    "etcdserver: requested lease not found",
    "etcdserver: key is not provided",
)


# Codes with which etcd answers, and not before the transaction ended. The others can mean that it goes on (etcd:
# "request timed out" is UNAVAILABLE). In other words than etcd's they are a proxy's: gRPC makes UNAUTHENTICATED,
# PERMISSION_DENIED and UNIMPLEMENTED of its 401, 403 and 404, and RESOURCE_EXHAUSTED of a stream that it ended.
_ANSWERS = frozenset(
    {
        "ALREADY_EXISTS",
        "FAILED_PRECONDITION",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "OUT_OF_RANGE",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "UNIMPLEMENTED",
    }
)


class KeyState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a key stands, as transactions compare it; all zero for a key that does not exist."""

    mod_revision: int
    create_revision: int
    version: int

    @classmethod
    def of(cls, stored: StoredValue | None) -> KeyState:
        """Return the state of a record that was read, :data:`ABSENT` for None."""
        if stored is None:
            return ABSENT
        return cls(
            mod_revision=stored.mod_revision,
            create_revision=stored.create_revision,
            version=stored.version,
        )

    @property
    def exists(self) -> bool:
        """Whether there is such a key."""
        return self != ABSENT


ABSENT = KeyState(mod_revision=0, create_revision=0, version=0)


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What was examined, and must still be so for a change to be made.

    Attributes:
        stored: The record that was examined; None where there was none.
        landmarks: Of the cluster in which it was examined.
    """

    key: bytes
    stored: StoredValue | None
    landmarks: Landmarks

    @property
    def state(self) -> KeyState:
        """What the transaction compares of the key."""
        return KeyState.of(self.stored)


class Difference(NamedTuple):
    """Why a change is not made: not everything is as it was examined.

    Attributes:
        rule: ``moved`` for the key itself, ``other-cluster`` for what surrounds it.
    """

    rule: Rule
    text: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnAnswer:
    """What etcd answered; stored bytes are left out of the ``repr``.

    Attributes:
        applied: Whether everything stood as it was expected, so that the change was made.
        sent: Whether there was a transaction. Without, the read ahead of it showed the difference.
        difference: Without ``applied``, what is not as expected.
        previous: With ``applied``, what stood there before; None where nothing did.
        present: Without ``applied``, what stands there instead; None where the key is gone.
        returned: Every record in the answer, whatever its key; of an anomaly it may be all that is left of them.
        revision: etcd's revision after the transaction, of the deletion or put itself when ``applied``; of the read
            where none was ``sent``.
    """

    applied: bool
    sent: bool = True
    difference: Difference | None = None
    previous: StoredValue | None = field(default=None, repr=False)
    present: StoredValue | None = field(default=None, repr=False)
    returned: tuple[StoredValue, ...] = field(default=(), repr=False)
    revision: int
    cluster_id: int
    member_id: int
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOutlook:
    """What the compare of a transaction would find now (:func:`evaluate_compare`).

    Attributes:
        difference: What is not as expected; None where the compare holds.
    """

    difference: Difference | None
    revision: int


class Writer(Closing):
    """Sends one transaction in its life; whoever wants a second one has to make a second writer, on purpose."""

    def __init__(self, client: EtcdClient) -> None:
        """Prepare to write to the cluster that ``client`` reads; nothing is opened yet."""
        self._client = client
        self._channel: _TxnChannel | None = None
        self._sent = False

    def close(self) -> None:
        """End the connection for writing; the client stays open."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def compare_and_delete(self, expected: Expected) -> TxnAnswer:
        """Delete exactly this key, if it and its cluster still are what was examined.

        All of what is expected is held against what this connection shows, and then, but for the value,
        compared.

        Raises:
            ValueError: No key, or the expectation is that it does not exist.
            RuntimeError: This writer has sent its transaction already.
            TransactionNotSent: No endpoint could be reached.
            TransactionRefused: etcd refuses the user or the request.
            TransactionUnanswered: The answer never came.
            TransactionAnomaly: The answer contradicts the request.
        """
        if expected.stored is None:
            raise ValueError("a key that does not exist cannot be deleted")
        change = _message("RequestOp")()
        change.request_delete_range.key = expected.key
        change.request_delete_range.prev_kv = True
        return self._commit(expected, change)

    def compare_and_put(self, expected: Expected, value: bytes, *, lease: int) -> TxnAnswer:
        """Put this value at this key, if the key and its cluster still are what was examined.

        The key is absent, or holds what is to be replaced. etcd refuses a lease that has expired.

        Raises:
            ValueError: No key.
            RuntimeError: This writer has sent its transaction already.
            TransactionNotSent: No endpoint could be reached.
            TransactionRefused: etcd refuses the user, the lease or the request.
            TransactionUnanswered: The answer never came.
            TransactionAnomaly: The answer contradicts the request.
        """
        change = _message("RequestOp")()
        change.request_put.key = expected.key
        change.request_put.value = value
        change.request_put.lease = lease
        change.request_put.prev_kv = True
        return self._commit(expected, change)

    def _commit(self, expected: Expected, change: Any) -> TxnAnswer:
        if not expected.key:
            raise ValueError("no key")
        if self._sent:
            raise RuntimeError("this writer has sent its transaction already")
        request = _message("TxnRequest")(compare=_compares(expected), success=[change])
        request.failure.add().request_range.key = expected.key
        for mark in expected.landmarks.marks:
            request.failure.add().request_range.MergeFrom(_message("KeyRange")(key=mark.key, keys_only=True))
        endpoint, channel, metadata, seen = self._reach(expected)
        difference = find_difference(expected, seen)
        if difference is not None:
            return _unsent(difference, seen.reading, endpoint)
        limit = self._client.connection.command_timeout_seconds
        passed = channel.relay.passed
        # From here on nothing is certain but an answer, or that not one byte went to etcd.
        self._sent = True
        try:
            found = settle(channel.commit(request, timeout_seconds=limit, metadata=metadata), endpoint, limit)
        except (CallFailed, RpcError) as exc:
            if channel.relay.nothing_since(passed):
                raise _not_sent([_ended(endpoint)], endpoint) from exc
            if isinstance(exc, RpcError):
                raise self._lost(exc, endpoint, seen.reading.revision) from exc
            text, kind = exc.failure.message, exc.failure.kind.name
            raise _unanswered(text, kind, endpoint, seen.reading.revision) from exc
        return _read_answer(found, expected, change, endpoint, self._client.cluster_id)

    def _reach(
        self, expected: Expected
    ) -> tuple[Endpoint, _TxnChannel, tuple[tuple[str, str], ...], Sighting]:
        """Find an endpoint that works, by linearizable reads of all that is compared on the very channel for the write.

        So a dead endpoint, a refused token, a member without leader or a learner shows while nothing is at stake,
        and the next endpoint can be tried.
        """
        try:
            metadata = self._client.fresh_login()
        except CallFailed as failed:
            raise _not_sent([failed.failure], self._client.endpoints()[0]) from failed
        failures: list[Failure] = []
        endpoints = self._client.endpoints()
        for endpoint in endpoints:
            self.close()
            try:
                seen = self._try_endpoint(endpoint, expected, metadata)
            except CallFailed as failed:
                failures.append(failed.failure)
                if failed.failure.kind in {FailureKind.DENIED, FailureKind.TOKEN_REFUSED}:
                    raise _not_sent([failed.failure], endpoint) from failed
                continue
            assert self._channel is not None
            return endpoint, self._channel, metadata, seen
        raise _not_sent(failures, endpoints[0])

    def _try_endpoint(
        self, endpoint: Endpoint, expected: Expected, metadata: tuple[tuple[str, str], ...]
    ) -> Sighting:
        connection = self._client.connection
        channel = self._channel = _TxnChannel(endpoint, self._client.material, connection)
        limit = connection.command_timeout_seconds
        answers: list[Any] = []
        for request in questions(expected.key, expected.landmarks):
            try:
                future = channel.start(RANGE, request, timeout_seconds=limit, metadata=metadata)
                found, _size = settle(future, endpoint, limit)
            except RpcError as exc:
                gone = exc.status == "UNAVAILABLE" and not exc.details.startswith("etcdserver: ")
                failure = _ended(endpoint) if answers and gone else self._classify(exc, endpoint)
                raise CallFailed(failure) from exc
            if found.header.cluster_id != self._client.cluster_id:
                raise CallFailed(
                    Failure(
                        FailureKind.UNREACHABLE,
                        f"{endpoint.text}: belongs to cluster {found.header.cluster_id:x}, "
                        f"not to {self._client.cluster_id:x}",
                    )
                )
            answers.append(found)
        return sighting_of(expected.landmarks, answers)

    def _classify(self, error: RpcError, endpoint: Endpoint) -> Failure:
        return classify(
            error.status,
            error.details,
            endpoint,
            timeout_seconds=self._client.connection.command_timeout_seconds,
            has_client_certificate=self._client.material.certificate is not None,
        )

    def _lost(self, error: RpcError, endpoint: Endpoint, read_revision: int) -> TransactionError:
        failure = self._classify(error, endpoint)
        if error.details.startswith(_REFUSALS):
            return TransactionRefused(
                f"{failure.message}; nothing was changed",
                endpoint=endpoint.text,
                sent=True,
                # What the reads ahead needed, this user has.
                hint=_MAY_WRITE if failure.kind is FailureKind.DENIED else failure.hint,
            )
        etcds_own = error.details.startswith("etcdserver: ")
        if error.status in {"UNAVAILABLE", "CANCELLED"} and not etcds_own:
            # This very channel had just answered a read, so it is no matter of addresses or TLS.
            text = f"{endpoint.text}: the connection was lost after the transaction was sent"
            return _unanswered(text, error.status, endpoint, read_revision)
        answered = etcds_own and error.status in _ANSWERS
        return _unanswered(failure.message, error.status, endpoint, read_revision, answered=answered)


def evaluate_compare(now: Datastore, expected: Expected) -> CompareOutlook:
    """Say what the compare of a transaction, and the read ahead of it, would find now, without a transaction.

    Read and compared here: the channel for reading does not take ``KV/Txn``, and is not to learn it for the sake of a
    dry run.

    Raises:
        SourceError: It could not be read.
    """
    seen = now.sight(expected.key, expected.landmarks)
    return CompareOutlook(difference=find_difference(expected, seen), revision=seen.reading.revision)


def probe_connection(client: EtcdClient) -> None:
    """Make the connection that would carry a transaction, and end it again; nothing is sent.

    Raises:
        TransactionNotSent: It cannot be made to any endpoint.
    """
    failures: list[Failure] = []
    endpoints = client.endpoints()
    for endpoint in endpoints:
        try:
            Relay(endpoint, timeout_seconds=client.connection.dial_timeout_seconds).close()
        except CallFailed as failed:
            failures.append(failed.failure)
        else:
            return
    raise _not_sent(failures, endpoints[0])


def find_difference(expected: Expected, seen: Sighting) -> Difference | None:
    """Hold what one connection shows against what was examined; None where all of it is the same."""
    present = seen.reading.stored
    elsewhere = find_elsewhere(expected.landmarks, seen.revisions, seen.reading.revision)
    if elsewhere is None and not _holds(expected, present):
        return Difference(Rule.MOVED, describe_move(expected.state, present), "examine it again")
    if elsewhere is None and present != expected.stored:
        elsewhere = other_bytes()
    return None if elsewhere is None else Difference(Rule.OTHER_CLUSTER, *elsewhere)


def describe_move(expected: KeyState, present: StoredValue | None) -> str:
    """Say in one sentence, without its full stop, how a key differs from what a transaction expected."""
    now = KeyState.of(present)
    if not now.exists:
        return f"the key is gone; it stood at mod_revision {expected.mod_revision}"
    if not expected.exists:
        return (
            f"the key exists: created at revision {now.create_revision}, "
            f"mod_revision {now.mod_revision}, version {now.version}"
        )
    if now.create_revision != expected.create_revision:
        return (
            f"the key was deleted and created again at revision {now.create_revision}: "
            f"mod_revision {now.mod_revision} instead of {expected.mod_revision}"
        )
    version = f", version {now.version} instead of {expected.version}"
    return (
        f"the key was written again: mod_revision {now.mod_revision} instead of {expected.mod_revision}"
        f"{version if now.version != expected.version else ''}"  # kine counts none
    )


class _TxnChannel(ReadOnlyChannel):
    """Adds ``KV/Txn`` to the read methods, on one connection that is never made anew."""

    def __init__(self, endpoint: Endpoint, material: TLSMaterial, connection: EtcdConnection) -> None:
        """Connect."""
        self.relay = Relay(endpoint, timeout_seconds=connection.dial_timeout_seconds)
        try:
            super().__init__(open_transport(endpoint, material, connection, self.relay))
        except BaseException:
            self.relay.close()
            raise

    def close(self) -> None:
        """End the connection; a transaction on its way may be lost or not."""
        super().close()
        self.relay.close()

    def commit(
        self, request: Any, *, timeout_seconds: float, metadata: tuple[tuple[str, str], ...]
    ) -> Answer:
        """Send a transaction and return the future of the answer."""
        call = self._channel.unary_unary(
            _TXN_PATH,
            request_serializer=_message("TxnRequest").SerializeToString,
            response_deserializer=_message("TxnResponse").FromString,
        )
        return Answer(lambda: call.future(request, timeout=timeout_seconds, metadata=metadata))


@cache
def _classes() -> MessageClasses:
    shared = {name: read_messages()[name] for name in _SHARED}
    return build_pool({**shared, **parse_table(_TABLE)}, "etcdfix.etcd.writing")


def _message(name: str) -> Any:
    return _classes()[name]


def _compares(expected: Expected) -> list[Any]:
    # For an absent key one number says it all: revisions begin at 1.
    state = expected.state
    fields = _TARGETS if state.exists else ("create_revision",)
    return [
        *(_compare(expected.key, name, getattr(state, name)) for name in fields),
        *(_compare(mark.key, *mark.compared) for mark in expected.landmarks.marks),
    ]


def _compare(key: bytes, name: str, number: int) -> Any:
    return _message("Compare")(result=_EQUAL, target=_TARGETS[name], key=key, **{name: number})


def _holds(expected: Expected, present: StoredValue | None) -> bool:
    return KeyState.of(present) == expected.state


def _unsent(difference: Difference, reading: KeyReading, endpoint: Endpoint) -> TxnAnswer:
    return TxnAnswer(
        applied=False,
        sent=False,
        difference=difference,
        present=reading.stored,
        revision=reading.revision,
        cluster_id=reading.cluster_id,
        member_id=reading.member_id,
        endpoint=endpoint.text,
    )


def _read_answer(
    found: Any, expected: Expected, change: Any, endpoint: Endpoint, cluster_id: int
) -> TxnAnswer:
    operation = found.responses[0] if found.responses else _message("ResponseOp")()
    # In the order of the requests: the key, and without success each landmark.
    wanted, keys = "response_range", [expected.key, *(mark.key for mark in expected.landmarks.marks)]
    if found.succeeded:
        wanted = "response_delete_range" if change.HasField("request_delete_range") else "response_put"
        keys = [expected.key]
    records = _records(operation)
    stored = stored_value(records[0]) if records else None
    answer = TxnAnswer(
        applied=found.succeeded,
        previous=stored if found.succeeded else None,
        present=None if found.succeeded else stored,
        returned=tuple(stored_value(record) for each in found.responses for record in _records(each)),
        revision=found.header.revision,
        cluster_id=found.header.cluster_id,
        member_id=found.header.member_id,
        endpoint=endpoint.text,
    )
    if found.header.cluster_id != cluster_id:
        raise _anomaly(f"it comes from cluster {found.header.cluster_id:x}, not {cluster_id:x}", answer)
    if len(found.responses) != len(keys) or not all(each.HasField(wanted) for each in found.responses):
        raise _anomaly("it does not tell what was done", answer)
    for key, each in zip(keys, found.responses, strict=True):
        if [record.key for record in _records(each)] not in ([], [key]):
            raise _anomaly("it tells of another key", answer)
    if not answer.applied:
        return _refused(found, expected, answer)
    if wanted == "response_delete_range" and operation.response_delete_range.deleted != 1:
        deleted = operation.response_delete_range.deleted
        raise _anomaly(f"{deleted} keys were deleted instead of one", answer)
    if not _holds(expected, stored):
        raise _anomaly("the previous value is not the one that was compared", answer)
    return answer


def _refused(found: Any, expected: Expected, answer: TxnAnswer) -> TxnAnswer:
    reading = KeyReading(
        stored=answer.present,
        revision=answer.revision,
        cluster_id=answer.cluster_id,
        member_id=answer.member_id,
    )
    marks = [each.response_range for each in found.responses[1:]]
    seen = Sighting(reading=reading, revisions=compared_in(expected.landmarks, marks))
    difference = find_difference(expected, seen)
    if difference is None:
        raise _anomaly("everything stands as it was expected, and yet the comparison failed", answer)
    return replace(answer, difference=difference)


def _records(operation: Any) -> list[Any]:
    put = operation.response_put
    return [
        *operation.response_range.kvs,
        *operation.response_delete_range.prev_kvs,
        *([put.prev_kv] if put.HasField("prev_kv") else ()),
    ]


def _anomaly(text: str, answer: TxnAnswer) -> TransactionAnomaly:
    return TransactionAnomaly(
        f"{answer.endpoint}: etcd's answer contradicts the transaction: {text}",
        answer=answer,
        hint="read the key on every member before anything else is done",
    )


def _ended(endpoint: Endpoint) -> Failure:
    return Failure(
        FailureKind.UNREACHABLE,
        f"{endpoint.text}: the connection ended, and a change never goes out on a new one",
        "run the command again: everything is checked anew",
    )


def _not_sent(failures: Sequence[Failure], endpoint: Endpoint) -> TransactionError:
    text = "; ".join(failure.message for failure in failures)
    hint = failures[0].hint
    if failures[0].kind in {FailureKind.DENIED, FailureKind.TOKEN_REFUSED}:
        return TransactionRefused(
            f"{text}; no transaction was sent", endpoint=endpoint.text, sent=False, hint=hint
        )
    return TransactionNotSent(f"no transaction was sent: {text}", hint=hint)


def _unanswered(
    text: str, status: str, endpoint: Endpoint, read_revision: int, *, answered: bool = False
) -> TransactionUnanswered:
    return TransactionUnanswered(
        text if answered else f"{text}; the transaction was sent and may have been carried out",
        endpoint=endpoint.text,
        status=status,
        read_revision=read_revision,
        ended=answered,
        hint="read the key again: its mod_revision tells",
    )
