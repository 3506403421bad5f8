"""The only module that can change etcd: one transaction, about one key, sent once.

:func:`send_transaction` sends a ``KV/Txn`` that compares where the key stands with where it stood when it was examined,
and when the landmarks of that cluster were made; then it deletes or puts that one key, or else reads what was compared.
The messages below can say nothing more than that: there is no ``range_end`` to reach a second key, and no comparison of
values, which members that disagree could answer differently. So the value is read ahead of the transaction, whole, on
the very connection that will carry it; unless it is what was examined, nothing is sent. That connection is never made
anew (:mod:`~etcdfix.sources.etcd.relay`): once it ended, nothing is sent either. The channel is made here and nowhere
else; every other channel of etcdfix takes read methods only.

What is known after a failure is what the errors say::

    TransactionNotSent      nothing went to etcd: nothing has happened
    TransactionRefused      etcd's own no, given before anything is written: nothing has happened
    TransactionUnanswered   everything else: it may have happened, read the key again. ``ended``: that tells for good
    TransactionAnomaly      an answer came, and it is not one that etcd gives to such a transaction

Format: etcd 3.6, ``api/etcdserverpb/rpc.proto`` (``TxnRequest``, ``Compare``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from etcdfix.model.closing import Closing
from etcdfix.model.model import StoredValue
from etcdfix.remediation.datastore import (
    Difference,
    Expected,
    Sighting,
    find_difference,
    questions,
    sighting_of,
    state_of,
)
from etcdfix.remediation.errors import (
    TransactionAnomaly,
    TransactionError,
    TransactionNotSent,
    TransactionRefused,
    TransactionUnanswered,
)
from etcdfix.sources.etcd.channel import ReadOnlyChannel, open_transport
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import Endpoint
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.sources.etcd.relay import Relay
from etcdfix.sources.keyvalue import stored_of
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
    (
        *("ALREADY_EXISTS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE"),
        *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNIMPLEMENTED"),
    )
)


class TxnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What etcd answered.

    Attributes:
        applied: Whether everything stood as it was expected, so that the change was made.
        sent: Whether there was a transaction. Without, the read ahead of it showed the difference.
        difference: Without ``applied``, what is not as expected.
        previous: With ``applied``, what stood there before; None where nothing did.
        returned: Every record in the answer, whatever its key; of an anomaly it may be all that is left of them.
        revision: etcd's revision after the transaction, of the deletion or put itself when ``applied``.
        is_ours: It comes from the cluster that was asked.
    """

    applied: bool = False
    sent: bool = True
    difference: Difference | None = None
    previous: StoredValue | None = None
    returned: tuple[StoredValue, ...] = ()
    revision: int
    cluster_id: int
    is_ours: bool = True
    endpoint: str


def send_transaction(
    client: EtcdClient, expected: Expected, value: bytes | None, *, lease: int = 0
) -> TxnAnswer:
    """Put this value at this key, or delete it where that is None, if key and cluster still are what was examined.

    All of what is expected is held against what the connection shows that will carry the transaction, and then, but for
    the value, compared. etcd refuses a lease that has expired.

    Raises:
        ValueError: No key, or the expectation is that what is to be deleted does not exist.
        TransactionNotSent: No endpoint could be reached.
        TransactionRefused: etcd refuses the user, the lease or the request.
        TransactionUnanswered: The answer never came.
        TransactionAnomaly: The answer contradicts the request.
    """
    if not expected.key or (value is None and expected.stored is None):
        raise ValueError("no key, or one to delete that does not exist")
    try:
        metadata = client.fresh_login()
    except CallFailed as failed:
        raise _not_sent([failed.failure]) from failed
    failures: list[Failure] = []
    # By reads on the very channel for the write: so a dead endpoint, a refused token, a member without leader or a
    # learner shows while nothing is at stake, and the next endpoint can be tried.
    for endpoint in client.endpoints():
        try:
            channel, seen = _reach(client, endpoint, expected, metadata)
        except CallFailed as failed:
            failures.append(failed.failure)
            if failed.failure.is_denied:
                raise _not_sent([failed.failure]) from failed
            continue
        with channel:
            difference = find_difference(expected, seen)
            if difference is None:
                request = _request(expected, value, lease)
                found = channel.commit(request)
                return _read_answer(found, request, expected, endpoint, client.cluster_id)
        return TxnAnswer(
            sent=False,
            difference=difference,
            revision=seen.reading.revision,
            cluster_id=seen.reading.cluster_id,
            endpoint=endpoint.text,
        )
    raise _not_sent(failures)


