"""The one transaction: what it compares, what it sends once, and what each answer or silence counts for."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import etcdfix
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation import writer as writer_module
from etcdfix.remediation.datastore import EtcdNow, Expected, Landmark, Landmarks
from etcdfix.remediation.errors import (
    TransactionAnomaly,
    TransactionNotSent,
    TransactionRefused,
    TransactionUnanswered,
)
from etcdfix.remediation.members import read_alarms, read_lease, survey_members
from etcdfix.remediation.writer import TxnAnswer, _TxnChannel, probe_connection, send_transaction
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.channel import Answer, ReadOnlyChannel
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.sources.etcd.tls import TLSMaterial
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import READER, ROOT_USER, EtcdServer
from etcdfix.wire.etcd import READ_METHODS, message
from tests.support.connections import connected
from tests.support.cutting_proxy import CutPoint, CuttingProxy
from tests.support.etcd_proxy import NO_LEADER, RANGE, EtcdProxy, Refusal
from tests.support.fixtures import Patch, StartEtcd
from tests.support.lossy_etcd import TXN, LossyProxy, RawHTTP2
from tests.support.raising import never_told

pytestmark = pytest.mark.etcd

VALUE = bytes(range(256)) * 5
OTHER = b"\x00other\xff"


def stored(client: EtcdClient, key: bytes) -> StoredValue | None:
    return EtcdNow(client).read_key(key).stored


def at(key: bytes, expected: StoredValue | None = None, *marks: Landmark) -> Expected:
    return Expected(key=key, stored=expected, landmarks=Landmarks(marks, 0))


def delete(client: EtcdClient, key: bytes, *marks: Landmark) -> TxnAnswer:
    return send_transaction(client, at(key, stored(client, key), *marks), None)


def put(client: EtcdClient, key: bytes, *marks: Landmark, lease: int = 0) -> TxnAnswer:
    return send_transaction(client, at(key, stored(client, key), *marks), VALUE, lease=lease)


class Target:
    """A key that is examined, and then changed through a proxy."""

    def __init__(self, etcd: EtcdServer, client: EtcdClient, proxy: LossyProxy, prefix: bytes) -> None:
        self.etcd, self.client, self.proxy, self.prefix = etcd, client, proxy, prefix
        self.key = prefix + b"k"
        etcd.put(self.key, OTHER)
        etcd.put(self.key, VALUE)
        self.expected = stored(client, self.key)
        assert self.expected is not None

    def now(self) -> StoredValue | None:
        return stored(self.client, self.key)

    def send(self, new: bytes | None = None, *marks: Landmark, **other: Any) -> TxnAnswer:
        """Delete it, or put a value there; ``other`` is expected otherwise than it was examined."""
        expected = self.expected
        if expected is not None:
            expected = msgspec.structs.replace(expected, **other)
        with connected(self.proxy.endpoint, self.etcd.endpoint) as through:
            return send_transaction(through, at(self.key, expected, *marks), new)

    def at_transaction(self, act: Callable[[], Any]) -> None:
        """Do something, or refuse, when the transaction comes by."""

        def before(path: str, _request: bytes) -> Refusal | None:
            found = act() if path == TXN else None
            return found if isinstance(found, Refusal) else None

        self.proxy.before = before

    def answer_otherwise(self, change: Callable[[Any], None]) -> None:
        def rewrite(path: str, answer: bytes) -> bytes:
            if path != TXN:
                return answer
            found = writer_module._message("TxnResponse").FromString(answer)
            change(found)
            return bytes(found.SerializeToString())

        self.proxy.rewrite = rewrite


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[EtcdClient]:
    with connected(etcd.endpoint) as opened:
        yield opened


@pytest.fixture
def target(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> Iterator[Target]:
    with LossyProxy(etcd.endpoint) as proxy:
        yield Target(etcd, client, proxy, prefix)


# What is done.


def test_a_deletion_returns_what_was_there(target: Target) -> None:
    neighbour = target.prefix + b"k0"
    target.etcd.put(neighbour, OTHER)
    answer = target.send()
    assert (answer.applied, answer.previous, target.now()) == (True, target.expected, None)
    reading = EtcdNow(target.client).read_key(target.key)
    assert (answer.revision, answer.cluster_id) == (reading.revision, reading.cluster_id)
    assert answer.endpoint == target.proxy.endpoint
    # Exactly one key: not even the one that comes next.
    assert stored(target.client, neighbour) is not None


def test_a_value_put_where_nothing_is(client: EtcdClient, prefix: bytes) -> None:
    key = prefix + b"k"
    answer = put(client, key)
    assert (answer.applied, answer.previous) == (True, None)
    assert stored(client, key) == StoredValue(key, VALUE, answer.revision, answer.revision, 1, 0)
    again = send_transaction(client, at(key), OTHER)
    assert not again.applied
    assert again.difference is not None
    assert again.difference.rule == Rule.MOVED


def test_a_value_replaced_keeps_the_lease(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    key, lease = prefix + b"k", etcd.etcdctl("lease", "grant", "86400").decode().split()[1]
    etcd.etcdctl("put", f"--lease={lease}", "--", key.decode(), "broken")
    answer = put(client, key, lease=int(lease, 16))
    assert answer.previous is not None
    assert (answer.previous.value, answer.previous.lease) == (b"broken", int(lease, 16))
    now = stored(client, key)
    assert now is not None
    assert (now.value, now.lease, now.version) == (VALUE, int(lease, 16), 2)
    # And it is attached, not only written down.
    etcd.etcdctl("lease", "revoke", lease)
    assert stored(client, key) is None


def test_what_cannot_be_asked_for(client: EtcdClient) -> None:
    for expected, value in (
        (at(b"k"), None),
        (at(b"", StoredValue(b"", b"", 5, 4, 2, 0)), None),
        (at(b""), VALUE),
    ):
        with pytest.raises(ValueError, match="no key"):
            send_transaction(client, expected, value)


# What is compared.


def _rewrite(target: Target) -> None:
    target.etcd.put(target.key, VALUE)


def _remove(target: Target) -> None:
    target.etcd.delete(target.key)


def _create_again(target: Target) -> None:
    _remove(target)
    _rewrite(target)


@pytest.mark.parametrize(
    ("intrude", "words"),
    [
        (_rewrite, r"the key was written again: mod_revision (\d+) instead of (\d+)"),
        (_remove, r"the key is gone; it stood at mod_revision \d+"),
        (_create_again, r"the key was deleted and created again at revision (\d+): mod_revision \1 instead"),
    ],
)
@pytest.mark.parametrize(("value", "early"), [(None, False), (OTHER, False), (None, True)])
def test_somebody_else_was_quicker(
    target: Target, intrude: Callable[[Target], None], words: str, value: bytes | None, early: bool
) -> None:
    """Before the read, or after it, while the transaction is on its way."""
    if early:
        intrude(target)
    else:
        target.at_transaction(lambda: intrude(target))
    answer = target.send(value)
    now = EtcdNow(target.client).read_key(target.key)
    assert (answer.applied, answer.previous, answer.revision) == (False, None, now.revision)
    assert answer.sent == (TXN in target.proxy.calls) == (not early)
    assert answer.difference is not None
    assert answer.difference.rule == Rule.MOVED
    assert re.match(words, answer.difference.text)
    assert now.stored is None or now.stored.value == VALUE


def _read_as(proxy: LossyProxy, **fields: object) -> None:
    def rewrite(path: str, answer: bytes) -> bytes:
        if path != RANGE:
            return answer
        found = message("RangeResponse").FromString(answer)
        for record in found.kvs:
            for name, value in fields.items():
                setattr(record, name, value)
        return bytes(found.SerializeToString())

    proxy.rewrite = rewrite


@pytest.mark.parametrize("field", ["mod_revision", "create_revision", "version"])
@pytest.mark.parametrize("value", [None, OTHER])
@pytest.mark.parametrize("step", [-1, 1])
def test_each_number_is_compared(target: Target, field: str, value: bytes | None, step: int) -> None:
    """By the read ahead, and by etcd where that read is wrong."""
    wrong = {field: getattr(target.expected, field) + step}
    assert not target.send(value, **wrong).sent
    _read_as(target.proxy, **wrong)
    answer = target.send(value, **wrong)
    assert (answer.sent, answer.applied) == (True, False)
    assert target.now() == target.expected


@pytest.mark.parametrize("fields", [{"value": OTHER}, {"lease": 0x77}])
@pytest.mark.parametrize("value", [None, OTHER])
def test_the_same_revisions_with_something_else(
    target: Target, fields: dict[str, Any], value: bytes | None
) -> None:
    answer = target.send(value, **fields)
    assert answer.difference is not None
    assert (answer.applied, answer.sent, answer.difference.rule) == (False, False, Rule.OTHER_CLUSTER)
    assert TXN not in target.proxy.calls
    assert target.now() == target.expected


@pytest.mark.parametrize(
    ("change", "absent", "early"),
    [("delete", False, False), ("delete", True, False), ("put", False, False), ("create", True, False),
     ("create", False, False), ("delete", False, True)],
)  # fmt: skip
def test_each_landmark_is_compared(target: Target, change: str, absent: bool, early: bool) -> None:
    first, second = target.prefix + b"one", target.prefix + b"two"
    if change == "create":
        target.etcd.delete(target.key)
        target.expected = None
    made = target.etcd.put(first, OTHER)
    marks = (Landmark(first, made), Landmark(second, 0 if absent else target.etcd.put(second, OTHER)))

    def intrude() -> None:
        target.etcd.put(second, OTHER) if absent else target.etcd.delete(second)

    if early:
        intrude()
    else:
        target.at_transaction(intrude)
    answer = target.send(None if change == "delete" else OTHER, *marks)
    assert answer.difference is not None
    assert (answer.applied, answer.sent) == (False, not early)
    assert answer.difference.rule == Rule.OTHER_CLUSTER
    assert second.decode() in answer.difference.text
    assert target.now() == target.expected


def test_landmarks_that_stand(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    key, mark = prefix + b"k", prefix + b"mark"
    etcd.put(key, VALUE)
    made = etcd.put(mark, OTHER)
    etcd.put(mark, VALUE)  # written since: only where it began counts
    marks = (Landmark(mark, made), Landmark(prefix + b"none", 0))
    for change in (delete, put, put):
        assert change(client, key, *marks).applied


def test_the_request_says_no_more_than_it_must(target: Target) -> None:
    requests: list[bytes] = []

    def note(path: str, request: bytes) -> None:
        if path == TXN:
            requests.append(request)

    target.proxy.before = note
    key, one, none = target.key, target.prefix + b"one", target.prefix + b"none"
    marks = (Landmark(one, target.etcd.put(one, OTHER)), Landmark(none, 0))
    target.etcd.delete(key)
    with connected(target.proxy.endpoint) as through:
        created = put(through, key, *marks).revision
        delete(through, key, *marks)
    create, remove = (writer_module._message("TxnRequest").FromString(raw) for raw in requests)
    surroundings = [(1, 0, one, marks[0].create_revision), (1, 0, none, 0)]

    def compared(request: Any) -> list[tuple[int, int, bytes, int]]:
        names = {number: name for name, number in writer_module._TARGETS.items()}
        return [(c.target, c.result, c.key, getattr(c, names[c.target])) for c in request.compare]

    assert compared(create) == [(1, 0, key, 0), *surroundings]
    assert compared(remove) == [(0, 0, key, 1), (1, 0, key, created), (2, 0, key, created), *surroundings]
    for request in (create, remove):
        asked = [(each.request_range.key, each.request_range.keys_only) for each in request.failure]
        assert asked == [(key, False), (one, True), (none, True)]
        assert len(request.success) == 1
        # Nothing that our messages do not know, such as a range_end.
        assert request.SerializeToString() in requests


# Silence, and a no.


def test_an_answer_lost_after_the_deed(target: Target) -> None:
    target.proxy.lost = {TXN}
    with pytest.raises(TransactionUnanswered, match="may have been carried out") as caught:
        target.send()
    assert target.proxy.endpoint in caught.value.message
    assert (caught.value.ended, caught.value.exit_code) == (False, 3)
    assert target.proxy.calls.count(TXN) == 1
    assert target.now() is None


def test_a_deed_whose_end_nobody_tells(target: Target, monkeypatch: Patch) -> None:
    """gRPC's thread died when the answer came; the same for a read ahead, when nothing has been sent."""
    expected = at(target.key, target.expected)
    with monkeypatch.context() as patch:
        patch.setattr(Answer, "wait", never_told)
        with pytest.raises(TransactionNotSent, match="gRPC stands still"):
            send_transaction(target.client, expected, None)
    assert target.now() == target.expected
    send = ReadOnlyChannel._send

    def answered_and_not_told(self: ReadOnlyChannel, call: Any, *arguments: Any) -> Answer:
        answer = send(self, call, *arguments)
        if call not in self._calls.values():  # it is no read
            assert answer.wait(5)
            answer.wait = partial(never_told, answer)  # type: ignore[method-assign]
        return answer

    monkeypatch.setattr(ReadOnlyChannel, "_send", answered_and_not_told)
    with pytest.raises(TransactionUnanswered, match="gRPC stands still"):
        send_transaction(target.client, expected, None)
    assert target.now() is None


