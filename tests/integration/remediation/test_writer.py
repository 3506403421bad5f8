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
from etcdfix.remediation.datastore import EtcdNow, Expected, Landmark, Landmarks, find_difference
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


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[EtcdClient]:
    with connected(etcd.endpoint) as opened:
        yield opened


@pytest.fixture
def proxy(etcd: EtcdServer) -> Iterator[LossyProxy]:
    with LossyProxy(etcd.endpoint) as server:
        yield server


def stored(client: EtcdClient, key: bytes) -> StoredValue | None:
    return EtcdNow(client).read_key(key).stored


def examined(client: EtcdClient, key: bytes) -> StoredValue:
    found = stored(client, key)
    assert found is not None
    return found


def at(key: bytes, expected: StoredValue | None = None, *marks: Landmark, revision: int = 0) -> Expected:
    return Expected(key=key, stored=expected, landmarks=Landmarks(marks, revision))


def delete(client: EtcdClient, key: bytes, expected: StoredValue, *marks: Landmark) -> TxnAnswer:
    return send_transaction(client, at(key, expected, *marks), None)


def put(
    client: EtcdClient,
    key: bytes,
    value: bytes,
    expected: StoredValue | None = None,
    *marks: Landmark,
    lease: int = 0,
) -> TxnAnswer:
    return send_transaction(client, at(key, expected, *marks), value, lease=lease)


def channel_to(endpoint: str, material: TLSMaterial | None = None, **options: Any) -> _TxnChannel:
    parsed = parse_endpoint(endpoint, has_tls_material=material is not None)
    connection = EtcdConnection(command_timeout_seconds=20.0, **options)
    client: Any = SimpleNamespace(connection=connection, material=material or TLSMaterial(), cluster_id=0)
    return _TxnChannel(client, parsed, ())


def grant(etcd: EtcdServer) -> str:
    return etcd.etcdctl("lease", "grant", "86400").decode().split()[1]