def probe_connection(client: EtcdClient) -> None:
    """Make the connection that would carry a transaction, and end it again; nothing is sent.

    Raises TransactionNotSent.
    """
    failures: list[Failure] = []
    for endpoint in client.endpoints():
        try:
            Relay(endpoint, timeout_seconds=client.connection.dial_timeout_seconds).close()
        except CallFailed as failed:
            failures.append(failed.failure)
        else:
            return
    raise _not_sent(failures)


class _TxnChannel(ReadOnlyChannel, Closing):
    """Adds ``KV/Txn`` to the read methods, on one connection that is never made anew."""

    def __init__(self, client: EtcdClient, endpoint: Endpoint, metadata: tuple[tuple[str, str], ...]) -> None:
        """Connect."""
        self._client, self._endpoint, self._metadata = client, endpoint, metadata
        connection = client.connection
        self._limit = connection.command_timeout_seconds
        self._relay = Relay(endpoint, timeout_seconds=connection.dial_timeout_seconds)
        try:
            transport = open_transport(endpoint, client.material, connection, self._relay)
            super().__init__(transport, endpoint, certificate=client.material.certificate)
        except BaseException:
            self._relay.close()
            raise

    def close(self) -> None:
        """End the connection; a transaction on its way may be lost or not."""
        super().close()
        self._relay.close()

    def look(self, expected: Expected) -> Sighting:
        """Read linearizably what is expected."""
        answers: list[Any] = []
        for request in questions(expected.key, expected.landmarks):
            try:
                answer = self.start(RANGE, request, timeout_seconds=self._limit, metadata=self._metadata)
                found, _size = answer.result()
            except CallFailed as exc:
                gone = exc.status == "UNAVAILABLE" and not exc.details.startswith("etcdserver: ")
                raise CallFailed(_ended(self._endpoint) if answers and gone else exc.failure) from exc
            ours, theirs = self._client.cluster_id, found.header.cluster_id
            if ours != theirs:
                text = f"{self._endpoint.text}: belongs to cluster {theirs:x}, not to {ours:x}"
                raise CallFailed(Failure(FailureKind.UNREACHABLE, text))
            answers.append(found)
        return sighting_of(expected.landmarks, answers)

    def commit(self, request: Any) -> Any:
        """Send a transaction. From here on nothing is certain but an answer, or that not one byte went to etcd."""
        call = self._channel.unary_unary(
            _TXN_PATH,
            request_serializer=_message("TxnRequest").SerializeToString,
            response_deserializer=_message("TxnResponse").FromString,
        )
        passed = self._relay.passed
        try:
            return self._send(call, request, self._limit, self._metadata).result()
        except CallFailed as exc:
            if self._relay.nothing_since(passed):
                raise _not_sent([_ended(self._endpoint)]) from exc
            raise self._lost(exc) from exc

    def _lost(self, error: CallFailed) -> TransactionError:
        failure, text = error.failure, error.failure.message
        if error.details.startswith(_REFUSALS):
            return TransactionRefused(
                f"{text}; nothing was changed",
                # What the reads ahead needed, this user has.
                hint=_MAY_WRITE if failure.kind is FailureKind.DENIED else failure.hint,
            )
        etcds_own = error.details.startswith("etcdserver: ")
        answered = etcds_own and error.status in _ANSWERS
        if error.status in {"UNAVAILABLE", "CANCELLED"} and not etcds_own:
            # This very channel had just answered a read, so it is no matter of addresses or TLS.
            text = f"{self._endpoint.text}: the connection was lost after the transaction was sent"
        return TransactionUnanswered(
            text if answered else f"{text}; the transaction was sent and may have been carried out",
            ended=answered,
            hint="read the key again: its mod_revision tells",
        )


