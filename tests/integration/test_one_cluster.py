"""Changes whose connection turns to another cluster on the way: one that was restored from the same snapshot.

The two have the same kube-system, the same cluster_id and member id, and stand at the same revisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import Record
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step
from etcdfix.remediation.errors import TransactionNotSent
from etcdfix.testing.servers import EtcdServer
from etcdfix.wire.etcd import READ_METHODS
from tests.support import objects
from tests.support.cutting_proxy import CutPoint, CuttingProxy
from tests.support.lossy_etcd import TXN, LossyProxy
from tests.support.remediation_ground import Ground, Recorded, delete, fix, reached, undo
from tests.support.thorough import some

pytestmark = pytest.mark.etcd

SENT = "transaction: before send"


class Twins:
    """Two clusters from one snapshot, and a proxy that leads to the first until it is turned."""

    def __init__(self, here: EtcdServer, there: EtcdServer, proxy: LossyProxy, ground: Ground) -> None:
        self.here, self.there, self.proxy = here, there, proxy
        self.ground = ground.through(proxy.endpoint)

    def turn(self) -> None:
        self.proxy.turn(self.there.endpoint)

    def part(self, key: bytes, here: bytes, there: bytes) -> None:
        assert self.here.put(key, here) == self.there.put(key, there)

    def diverge(self) -> None:
        self.here.put(
            f"{self.ground.prefix}/namespaces/made-here".encode(), objects.namespace_object("made-here")
        )
        self.there.put(b"made-there", b"")
        assert self.here.revision() == self.there.revision()

    def last_record(self) -> Record:
        return list(read_records(self.ground.log))[-1]


Made = Callable[..., Twins]


@pytest.fixture(scope="module")
def snapshot_of(
    start_etcd: Callable[..., EtcdServer], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("snapshots")

    def take(encryption: str) -> Path:
        path = folder / f"{encryption}.db"
        if not path.exists():
            origin = start_etcd()
            found = ground(encryption)
            origin.put_all(found.furniture().items())
            origin.put(found.key("target"), found.broken("target"))
            origin.etcdctl("snapshot", "save", path)
            origin.stop()
        return path

    return take


def ground(encryption: str) -> Ground:
    return Ground(endpoints=(), prefix="/registry", encryption=encryption, folder="")


@pytest.fixture
def twins(
    start_etcd: Callable[..., EtcdServer], snapshot_of: Callable[[str], Path], tmp_path: Path
) -> Iterator[Made]:
    with ExitStack() as stack:

        def make(encryption: str = "plain") -> Twins:
            servers = [start_etcd(snapshot=snapshot_of(encryption), token="twins") for _ in range(2)]
            for server in servers:
                stack.callback(server.stop)
            proxy = stack.enter_context(LossyProxy(servers[0].endpoint))
            return Twins(servers[0], servers[1], proxy, ground(encryption).at(tmp_path / "places"))

        yield make


def test_twins_are_told_apart_by_nothing_that_they_say_of_themselves(twins: Made) -> None:
    pair = twins()
    pair.diverge()
    key = pair.ground.key("target")
    seen = []
    for server in (pair.here, pair.there):
        with reached(pair.ground.through(server.endpoint)) as cluster:
            uid = cluster.examiner.kube_system_uid(cluster.source)
            seen.append((uid, cluster.now.read_key(key)))
    assert seen[0] == seen[1]
    assert seen[0][1].stored is not None


@pytest.mark.parametrize("at", ["check: read the key", "confirm"])
def test_connection_that_turns_while_a_deletion_is_prepared(twins: Made, at: str) -> None:
    pair = twins()
    pair.diverge()
    key, revision = pair.ground.key("target"), pair.there.revision()
    with pytest.raises(RefusedByRule, match="this is another cluster or a restored copy") as refused:
        delete(pair.ground, key, Recorded({at: pair.turn}))
    assert (refused.value.rule, refused.value.exit_code) == (Rule.OTHER_CLUSTER, 4)
    assert TXN not in pair.proxy.calls
    assert pair.here.get(key) == pair.there.get(key) == pair.ground.broken("target")
    assert pair.here.revision() == pair.there.revision() == revision
    assert pair.last_record().outcome == "refused"
    assert verify(pair.ground.log).state is ChainState.WHOLE


Change = Callable[[Twins, Step], ChangeOutcome]


def _deletion(pair: Twins) -> Change:
    return lambda pair, step: delete(pair.ground, pair.ground.key("target"), step)


def _undo(pair: Twins) -> Change:
    key = pair.ground.key("target")
    backup = Path(delete(pair.ground, key).backups[0])
    pair.there.delete(key)
    return lambda pair, step: undo(pair.ground, backup, step)


def _reencryption(pair: Twins) -> Change:
    return lambda pair, step: fix(pair.ground, pair.ground.key("target"), "candidate", step)


@pytest.mark.parametrize(
    ("prepare", "encryption", "sent"),
    [
        (_deletion, "plain", True),
        (_undo, "plain", True),
        (_reencryption, "rotated", True),
        (_deletion, "plain", False),
    ],
)
def test_connection_that_turns_at_the_last_moment(
    twins: Made, prepare: Callable[[Twins], Change], encryption: str, sent: bool
) -> None:
    """Even between the last read and the transaction: the transaction itself finds out."""
    pair = twins(encryption)
    change = prepare(pair)
    pair.diverge()
    key, revision = pair.ground.key("target"), pair.there.revision()
    before = pair.there.get(key)
    pair.proxy.calls.clear()
    steps = Recorded({} if sent else {SENT: pair.turn})
    if sent:
        pair.proxy.before = lambda path, _request: pair.turn() if path == TXN else None
    with pytest.raises(RefusedByRule, match="this is another cluster or a restored copy") as refused:
        change(pair, steps)
    assert refused.value.rule == Rule.OTHER_CLUSTER
    assert pair.proxy.calls.count(TXN) == (1 if sent else 0)
    assert pair.there.get(key) == pair.here.get(key) == before
    assert pair.here.revision() == pair.there.revision() == revision
    assert pair.last_record().outcome == "refused"


def test_healthy_value_at_the_same_revisions(twins: Made) -> None:
    """Nothing that lasts was made since the snapshot, so all landmarks are the same; the value is not."""
    pair = twins()
    key = pair.ground.key("target")
    pair.part(key, pair.ground.broken("target"), objects.secret("target"))
    with pytest.raises(RefusedByRule, match="with another value or lease") as refused:
        delete(pair.ground, key, Recorded({SENT: pair.turn}))
    assert refused.value.rule == Rule.OTHER_CLUSTER
    assert TXN not in pair.proxy.calls
    assert pair.there.get(key) == objects.secret("target")
    assert pair.last_record().outcome == "refused"


def test_connection_that_is_cut_while_a_change_is_sent(twins: Made) -> None:
    """Wherever it is cut: what is reached then is a copy with a healthy value, which nothing but its bytes shows."""
    pair = twins("flipped")
    key, healthy = pair.ground.key("target"), pair.ground.readable("target")
    seen = []
    for point in (CutPoint(up, frames) for frames in some(range(1, 15), of=3) for up in (False, True)):
        while pair.there.revision() < pair.here.revision():
            pair.there.put(b"padding", b"")
        fixes = point.frames % 3 == 0
        broken = pair.ground.broken("target") if fixes else objects.secret("target")[:-3]
        pair.part(key, broken, healthy)
        revision = pair.there.revision()
        with CuttingProxy(pair.here.endpoint) as proxy:
            steps = Recorded({SENT: lambda: proxy.arm(point, pair.there.endpoint)})  # noqa: B023 - called at once
            try:
                there = pair.ground.through(proxy.endpoint)
                result = str((fix(there, key, "bit", steps) if fixes else delete(there, key, steps)).result)
            except TransactionNotSent as exc:
                result = exc.code
        here = pair.here.get(key)
        assert (pair.there.get(key), pair.there.revision()) == (healthy, revision), (point, result)
        if proxy.was_cut:
            seen.append(result)
        if result == "transaction-not-sent":
            assert here == broken, point
        elif result == "anomaly":  # what was read again there says nothing of what was done here
            assert proxy.was_cut, point
        else:
            assert (result, here) == (("fixed", healthy) if fixes else ("deleted", None)), point
    assert len(seen) >= 5
    assert "transaction-not-sent" in seen


def test_healthy_value_at_a_key_that_was_absent(twins: Made) -> None:
    pair = twins()
    change = _undo(pair)
    key = pair.ground.key("target")
    pair.here.put(b"made-here", b"")
    pair.there.put(key, objects.secret("target"))
    with pytest.raises(RefusedByRule, match="the key exists") as refused:
        change(pair, Recorded({SENT: pair.turn}))
    assert refused.value.rule == Rule.MOVED
    assert pair.there.get(key) == objects.secret("target")


def test_copy_that_is_behind(twins: Made) -> None:
    """No landmark differs, but a cluster's revision never goes back."""
    pair = twins()
    key = pair.ground.key("target")
    pair.here.put(b"made-here", b"")
    with pytest.raises(RefusedByRule, match="etcd stands at revision") as refused:
        delete(pair.ground, key, Recorded({SENT: pair.turn}))
    assert refused.value.rule == Rule.OTHER_CLUSTER
    assert pair.there.get(key) == pair.ground.broken("target")


def test_dry_run_sees_another_cluster_too(twins: Made) -> None:
    pair = twins()
    pair.diverge()
    key = pair.ground.key("target")
    with pytest.raises(RefusedByRule, match="this is another cluster or a restored copy") as refused:
        delete(pair.ground, key, Recorded({"preview only: compare": pair.turn}), dry_run=True)
    assert refused.value.rule == Rule.OTHER_CLUSTER
    assert set(pair.proxy.calls) <= set(READ_METHODS)


def test_answer_lost_and_another_cluster_asked(twins: Made) -> None:
    """The key is gone here, and stands there as it was examined: that is no proof that nothing happened."""
    pair = twins()
    pair.diverge()
    key = pair.ground.key("target")
    pair.proxy.lost = {TXN}
    outcome = delete(pair.ground, key, Recorded({"transaction: no answer": pair.turn}))
    assert outcome.result == "unknown"
    assert "another cluster" in outcome.detail
    assert (pair.here.get(key), pair.there.get(key)) == (None, pair.ground.broken("target"))
    assert len(verify(pair.ground.log).open_intents) == 1