@pytest.mark.parametrize("value", [None, OTHER])
def test_a_connection_that_ends_before_the_deed(
    target: Target, monkeypatch: Patch, value: bytes | None
) -> None:
    """gRPC would make it anew inside the call, and carry the transaction to whoever is there then."""
    look = _TxnChannel.look

    def at_the_end(channel: _TxnChannel, asked: Expected) -> Any:
        seen = look(channel, asked)
        channel._relay.close()  # its last frames have passed then
        return seen

    monkeypatch.setattr(_TxnChannel, "look", at_the_end)
    with pytest.raises(TransactionNotSent, match="a change never goes out on a new one") as caught:
        target.send(value)
    assert (caught.value.exit_code, target.now()) == (5, target.expected)


def test_a_connection_that_ends_while_the_landmarks_are_read(target: Target) -> None:
    with CuttingProxy(target.etcd.endpoint) as passing, connected(passing.endpoint) as through:
        expected = at(target.key, stored(through, target.key), *[Landmark(target.prefix + b"none", 0)] * 50)
        passing.arm(CutPoint(upwards=False, frames=20), target.etcd.endpoint)  # three for each answer
        with pytest.raises(TransactionNotSent, match="a change never goes out on a new one"):
            send_transaction(through, expected, None)
        assert passing.was_cut
    assert target.now() == target.expected


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("UNAVAILABLE", "failed to connect to all addresses; last error: connection refused"),
        Refusal("UNAVAILABLE", "etcdserver: request timed out"),
        NO_LEADER,
        # Said at the door, but also by the applier, of a transaction that it has carried out.
        Refusal("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded"),
        Refusal("UNKNOWN", "not etcdserver: permission denied"),
        # What gRPC makes of a proxy's HTTP 403, and of a stream that it ended.
        Refusal("PERMISSION_DENIED", "Received http2 header with status: 403"),
        Refusal("RESOURCE_EXHAUSTED", "Stream removed"),
        Refusal("FAILED_PRECONDITION", "etcdserver: some words of a newer one"),
        Refusal("INTERNAL", ""),
    ],
)
def test_a_no_that_proves_nothing(target: Target, refusal: Refusal) -> None:
    target.at_transaction(lambda: refusal)
    with pytest.raises(TransactionUnanswered) as caught:
        target.send()
    ended = refusal.details.startswith("etcdserver: ") and refusal.code != "UNAVAILABLE"
    assert caught.value.ended is ended
    # Not asked again: neither there nor at the other endpoint.
    assert target.proxy.calls.count(TXN) == 1
    assert target.now() == target.expected