def test_a_deletion_returns_what_was_there(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    key, neighbour = prefix + b"k", prefix + b"k0"
    etcd.put(key, OTHER)
    revision = etcd.put(key, VALUE)
    etcd.put(neighbour, OTHER)
    before = stored(client, key)
    answer = delete(client, key, examined(client, key))
    assert answer.applied
    assert answer.previous == before == StoredValue(key, VALUE, revision, revision - 1, 2, 0)
    reading = EtcdNow(client).read_key(key)
    assert reading.stored is None
    assert (answer.revision, answer.cluster_id) == (reading.revision, reading.cluster_id)
    assert answer.endpoint == etcd.endpoint
    # Exactly one key: not even the one that comes next.
    assert stored(client, neighbour) is not None


def test_a_key_of_any_bytes(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    for key in (prefix + b"\x00", prefix + b"\xff\xfe", prefix):
        etcd.put_all([(key, VALUE)])
        answer = delete(client, key, examined(client, key))
        assert answer.previous is not None
        assert answer.previous.key == key
    assert etcd.etcdctl("get", "--prefix", prefix.decode()) == b""


def _rewrite(etcd: EtcdServer, key: bytes) -> None:
    etcd.put(key, VALUE)


def _remove(etcd: EtcdServer, key: bytes) -> None:
    etcd.delete(key)


def _create_again(etcd: EtcdServer, key: bytes) -> None:
    etcd.delete(key)
    etcd.put(key, VALUE)


@pytest.mark.parametrize(
    ("intrude", "words"),
    [
        (_rewrite, r"the key was written again: mod_revision (\d+) instead of (\d+)"),
        (_remove, r"the key is gone; it stood at mod_revision \d+"),
        (_create_again, r"the key was deleted and created again at revision (\d+): mod_revision \1 instead"),
    ],
)
@pytest.mark.parametrize("change", ["delete", "put"])
@pytest.mark.parametrize("moment", ["before the read", "after it"])
def test_somebody_else_was_quicker(
    proxy: LossyProxy,
    etcd: EtcdServer,
    client: EtcdClient,
    prefix: bytes,
    intrude: Callable[[EtcdServer, bytes], None],
    words: str,
    change: str,
    moment: str,
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    expected = examined(client, key)
    with connected(proxy.endpoint) as through:
        if moment == "before the read":
            intrude(etcd, key)
        else:
            proxy.before = lambda path, _request: intrude(etcd, key) if path == TXN else None
        answer = delete(through, key, expected) if change == "delete" else put(through, key, OTHER, expected)
    now = EtcdNow(client).read_key(key)
    assert not answer.applied
    assert answer.sent == (TXN in proxy.calls) == (moment == "after it")
    assert answer.previous is None
    assert answer.difference is not None
    assert answer.difference.rule == Rule.MOVED
    assert re.match(words, answer.difference.text)
    assert now.revision == answer.revision
    if now.stored is not None:
        assert now.stored.value == VALUE


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
def test_each_number_is_compared(
    proxy: LossyProxy, etcd: EtcdServer, client: EtcdClient, prefix: bytes, field: str
) -> None:
    key = prefix + b"k"
    etcd.put(key, OTHER)
    etcd.put(key, VALUE)
    right = examined(client, key)
    with connected(proxy.endpoint) as through:
        for step in (-1, 1):
            number = getattr(right, field) + step
            wrong = msgspec.structs.replace(right, **{field: number})
            assert not delete(through, key, wrong).sent
            assert not put(through, key, OTHER, wrong).sent
            _read_as(proxy, **{field: number})
            for answer in (delete(through, key, wrong), put(through, key, OTHER, wrong)):
                assert (answer.sent, answer.applied) == (True, False)
            proxy.rewrite = lambda _path, answer: answer
    assert stored(client, key) == right


@pytest.mark.parametrize("fields", [{"value": OTHER}, {"lease": 0x77}])
@pytest.mark.parametrize("change", ["delete", "put"])
def test_the_same_revisions_with_something_else(
    proxy: LossyProxy,
    etcd: EtcdServer,
    client: EtcdClient,
    prefix: bytes,
    fields: dict[str, Any],
    change: str,
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    expected = msgspec.structs.replace(examined(client, key), **fields)
    with connected(proxy.endpoint) as through:
        answer = delete(through, key, expected) if change == "delete" else put(through, key, OTHER, expected)
    assert (answer.applied, answer.sent) == (False, False)
    assert answer.difference is not None
    assert answer.difference.rule == Rule.OTHER_CLUSTER
    assert "with another value or lease" in answer.difference.text
    assert TXN not in proxy.calls
    assert stored(client, key) is not None


@pytest.mark.parametrize("moment", ["before the read", "after it"])
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("change", ["delete", "put", "create"])
def test_each_landmark_is_compared(
    proxy: LossyProxy,
    etcd: EtcdServer,
    client: EtcdClient,
    prefix: bytes,
    change: str,
    moment: str,
    *,
    absent: bool,
) -> None:
    key, first, second = prefix + b"k", prefix + b"one", prefix + b"two"
    if change != "create":
        etcd.put(key, VALUE)
    before = stored(client, key)
    made = etcd.put(first, OTHER)
    if not absent:
        etcd.put(second, OTHER)
    marks = (Landmark(first, made), Landmark(second, 0 if absent else etcd.revision()))

    def intrude(path: str, _request: bytes) -> None:
        if path == TXN:
            etcd.put(second, OTHER) if absent else etcd.delete(second)

    with connected(proxy.endpoint) as through:
        if moment == "after it":
            proxy.before = intrude
        else:
            intrude(TXN, b"")
        if change == "delete":
            assert before is not None
            answer = delete(through, key, before, *marks)
        else:
            answer = put(through, key, OTHER, before, *marks)
    assert (answer.applied, answer.sent) == (False, moment == "after it")
    assert answer.difference is not None
    assert answer.difference.rule == Rule.OTHER_CLUSTER
    words = "was made at revision" if absent else "is gone"
    assert f"{second.decode()} {words}" in answer.difference.text
    assert stored(client, key) == before


def test_landmarks_that_stand(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    key, mark = prefix + b"k", prefix + b"mark"
    etcd.put(key, VALUE)
    made = etcd.put(mark, OTHER)
    etcd.put(mark, VALUE)  # written since: only where it began counts
    marks = (Landmark(mark, made), Landmark(prefix + b"none", 0))
    assert delete(client, key, examined(client, key), *marks).applied
    assert put(client, key, VALUE, None, *marks).applied
    assert put(client, key, OTHER, examined(client, key), *marks).applied
    assert examined(client, mark).value == VALUE


def test_a_value_put_where_nothing_is(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    key = prefix + b"k"
    answer = put(client, key, VALUE)
    assert answer.applied
    assert answer.previous is None
    assert stored(client, key) == StoredValue(key, VALUE, answer.revision, answer.revision, 1, 0)
    again = put(client, key, OTHER)
    assert not again.applied
    assert again.difference is not None
    assert again.difference.text == (
        f"the key exists: created at revision {answer.revision}, mod_revision {answer.revision}"
    )


def test_a_value_replaced_keeps_the_lease(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    key, lease = prefix + b"k", grant(etcd)
    etcd.etcdctl("put", f"--lease={lease}", "--", key.decode(), "broken")
    expected = examined(client, key)
    answer = put(client, key, VALUE, expected, lease=int(lease, 16))
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


def test_an_answer_lost_after_the_deed(
    proxy: LossyProxy, etcd: EtcdServer, client: EtcdClient, prefix: bytes
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    proxy.lost = {TXN}
    with connected(proxy.endpoint) as through:
        expected = examined(through, key)
        with pytest.raises(TransactionUnanswered, match="may have been carried out") as caught:
            delete(through, key, expected)
    assert proxy.endpoint in caught.value.message
    assert (caught.value.ended, caught.value.exit_code) == (False, 3)
    assert proxy.calls.count(TXN) == 1
    assert stored(client, key) is None


def test_a_deed_whose_end_nobody_tells(
    etcd: EtcdServer, client: EtcdClient, prefix: bytes, monkeypatch: Patch
) -> None:
    """gRPC's thread died when the answer came; the same for a read ahead, when nothing has been sent."""
    key = prefix + b"k"
    etcd.put(key, VALUE)
    expected = examined(client, key)
    with monkeypatch.context() as patch:
        patch.setattr(Answer, "wait", never_told)
        with pytest.raises(TransactionNotSent, match="gRPC stands still"):
            delete(client, key, expected)
    assert stored(client, key) == expected
    send = ReadOnlyChannel._send

    def answered_and_not_told(self: ReadOnlyChannel, call: Any, *arguments: Any) -> Answer:
        answer = send(self, call, *arguments)
        if call not in self._calls.values():  # it is no read
            assert answer.wait(5)
            answer.wait = partial(never_told, answer)  # type: ignore[method-assign]
        return answer

    monkeypatch.setattr(ReadOnlyChannel, "_send", answered_and_not_told)
    with pytest.raises(
        TransactionUnanswered, match=r"gRPC stands still.*may have been carried out"
    ) as caught:
        delete(client, key, expected)
    assert caught.value.exit_code == 3
    assert stored(client, key) is None


@pytest.mark.parametrize("value", [None, OTHER])
def test_a_connection_that_ends_before_the_deed(
    etcd: EtcdServer, client: EtcdClient, prefix: bytes, monkeypatch: Patch, value: bytes | None
) -> None:
    """gRPC would make it anew inside the call, and carry the transaction to whoever is there then."""
    key = prefix + b"k"
    etcd.put(key, VALUE)
    expected = examined(client, key)
    look = _TxnChannel.look

    def at_the_end(channel: _TxnChannel, asked: Expected) -> Any:
        seen = look(channel, asked)
        channel._relay.close()  # its last frames have passed then
        return seen

    monkeypatch.setattr(_TxnChannel, "look", at_the_end)
    with pytest.raises(TransactionNotSent, match="a change never goes out on a new one") as caught:
        send_transaction(client, at(key, expected), value)
    assert (caught.value.exit_code, stored(client, key)) == (5, expected)


def test_a_connection_that_ends_while_the_landmarks_are_read(etcd: EtcdServer, prefix: bytes) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    with CuttingProxy(etcd.endpoint) as passing, connected(passing.endpoint) as through:
        expected = examined(through, key)
        passing.arm(CutPoint(upwards=False, frames=20), etcd.endpoint)  # three for each answer
        with pytest.raises(TransactionNotSent, match="a change never goes out on a new one"):
            delete(through, key, expected, *[Landmark(prefix + b"none", 0)] * 50)
        assert passing.was_cut
        assert examined(through, key) == expected


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("UNAVAILABLE", "failed to connect to all addresses; last error: connection refused"),
        Refusal("UNAVAILABLE", "etcdserver: request timed out"),
        Refusal("UNAVAILABLE", "etcdserver: leader changed"),
        NO_LEADER,
        # Said at the door, but also by the applier, of a transaction that it has carried out.
        Refusal("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded"),
        Refusal("UNKNOWN", "not etcdserver: permission denied"),
        # What gRPC makes of a proxy's HTTP 401, 403 and 404, and of a stream that it ended.
        Refusal("UNAUTHENTICATED", "Received http2 header with status: 401"),
        Refusal("PERMISSION_DENIED", "Received http2 header with status: 403"),
        Refusal("UNIMPLEMENTED", "Received http2 header with status: 404"),
        Refusal("RESOURCE_EXHAUSTED", "Stream removed"),
        Refusal("FAILED_PRECONDITION", ""),
        Refusal("FAILED_PRECONDITION", "etcdserver: some words of a newer one"),
        Refusal("INTERNAL", ""),
    ],
)
def test_a_no_that_proves_nothing(
    proxy: LossyProxy, etcd: EtcdServer, client: EtcdClient, prefix: bytes, refusal: Refusal
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    proxy.before = lambda path, _request: refusal if path == TXN else None
    expected = examined(client, key)
    with connected(proxy.endpoint, etcd.endpoint) as through, pytest.raises(TransactionUnanswered) as caught:
        delete(through, key, expected)
    ended = refusal.details.startswith("etcdserver: ") and refusal.code != "UNAVAILABLE"
    assert caught.value.ended is ended
    # Not asked again: neither there nor at the other endpoint.
    assert proxy.calls.count(TXN) == 1
    assert stored(client, key) is not None


@pytest.mark.parametrize(
    "words",
    [
        "permission denied", "invalid auth token", "user name is empty", "user name not found",
        "revision of auth store is old", "request is too large", "too many requests",
        "requested lease not found", "key is not provided",
    ],
)  # fmt: skip
def test_a_no_that_etcd_gives_before_it_writes(
    proxy: LossyProxy, etcd: EtcdServer, client: EtcdClient, prefix: bytes, words: str
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    refusal = Refusal("UNKNOWN", f"etcdserver: {words}")
    proxy.before = lambda path, _request: refusal if path == TXN else None
    expected = examined(client, key)
    with connected(proxy.endpoint) as through, pytest.raises(TransactionRefused, match="nothing was changed"):
        delete(through, key, expected)


@pytest.mark.parametrize("call", ["bind", "listen"])
def test_without_a_socket_of_its_own_nothing_is_sent(
    etcd: EtcdServer, client: EtcdClient, prefix: bytes, monkeypatch: Patch, call: str
) -> None:
    """No file descriptors are left, or abstract sockets are denied: that is certain, and known ahead."""
    key = prefix + b"k"
    etcd.put(key, VALUE)
    expected = examined(client, key)
    probe_connection(client)

    class Denied(socket.socket):
        pass

    def deny(*_given: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    setattr(Denied, call, deny)
    monkeypatch.setattr(socket, "socket", Denied)
    for attempt in (lambda: delete(client, key, expected), lambda: probe_connection(client)):
        with pytest.raises(TransactionNotSent, match="no socket of its own"):
            attempt()
    monkeypatch.undo()
    assert examined(client, key) == expected


@pytest.mark.parametrize("trouble", ["refused-stream", "goaway", "cut"])
def test_grpc_sends_nothing_again_by_itself(trouble: str) -> None:
    with RawHTTP2(trouble) as server, channel_to(server.endpoint) as channel:
        with pytest.raises((TransactionUnanswered, TransactionNotSent)):
            channel.commit(writer_module._message("TxnRequest")())
        assert server.requests == 1


def test_the_next_endpoint_is_taken_before_anything_is_sent(
    proxy: LossyProxy, etcd: EtcdServer, prefix: bytes
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    with connected(proxy.endpoint, etcd.endpoint) as through:
        expected = examined(through, key)
        proxy.before = lambda path, _request: NO_LEADER if path == RANGE else None
        answer = delete(through, key, expected)
    assert answer.applied
    assert answer.endpoint == etcd.endpoint
    assert TXN not in proxy.calls


@pytest.mark.parametrize(
    "denied",
    [
        Refusal("PERMISSION_DENIED", "etcdserver: permission denied"),
        Refusal("UNAUTHENTICATED", "etcdserver: invalid auth token"),
    ],
)
def test_a_no_to_the_user_is_not_taken_elsewhere(
    proxy: LossyProxy, etcd: EtcdServer, client: EtcdClient, prefix: bytes, denied: Refusal
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    with connected(proxy.endpoint, etcd.endpoint) as through:
        expected = examined(through, key)
        proxy.before = lambda path, _request: denied if path == RANGE else None
        with pytest.raises(TransactionRefused, match="no transaction was sent"):
            delete(through, key, expected)
    assert examined(client, key) == expected


def test_an_endpoint_that_leads_to_another_cluster_now(
    proxy: LossyProxy, etcd: EtcdServer, client: EtcdClient, prefix: bytes
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)

    def other_cluster(path: str, answer: bytes) -> bytes:
        # The header is field 1 of every answer, and its fields merge: the last one counts.
        return answer + b"\x0a\x02\x08\x07"

    with connected(proxy.endpoint) as through:
        expected = examined(through, key)
        proxy.rewrite = other_cluster
        with pytest.raises(TransactionNotSent, match=r"belongs to cluster 7, not to [0-9a-f]+"):
            delete(through, key, expected)
    assert TXN not in proxy.calls
    assert stored(client, key) is not None


def test_mutual_tls(start_etcd: StartEtcd, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "ca")
    etcd = start_etcd(authority=authority, client_certificates=True)
    files = authority.issue("client")
    etcd.put(b"/k", VALUE)
    options = {"cacert": str(authority.cert), "cert": str(files.cert), "key": str(files.key)}
    with connected(f"https://{etcd.endpoint}", **options) as client:
        assert delete(client, b"/k", examined(client, b"/k")).applied
    with connected(etcd.endpoint, insecure_skip_tls_verify=True, **options) as client:
        assert put(client, b"/k", VALUE).applied


@pytest.mark.parametrize("scheme", ["", "https"])
@pytest.mark.parametrize("where", ["name", "IPv4", "IPv6", "socket"])
def test_wherever_etcd_listens(
    start_etcd: StartEtcd, tmp_path: Path, monkeypatch: Patch, where: str, scheme: str
) -> None:
    """With and without TLS; what ``http_proxy`` says is for other connections."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    authority = CertificateAuthority(tmp_path / "ca") if scheme else None
    etcd = start_etcd(authority=authority)
    with CuttingProxy(etcd.endpoint, _listener(where, tmp_path)) as passing:
        endpoint = passing.endpoint
        if where == "name":
            endpoint = endpoint.replace("127.0.0.1", "localhost")
        if scheme:
            endpoint = endpoint.replace("unix:", "unixs:") if where == "socket" else f"https://{endpoint}"
        options = {"cacert": str(authority.cert)} if authority is not None else {}
        etcd.put(b"/k", VALUE)
        with connected(endpoint, **options) as client:
            answer = delete(client, b"/k", examined(client, b"/k"), Landmark(b"/none", 0))
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


def test_a_certificate_for_another_host(start_etcd: StartEtcd, tmp_path: Path) -> None:
    """What gRPC connects to is a relay; whom the certificate must name is the endpoint, unless nobody checks it."""
    authority = CertificateAuthority(tmp_path / "ca")
    etcd = start_etcd(authority=authority)
    material = TLSMaterial(roots=authority.cert.read_bytes())
    with (
        CuttingProxy(etcd.endpoint, socket.create_server(("127.0.0.2", 0))) as passing,
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
        expected = examined(client, b"/readable/k")
        with pytest.raises(TransactionRefused, match="permission denied; nothing was changed") as caught:
            delete(client, b"/readable/k", expected)
        assert caught.value.hint.endswith("etcdctl role grant-permission ROLE readwrite KEY")
        assert examined(client, b"/readable/k") == expected
        with pytest.raises(TransactionRefused, match="no transaction was sent"):
            delete(client, b"/other/k", expected)


def test_a_user_who_may_write(guarded: EtcdServer) -> None:
    with as_user(guarded, ROOT_USER) as client:
        expected = examined(client, b"/other/k")
        # The token that the client holds is worth nothing any more; the writer logs in for itself.
        guarded.forget_tokens()
        assert delete(client, b"/other/k", expected).applied
        assert put(client, b"/other/k", VALUE).applied


def _change(answer: bytes, change: Callable[[Any], None]) -> bytes:
    found = writer_module._message("TxnResponse").FromString(answer)
    change(found)
    return bytes(found.SerializeToString())


def _contradict(found: Any, how: str) -> None:
    (answer,) = found.responses
    deleted = answer.response_delete_range
    match how:
        case "no responses":
            found.responses.clear()
        case "two responses":
            found.responses.append(answer)
        case "other branch":
            answer.Clear()
            answer.response_range.SetInParent()
        case "two deleted":
            deleted.deleted = 2
        case "two previous":
            deleted.prev_kvs.append(deleted.prev_kvs[0])
        case "no previous":
            deleted.ClearField("prev_kvs")
        case "another key":
            deleted.prev_kvs[0].key = b"another"
        case "another state":
            deleted.prev_kvs[0].mod_revision += 1
        case "another cluster":
            found.header.cluster_id = 7
        case "failed":
            found.succeeded = False
            answer.response_range.kvs.append(deleted.prev_kvs[0])
            answer.ClearField("response_delete_range")


@pytest.mark.parametrize(
    ("how", "words", "keeps_value"),
    [
        ("no responses", "does not tell what was done", False),
        ("two responses", "does not tell what was done", True),
        ("other branch", "does not tell what was done", False),
        ("two deleted", "2 keys were deleted instead of one", True),
        ("two previous", "tells of another key", True),
        ("no previous", "not the one that was compared", False),
        ("another key", "tells of another key", True),
        ("another state", "not the one that was compared", True),
        ("another cluster", "comes from cluster 7, not [0-9a-f]+$", True),
        ("failed", "stands as it was expected, and yet the comparison failed", False),
    ],
)
def test_an_answer_that_contradicts(
    proxy: LossyProxy,
    etcd: EtcdServer,
    client: EtcdClient,
    prefix: bytes,
    how: str,
    words: str,
    keeps_value: bool,
) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    contradict = partial(_contradict, how=how)
    proxy.rewrite = lambda path, answer: _change(answer, contradict) if path == TXN else answer
    expected = examined(client, key)
    with connected(proxy.endpoint) as through, pytest.raises(TransactionAnomaly, match=words) as caught:
        delete(through, key, expected)
    assert caught.value.exit_code == 3
    previous = caught.value.answer.previous
    assert (previous is not None and previous.value == VALUE) is keeps_value


@pytest.mark.parametrize(
    ("tell", "words"),
    [
        (lambda found: setattr(found.responses[1].response_range.kvs[0], "key", b"another"), "another key"),
        (lambda found: found.responses.pop(), "does not tell what was done"),
        (lambda found: found.responses[1].Clear(), "does not tell what was done"),
    ],
)
def test_a_refusal_that_does_not_tell_of_the_landmarks(
    proxy: LossyProxy, etcd: EtcdServer, prefix: bytes, tell: Callable[[Any], None], words: str
) -> None:
    key, mark = prefix + b"k", prefix + b"mark"
    etcd.put(key, VALUE)
    landmark = Landmark(mark, etcd.put(mark, OTHER))

    def overtake(path: str, _request: bytes) -> None:
        if path == TXN:
            etcd.put(key, OTHER)

    proxy.before = overtake
    proxy.rewrite = lambda path, answer: _change(answer, tell) if path == TXN else answer
    with connected(proxy.endpoint) as through, pytest.raises(TransactionAnomaly, match=words):
        delete(through, key, examined(through, key), landmark)


def test_a_put_that_replaced_something_unasked(proxy: LossyProxy, etcd: EtcdServer, prefix: bytes) -> None:
    def replaced(found: Any) -> None:
        found.responses[0].response_put.prev_kv.key = prefix + b"k"
        found.responses[0].response_put.prev_kv.mod_revision = 3

    proxy.rewrite = lambda path, answer: _change(answer, replaced) if path == TXN else answer
    with (
        connected(proxy.endpoint) as through,
        pytest.raises(TransactionAnomaly, match="not the one that was compared"),
    ):
        put(through, prefix + b"k", VALUE)


def test_compare_is_evaluated_without_transaction(proxy: LossyProxy, etcd: EtcdServer, prefix: bytes) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    with connected(proxy.endpoint) as client:
        expected = examined(client, key)
        revision = etcd.revision()

        def rule(*question: Any, **more: Any) -> Rule | None:
            wanted = at(*question, **more)
            difference = find_difference(wanted, EtcdNow(client).sight(key, wanted.landmarks))
            return None if difference is None else difference.rule

        mark = Landmark(key, expected.create_revision)
        assert rule(key, expected, mark, revision=revision) is None
        assert rule(key, None) is Rule.MOVED
        assert rule(key, expected, Landmark(key, mark.create_revision - 1)) is Rule.OTHER_CLUSTER
        assert rule(key, expected, Landmark(prefix + b"none", 5)) is Rule.OTHER_CLUSTER
        assert rule(key, expected, revision=revision + 1) is Rule.OTHER_CLUSTER
        etcd.put(key, VALUE)
        assert rule(key, expected) is Rule.MOVED
        etcd.delete(key)
        assert rule(key, expected) is Rule.MOVED
        assert rule(key) is None
        assert etcd.revision() == revision + 2
    assert TXN not in proxy.calls


def test_only_the_writer_calls_a_method_that_writes(etcd: EtcdServer, prefix: bytes) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    lease = int(grant(etcd), 16)
    with EtcdProxy(etcd.endpoint) as proxy, connected(proxy.endpoint) as client:
        expected = examined(client, key)
        survey_members(client, key)
        read_alarms(client)
        read_lease(client, lease)
        EtcdNow(client).sight(key, Landmarks((Landmark(prefix + b"none", 0),)))
        EtcdNow(client).landmarks(StorageLayout(prefix.decode()), target=key)
        probe_connection(client)
        assert set(proxy.calls) <= set(READ_METHODS)
        asked = len(proxy.calls)
        delete(client, key, expected, Landmark(prefix + b"none", 0))
        assert proxy.calls[asked:] == [RANGE, RANGE, TXN]


def test_the_request_says_no_more_than_it_must(proxy: LossyProxy, etcd: EtcdServer, prefix: bytes) -> None:
    requests: list[bytes] = []

    def note(path: str, request: bytes) -> None:
        if path == TXN:
            requests.append(request)

    proxy.before = note
    key, one, none = prefix + b"k", prefix + b"one", prefix + b"none"
    marks = (Landmark(one, etcd.put(one, OTHER)), Landmark(none, 0))
    with connected(proxy.endpoint) as client:
        put(client, key, VALUE, None, *marks)
        expected = examined(client, key)
        delete(client, key, expected, *marks)
    create, remove = (writer_module._message("TxnRequest").FromString(raw) for raw in requests)
    surroundings = [(1, 0, one, marks[0].create_revision), (1, 0, none, 0)]

    def compared(request: Any) -> list[tuple[int, int, bytes, int]]:
        names = {number: name for name, number in writer_module._TARGETS.items()}
        return [(c.target, c.result, c.key, getattr(c, names[c.target])) for c in request.compare]

    assert compared(create) == [(1, 0, key, 0), *surroundings]
    assert compared(remove) == [
        (0, 0, key, 1), (1, 0, key, expected.create_revision), (2, 0, key, expected.mod_revision),
        *surroundings,
    ]  # fmt: skip
    for request in (create, remove):
        asked = [
            (operation.request_range.key, operation.request_range.keys_only) for operation in request.failure
        ]
        assert asked == [(key, False), (one, True), (none, True)]
        assert len(request.success) == 1
        # Nothing that our messages do not know, such as a range_end.
        assert request.SerializeToString() in requests


def test_nothing_else_in_the_package_could() -> None:
    package = Path(etcdfix.__file__).parent
    text = {path.relative_to(package).as_posix(): path.read_text() for path in package.rglob("*.py")}
    # What tests write with; import-linter sees to it that nothing else of the package imports it.
    text = {name: content for name, content in text.items() if not name.startswith("testing/")}
    assert not [name for name, content in text.items() if "etcdfix.testing" in content]
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
    assert repr(record) == "StoredValue(b'k', 4 bytes, mod_revision=5, create_revision=4, version=2, lease=0)"
    assert "hush" not in repr(answer)
    assert "hush" not in repr(at(b"k", record))
    assert "hush" not in repr(TransactionAnomaly("x", answer=answer))


def test_a_password_that_was_changed_meanwhile(start_etcd: StartEtcd) -> None:
    etcd = start_etcd()
    etcd.put(b"/k", VALUE)
    etcd.require_login(b"/")
    with as_user(etcd, READER) as client:
        expected = examined(client, b"/k")
        etcd.etcdctl("user", "passwd", "--interactive=false", READER[0], input=b"another one")
        with pytest.raises(
            TransactionRefused, match=r"invalid user ID or password.*no transaction was sent"
        ) as caught:
            delete(client, b"/k", expected)
    assert READER[1] not in str(caught.value)