def _reach(
    client: EtcdClient, endpoint: Endpoint, expected: Expected, metadata: tuple[tuple[str, str], ...]
) -> tuple[_TxnChannel, Sighting]:
    channel = _TxnChannel(client, endpoint, metadata)
    try:
        return channel, channel.look(expected)
    except BaseException:
        channel.close()
        raise


@cache
def _classes() -> MessageClasses:
    shared = {name: read_messages()[name] for name in _SHARED}
    return build_pool({**shared, **parse_table(_TABLE)}, "etcdfix.etcd.writing")


def _message(name: str) -> Any:
    return _classes()[name]


def _request(expected: Expected, value: bytes | None, lease: int) -> Any:
    # For an absent key one number says it all: revisions begin at 1.
    state = state_of(expected.stored) if expected.stored is not None else {"create_revision": 0}
    marks = expected.landmarks.marks
    compared = [(expected.key, *each) for each in state.items()] + [
        (mark.key, *mark.compared) for mark in marks
    ]
    request = _message("TxnRequest")()
    for key, name, number in compared:
        request.compare.add(result=_EQUAL, target=_TARGETS[name], key=key, **{name: number})
    change = request.success.add()
    if value is None:
        change.request_delete_range.key = expected.key
        change.request_delete_range.prev_kv = True
    else:
        change.request_put.MergeFrom(
            _message("PutRequest")(key=expected.key, value=value, lease=lease, prev_kv=True)
        )
    request.failure.add().request_range.key = expected.key
    for mark in marks:
        request.failure.add().request_range.MergeFrom(_message("KeyRange")(key=mark.key, keys_only=True))
    return request


def _read_answer(
    found: Any, request: Any, expected: Expected, endpoint: Endpoint, cluster_id: int
) -> TxnAnswer:
    # In the order of the requests: the key, and without success each landmark.
    wanted, keys = "response_range", [expected.key, *(mark.key for mark in expected.landmarks.marks)]
    if found.succeeded:
        deletes = request.success[0].HasField("request_delete_range")
        wanted, keys = "response_delete_range" if deletes else "response_put", [expected.key]
    records = [_records(operation) for operation in found.responses]
    first = records[0][:1] if records else []
    answer = TxnAnswer(
        applied=found.succeeded,
        previous=stored_of(first[0]) if found.succeeded and first else None,
        returned=tuple(stored_of(record) for each in records for record in each),
        revision=found.header.revision,
        cluster_id=found.header.cluster_id,
        is_ours=found.header.cluster_id == cluster_id,
        endpoint=endpoint.text,
    )
    if not answer.is_ours:
        raise _anomaly(f"it comes from cluster {answer.cluster_id:x}, not {cluster_id:x}", answer)
    if len(records) != len(keys) or not all(each.HasField(wanted) for each in found.responses):
        raise _anomaly("it does not tell what was done", answer)
    for key, each in zip(keys, records, strict=True):
        if [record.key for record in each] not in ([], [key]):
            raise _anomaly("it tells of another key", answer)
    if not found.succeeded:
        ranges = [operation.response_range for operation in found.responses]
        difference = find_difference(expected, sighting_of(expected.landmarks, ranges, found.header))
        if difference is None:
            raise _anomaly("everything stands as it was expected, and yet the comparison failed", answer)
        return msgspec.structs.replace(answer, difference=difference)
    deleted = found.responses[0].response_delete_range.deleted
    if wanted == "response_delete_range" and deleted != 1:
        raise _anomaly(f"{deleted} keys were deleted instead of one", answer)
    if not expected.stands(answer.previous):
        raise _anomaly("the previous value is not the one that was compared", answer)
    return answer


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


def _not_sent(failures: Sequence[Failure]) -> TransactionError:
    text, hint = "; ".join(failure.message for failure in failures), failures[0].hint
    if failures[0].is_denied:
        return TransactionRefused(f"{text}; no transaction was sent", hint=hint)
    return TransactionNotSent(f"no transaction was sent: {text}", hint=hint)