@pytest.mark.parametrize("words", ["permission denied", "request is too large", "requested lease not found"])
def test_a_no_that_etcd_gives_before_it_writes(target: Target, words: str) -> None:
    target.at_transaction(lambda: Refusal("UNKNOWN", f"etcdserver: {words}"))
    with pytest.raises(TransactionRefused, match="nothing was changed"):
        target.send()


@pytest.mark.parametrize("call", ["bind", "listen"])
def test_without_a_socket_of_its_own_nothing_is_sent(target: Target, monkeypatch: Patch, call: str) -> None:
    """No file descriptors are left, or abstract sockets are denied: that is certain, and known ahead."""
    probe_connection(target.client)

    class Denied(socket.socket):
        pass

    def deny(*_given: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    setattr(Denied, call, deny)
    monkeypatch.setattr(socket, "socket", Denied)
    for attempt in (lambda: delete(target.client, target.key), lambda: probe_connection(target.client)):
        with pytest.raises(TransactionNotSent, match="no socket of its own"):
            attempt()
    monkeypatch.undo()
    assert target.now() == target.expected


def channel_to(endpoint: str, material: TLSMaterial | None = None, **options: Any) -> _TxnChannel:
    parsed = parse_endpoint(endpoint, has_tls_material=material is not None)
    connection = EtcdConnection(command_timeout_seconds=20.0, **options)
    client: Any = SimpleNamespace(connection=connection, material=material or TLSMaterial(), cluster_id=0)
    return _TxnChannel(client, parsed, ())


@pytest.mark.parametrize("trouble", ["refused-stream", "goaway", "cut"])
def test_grpc_sends_nothing_again_by_itself(trouble: str) -> None:
    with RawHTTP2(trouble) as server, channel_to(server.endpoint) as channel:
        with pytest.raises((TransactionUnanswered, TransactionNotSent)):
            channel.commit(writer_module._message("TxnRequest")())
        assert server.requests == 1


def test_the_next_endpoint_is_taken_before_anything_is_sent(target: Target) -> None:
    target.proxy.before = lambda path, _request: NO_LEADER if path == RANGE else None
    answer = target.send()
    assert (answer.applied, answer.endpoint) == (True, target.etcd.endpoint)
    assert TXN not in target.proxy.calls


def test_a_no_to_the_user_is_not_taken_elsewhere(target: Target) -> None:
    denied = Refusal("PERMISSION_DENIED", "etcdserver: permission denied")
    target.proxy.before = lambda path, _request: denied if path == RANGE else None
    with pytest.raises(TransactionRefused, match="no transaction was sent"):
        target.send()
    assert target.now() == target.expected


def test_an_endpoint_that_leads_to_another_cluster_now(target: Target) -> None:
    expected = at(target.key, target.expected)
    with connected(target.proxy.endpoint) as through:
        assert through.cluster_id
        # The header is field 1 of every answer, and its fields merge: the last one counts.
        target.proxy.rewrite = lambda _path, answer: answer + b"\x0a\x02\x08\x07"
        with pytest.raises(TransactionNotSent, match=r"belongs to cluster 7, not to [0-9a-f]+"):
            send_transaction(through, expected, None)
    assert TXN not in target.proxy.calls
    assert target.now() == target.expected


# An answer that contradicts.


def _of(found: Any) -> Any:
    return found.responses[0].response_delete_range


def _other_branch(found: Any) -> None:
    found.responses[0].Clear()
    found.responses[0].response_range.SetInParent()


def _failed(found: Any) -> None:
    found.succeeded = False
    found.responses[0].response_range.kvs.append(_of(found).prev_kvs[0])
    found.responses[0].ClearField("response_delete_range")


@pytest.mark.parametrize(
    ("contradict", "keeps_value"),
    [
        (lambda found: found.responses.clear(), False),
        (lambda found: found.responses.append(found.responses[0]), True),
        (_other_branch, False),
        (lambda found: setattr(_of(found), "deleted", 2), True),
        (lambda found: _of(found).prev_kvs.append(_of(found).prev_kvs[0]), True),
        (lambda found: _of(found).ClearField("prev_kvs"), False),
        (lambda found: setattr(_of(found).prev_kvs[0], "key", b"another"), True),
        (lambda found: setattr(_of(found).prev_kvs[0], "mod_revision", 1), True),
        (lambda found: setattr(found.header, "cluster_id", 7), True),
        (_failed, False),
    ],
    ids=[
        "no responses", "two responses", "other branch", "two deleted", "two previous", "no previous",
        "another key", "another state", "another cluster", "failed",
    ],
)  # fmt: skip
def test_an_answer_that_contradicts(
    target: Target, contradict: Callable[[Any], None], keeps_value: bool
) -> None:
    target.answer_otherwise(contradict)
    with pytest.raises(TransactionAnomaly) as caught:
        target.send()
    assert caught.value.exit_code == 3
    previous = caught.value.answer.previous
    assert (previous is not None and previous.value == VALUE) is keeps_value


@pytest.mark.parametrize(
    "tell",
    [
        lambda found: setattr(found.responses[1].response_range.kvs[0], "key", b"another"),
        lambda found: found.responses.pop(),
        lambda found: found.responses[1].Clear(),
    ],
)
def test_a_refusal_that_does_not_tell_of_the_landmarks(target: Target, tell: Callable[[Any], None]) -> None:
    mark = target.prefix + b"mark"
    landmark = Landmark(mark, target.etcd.put(mark, OTHER))
    target.at_transaction(lambda: _rewrite(target))
    target.answer_otherwise(tell)
    with pytest.raises(TransactionAnomaly):
        target.send(None, landmark)


# Where etcd is, and who asks.


@pytest.fixture(scope="module")
def secured(start_etcd: StartEtcd, authority: CertificateAuthority) -> EtcdServer:
    return start_etcd(authority=authority, client_certificates=True)


@pytest.fixture
def certified(authority: CertificateAuthority) -> dict[str, str]:
    files = authority.issue("client")
    return {"cacert": str(authority.cert), "cert": str(files.cert), "key": str(files.key)}


@pytest.mark.parametrize(
    ("where", "tls"), [("name", True), ("IPv4", False), ("IPv6", True), ("socket", True), ("socket", False)]
)
def test_wherever_etcd_listens(
    etcd: EtcdServer,
    secured: EtcdServer,
    certified: dict[str, str],
    prefix: bytes,
    tmp_path: Path,
    monkeypatch: Patch,
    where: str,
    tls: bool,
) -> None:
    """With and without TLS; what ``http_proxy`` says is for other connections."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    server, key = secured if tls else etcd, prefix + b"k"
    with CuttingProxy(server.endpoint, _listener(where, tmp_path)) as passing:
        endpoint = passing.endpoint
        if where == "name":
            endpoint = endpoint.replace("127.0.0.1", "localhost")
        if tls:
            endpoint = endpoint.replace("unix:", "unixs:") if where == "socket" else f"https://{endpoint}"
        server.put(key, VALUE)
        with connected(endpoint, **(certified if tls else {})) as client:
            answer = delete(client, key, Landmark(b"/none", 0))
        assert (answer.applied, answer.endpoint) == (True, endpoint)


def _listener(where: str, folder: Path) -> socket.socket | None:
    if where == "IPv6":
        return socket.create_server(("::1", 0), family=socket.AF_INET6)
    if where == "socket":  # the name of the file stands for the host in a certificate
        found = socket.socket(socket.AF_UNIX)
        found.bind(str(folder / "localhost:1"))
        found.listen()
        return found
    return None


def test_a_certificate_for_another_host(
    secured: EtcdServer, certified: dict[str, str], authority: CertificateAuthority
) -> None:
    """What gRPC connects to is a relay; whom the certificate must name is the endpoint, unless nobody checks it."""
    cert, key = Path(certified["cert"]).read_bytes(), Path(certified["key"]).read_bytes()
    material = TLSMaterial(roots=authority.cert.read_bytes(), certificate=cert, private_key=key)
    with (
        CuttingProxy(secured.endpoint, socket.create_server(("127.0.0.2", 0))) as passing,
        channel_to(f"https://{passing.endpoint}", material) as channel,
        pytest.raises(CallFailed, match="does not name this host"),
    ):
        channel.look(at(b"k"))
    files = authority.issue("server", hosts=("etcd-0.internal",))
    with EtcdProxy("127.0.0.1:9", certificate=files) as proxy:
        proxy.before = lambda _path, _request: NO_LEADER
        with (
            channel_to(f"https://{proxy.endpoint}", TLSMaterial(), insecure_skip_tls_verify=True) as channel,
            pytest.raises(CallFailed, match="no leader"),
        ):
            channel.look(at(b"k"))
    with connected(secured.endpoint, insecure_skip_tls_verify=True, **certified) as client:
        assert put(client, b"/unchecked").applied


@pytest.fixture(scope="module")
def guarded(start_etcd: StartEtcd) -> EtcdServer:
    etcd = start_etcd()
    etcd.put_all([(b"/readable/k", VALUE), (b"/other/k", VALUE)])
    etcd.require_login(b"/readable/")
    return etcd


def as_user(etcd: EtcdServer, user: tuple[str, str]) -> Any:
    return connected(etcd.endpoint, user=user[0], password=user[1])


def test_a_user_who_may_only_read(guarded: EtcdServer) -> None:
    with as_user(guarded, READER) as client:
        with pytest.raises(TransactionRefused, match="permission denied; nothing was changed") as caught:
            delete(client, b"/readable/k")
        assert caught.value.hint.endswith("etcdctl role grant-permission ROLE readwrite KEY")
        expected = stored(client, b"/readable/k")
        assert expected is not None
        with pytest.raises(TransactionRefused, match="no transaction was sent"):
            send_transaction(client, at(b"/other/k", expected), None)


def test_a_user_who_may_write(guarded: EtcdServer) -> None:
    with as_user(guarded, ROOT_USER) as client:
        expected = at(b"/other/k", stored(client, b"/other/k"))
        # The token that the client holds is worth nothing any more; the writer logs in for itself.
        guarded.forget_tokens()
        assert send_transaction(client, expected, None).applied


def test_a_password_that_was_changed_meanwhile(guarded: EtcdServer) -> None:
    user = ("ada", "the first one")
    guarded.add_reader(user, "of-ada", b"/readable/")
    with as_user(guarded, user) as client:
        expected = at(b"/readable/k", stored(client, b"/readable/k"))
        guarded.etcdctl("user", "passwd", "--interactive=false", user[0], input=b"another one")
        refused = r"invalid user ID or password.*no transaction was sent"
        with pytest.raises(TransactionRefused, match=refused) as caught:
            send_transaction(client, expected, None)
    assert user[1] not in str(caught.value)


# What else could write.


def test_only_the_writer_calls_a_method_that_writes(etcd: EtcdServer, prefix: bytes) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    with EtcdProxy(etcd.endpoint) as proxy, connected(proxy.endpoint) as client:
        expected = at(key, stored(client, key), Landmark(prefix + b"none", 0))
        survey_members(client, key)
        read_alarms(client)
        read_lease(client, 7)
        EtcdNow(client).sight(key, expected.landmarks)
        EtcdNow(client).landmarks(StorageLayout(prefix.decode()), target=key)
        probe_connection(client)
        assert set(proxy.calls) <= set(READ_METHODS)
        asked = len(proxy.calls)
        send_transaction(client, expected, None)
        assert proxy.calls[asked:] == [RANGE, RANGE, TXN]


def test_nothing_else_in_the_package_could() -> None:
    package = Path(etcdfix.__file__).parent
    text = {path.relative_to(package).as_posix(): path.read_text() for path in package.rglob("*.py")}
    # What tests write with; import-linter sees to it that nothing else of the package imports it.
    text = {name: content for name, content in text.items() if not name.startswith("testing/")}
    for word, places in {
        'KV/Txn"': {"remediation/writer.py"},
        "open_transport": {"remediation/writer.py", "sources/etcd/channel.py"},
        "request_put": {"remediation/writer.py"},
        "request_delete_range": {"remediation/writer.py"},
    }.items():
        assert {name for name, content in text.items() if word in content} == places


def test_stored_bytes_are_in_no_repr() -> None:
    record = StoredValue(b"k", b"hush", 5, 4, 2, 0)
    answer = TxnAnswer(previous=record, returned=(record,), revision=6, cluster_id=1, endpoint="e")
    for shown in (record, answer, at(b"k", record), TransactionAnomaly("x", answer=answer)):
        assert "hush" not in repr(shown)
