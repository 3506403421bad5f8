"""Deletions that are not alone: lost answers, other operators, other writers; and dry runs, which must be."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.cli.root import run
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import Record, RecordType
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from etcdfix.remediation.durable import no_step
from etcdfix.testing.servers import EtcdServer
from etcdfix.wire.etcd import READ_METHODS
from tests.faults.dying_delete import STAND_STILL, Mortals, Order
from tests.support import objects
from tests.support.change_deaths import Prepare, Scene, deletion, fixing, undoing
from tests.support.change_runs import unfolded
from tests.support.etcd_proxy import EtcdProxy, Refusal
from tests.support.lossy_etcd import TXN, LossyProxy, Withheld
from tests.support.objects import IDENTITY
from tests.support.remediation_ground import (
    REASON,
    Ground,
    Recorded,
    delete,
    lay_ground,
    reached,
    stands,
    undo,
)
from tests.support.thorough import some

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("short_pauses")]

Captured = pytest.CaptureFixture[str]
Lay = Callable[..., Ground]

SENT = "transaction: before send"
CUT = Refusal("UNAVAILABLE", "Socket closed")


@pytest.fixture
def lay(etcd: EtcdServer, prefix: bytes, tmp_path: Path) -> Lay:
    return lambda encryption="plain", **fields: lay_ground(etcd, prefix, encryption, **fields).at(
        tmp_path / "places"
    )


def put_broken(etcd: EtcdServer, ground: Ground, name: str = "target") -> bytes:
    etcd.put(ground.key(name), ground.broken(name))
    return ground.key(name)


def value_at(ground: Ground, key: bytes) -> bytes | None:
    with reached(ground) as cluster:
        found = stands(cluster, key)
    return None if found is None else found.value


def last_record(ground: Ground) -> Record:
    return list(read_records(ground.log))[-1]


def delete_by_command(
    capfd: Captured, tmp_path: Path, ground: Ground, key: bytes, *more: str
) -> tuple[int, str, str]:
    config = tmp_path / "config.yaml"
    config.write_bytes(objects.configuration_yaml(IDENTITY))
    code = run(
        [
            "delete",
            key.decode(),
            "--ignore-store-read-error-with-cluster-breaking-potential",
            f"--reason={REASON}",
            "--yes",
            f"--endpoints={','.join(ground.endpoints)}",
            f"--etcd-prefix={ground.prefix}",
            f"--encryption-config={config}",
            f"--audit-log={ground.log}",
            "--command-timeout=2s",
            *(f"--backup-dir={path}" for path in ground.places.backup_directories),
            *more,
        ]
    )
    captured = capfd.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("silent", [True, False])
def test_answer_lost_to_the_command(
    etcd: EtcdServer, lay: Lay, tmp_path: Path, capfd: Captured, *, applied: bool, silent: bool
) -> None:
    """Lost after etcd did it, or on its way; and etcd may be silent from then on: then the log is settled later."""
    ground = lay()
    key = put_broken(etcd, ground)
    with LossyProxy(etcd.endpoint) as proxy:

        def before(path: str, _request: bytes) -> Refusal | None:
            if path == TXN:
                return None if applied else CUT
            return CUT if silent and TXN in proxy.calls else None

        proxy.before, proxy.lost = before, {TXN}
        code, out, err = delete_by_command(capfd, tmp_path, ground.through(proxy.endpoint), key)
        outcome = "applied-or-gone" if applied else "not-applied"
        told = "UNKNOWN" if silent else outcome.upper()
        assert (code, out.startswith(f"{told}: ")) == (3, True), out + err
        assert ("could arrive later" in unfolded(out)) == (not silent and not applied)
        if silent:
            found = verify(ground.log)
            assert (found.state, len(found.open_intents)) == (ChainState.UNFINISHED, 1)
            # When etcd answers again, the command that it says to run says what became of it.
            proxy.before = None
            settle = shlex.split(out.partition("etcdfix log settle ")[2].partition("\n")[0])
            code = run(["log", "settle", *settle])
            assert (code, outcome in capfd.readouterr().out) == (0, True)
        assert proxy.calls.count(TXN) == 1
    assert value_at(ground, key) == (None if applied else ground.broken("target"))
    assert last_record(ground).outcome == outcome
    assert [backup.content.stored.value for backup in ground.backups()] == [ground.broken("target")]
    assert verify(ground.log).state is ChainState.WHOLE


def test_answer_lost_and_the_key_created_again(etcd: EtcdServer, lay: Lay) -> None:
    ground = lay()
    key = put_broken(etcd, ground)
    steps = Recorded({"transaction: no answer": lambda: etcd.put(key, objects.secret("target"))})
    with LossyProxy(etcd.endpoint) as proxy:
        proxy.lost = {TXN}
        outcome = delete(ground.through(proxy.endpoint), key, steps)
        assert proxy.calls.count(TXN) == 1
    assert outcome.result == "applied-or-gone"
    assert "created again" in outcome.detail
    assert value_at(ground, key) == objects.secret("target")


def test_transaction_that_arrives_after_everybody_gave_it_up(etcd: EtcdServer, lay: Lay) -> None:
    """Nobody can know that something still is on its way; what it deletes then is in a backup all the same."""
    ground = lay()
    key = put_broken(etcd, ground)
    with LossyProxy(etcd.endpoint) as proxy:
        withheld = Withheld(proxy)
        outcome = delete(ground.through(proxy.endpoint), key, command_timeout_seconds=2.0)
        assert withheld.holding.is_set()
        assert outcome.result == "not-applied"
        assert "the transaction was sent and may have been carried out" in outcome.detail
        assert value_at(ground, key) == ground.broken("target")
        withheld.release.set()
        assert withheld.passed.wait(30)
        assert proxy.calls.count(TXN) == 1
    assert value_at(ground, key) is None
    assert undo(ground, Path(outcome.backups[0])).result == "undone"
    assert value_at(ground, key) == ground.broken("target")
    assert verify(ground.log).state is ChainState.WHOLE


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded"),
        ("PERMISSION_DENIED", "a proxy says no"),
    ],
)
@pytest.mark.parametrize("done", [False, True])
def test_error_that_etcd_answers(
    etcd: EtcdServer, lay: Lay, tmp_path: Path, capfd: Captured, status: str, words: str, *, done: bool
) -> None:
    """The key says whether anything was done. After etcd's own word nothing is on its way."""
    ground = lay()
    key = put_broken(etcd, ground)
    with LossyProxy(etcd.endpoint) as proxy:

        def answer(path: str, _request: bytes) -> Refusal | None:
            if path != TXN:
                return None
            if done:
                etcd.delete(key)
            return Refusal(status, words)

        proxy.before = answer
        code, out, err = delete_by_command(capfd, tmp_path, ground.through(proxy.endpoint), key)
        assert proxy.calls.count(TXN) == 1
    outcome = "applied-or-gone" if done else "not-applied"
    assert (code, out.startswith(f"{outcome.upper()}: ")) == (3, True), out + err
    assert last_record(ground).outcome == outcome
    assert ("on its way" in unfolded(out)) == (not done and not words.startswith("etcdserver: "))
    assert (value_at(ground, key) is None) == done


CHANGES = pytest.mark.parametrize(
    ("prepare", "encryption", "key_lost"),
    [
        pytest.param(deletion, "plain", "", id="delete"),
        pytest.param(deletion, "lost", "aesgcm/v1/key1", id="delete, key declared lost"),
        pytest.param(undoing, "plain", "", id="undo"),
        pytest.param(fixing("revision"), "plain", "", id="fix from a revision"),
        pytest.param(fixing("candidate"), "rotated", "", id="fix from a candidate"),
        pytest.param(fixing("bit"), "flipped", "", id="fix of a bit"),
    ],
)


def prepared(etcd: EtcdServer, ground: Ground, prepare: Prepare) -> Scene:
    with reached(ground) as cluster:
        return prepare(etcd, ground, cluster, "target")


@CHANGES
def test_answer_to_any_change_lost(
    etcd: EtcdServer, lay: Lay, prepare: Prepare, encryption: str, key_lost: str
) -> None:
    """Bytes and revision show what was put; of a key that is gone nobody knows who deleted it."""
    ground = lay(encryption, key_lost=key_lost)
    scene = prepared(etcd, ground, prepare)
    with LossyProxy(etcd.endpoint) as proxy:
        proxy.lost = {TXN}
        outcome = scene.make(ground.through(proxy.endpoint), no_step, False)
        assert proxy.calls.count(TXN) == 1
    assert outcome.result == scene.reconciled
    with reached(ground) as cluster:
        assert scene.is_done(stands(cluster, scene.key))
    assert [backup.content.stored.value for backup in ground.backups()] == [ground.broken("target")]


_READ_PATHS = set(READ_METHODS)


@CHANGES
def test_dry_run_makes_the_same_checks_and_changes_nothing(
    etcd: EtcdServer, lay: Lay, prepare: Prepare, encryption: str, key_lost: str
) -> None:
    ground = lay(encryption, key_lost=key_lost, directories=("one", "two"))
    change = prepared(etcd, ground, prepare).make
    files = {path.name for path in (Path(ground.folder) / "one").iterdir()}
    revision = etcd.revision()
    dry, real = Recorded(), Recorded()
    with EtcdProxy(etcd.endpoint) as proxy:
        outcome = change(ground.through(proxy.endpoint), dry, True)
        assert set(proxy.calls) <= _READ_PATHS
    assert outcome.result is None
    assert outcome.revision == etcd.revision() == revision
    assert {path.name for path in (Path(ground.folder) / "one").iterdir()} == files
    assert last_record(ground).type == RecordType.DRY_RUN
    assert change(ground, real, False).result is not None
    assert etcd.revision() == revision + 1
    assert dry.until("preview") == real.until("preview")
    # From there on the real run asks and writes, the dry run tries out the places and the comparison.
    assert "confirm" in real.names
    assert "confirm" not in dry.names
    assert dry.names.count("probe: after fsync file") == 2
    assert "preview only: compare" in dry.names
    assert SENT not in dry.names
    assert verify(ground.log).state is ChainState.WHOLE


@pytest.mark.parametrize(
    ("value", "said", "rule"),
    [
        (objects.secret("target"), {}, Rule.READABLE),
        (objects.secret("other"), {}, Rule.INCONSISTENT),
        (None, {}, Rule.GONE),
        (objects.secret("target")[:-3], {"expected": 1}, Rule.EXPECTATION_DIFFERS),
        (objects.secret("target")[:-3], {"key_lost": "aesgcm/v1/key1"}, Rule.DECLARATION),
    ],
)
def test_dry_run_refuses_what_the_deletion_refuses(
    etcd: EtcdServer, lay: Lay, value: bytes | None, said: dict[str, Any], rule: Rule
) -> None:
    ground = msgspec.structs.replace(lay(), **said)
    key = ground.key("target")
    if value is not None:
        etcd.put(key, value)
    revision = etcd.revision()
    seen = []
    for dry_run in (True, False):
        steps = Recorded()
        with pytest.raises(RefusedByRule) as refused:
            delete(ground, key, steps, dry_run=dry_run)
        seen.append((refused.value.rule, refused.value.message, refused.value.exit_code, steps.names))
    assert seen[0] == seen[1]
    assert seen[0][0] == rule
    assert seen[0][2] == 4
    assert etcd.revision() == revision
    assert not ground.log.exists()


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Mortals, Mortals]]:
    with Mortals() as one, Mortals() as other:
        yield one, other


def test_two_operators_send_at_once_and_one_wins(
    etcd: EtcdServer, lay: Lay, two: tuple[Mortals, Mortals], tmp_path: Path
) -> None:
    first = lay()
    grounds = (first, first.at(tmp_path / "others-places"))
    for turn in range(2):
        key = put_broken(etcd, first, f"target-{turn}")
        revision = etcd.revision()
        for who, ground in zip(two, grounds, strict=True):
            who.start(Order(change="delete", ground=ground, subject=key.decode(), at=SENT, sent=STAND_STILL))
        for who in two:
            who.still()
        for who in two:
            who.go_on()
        answers = [who.end() for who in two]
        loser, winner = sorted(answers, key=lambda answer: answer.result)
        assert (winner.result, winner.error) == ("deleted", "")
        assert (loser.result, loser.rule, loser.exit_code) == ("", Rule.MOVED, 4)
        assert etcd.revision() == revision + 1
        outcomes = {last_record(ground).outcome for ground in grounds}
        assert outcomes == {"deleted", "refused"}
        assert {verify(ground.log).state for ground in grounds} == {ChainState.WHOLE}


def test_two_operators_with_one_log(etcd: EtcdServer, lay: Lay, two: tuple[Mortals, Mortals]) -> None:
    ground = lay()
    key = put_broken(etcd, ground)
    one, other = two
    order = Order(change="delete", ground=ground, subject=key.decode(), at=SENT, sent=STAND_STILL)
    one.start(order)
    one.still()
    # The second has examined the same value, and then waits for the log.
    order.at = "confirm"
    other.start(order)
    other.still()
    other.go_on()
    one.go_on()
    assert one.end().result == "deleted"
    told = other.end()
    assert (told.rule, told.exit_code) == (Rule.MOVED, 4)
    kept = [backup.content.stored for backup in ground.backups()]
    assert len(kept) == 2  # the second kept a copy before it learned
    assert kept[0] == kept[1]
    assert verify(ground.log).state is ChainState.WHOLE


@pytest.mark.parametrize("prepare", [undoing, fixing("bit")], ids=["undo", "fix"])
def test_put_against_somebody_who_writes(etcd: EtcdServer, lay: Lay, prepare: Prepare) -> None:
    """Also where what was written is what would have been put."""
    ground = lay("flipped" if prepare is not undoing else "plain")
    scene = prepared(etcd, ground, prepare)
    steps = Recorded({SENT: lambda: etcd.put(scene.key, ground.readable("target"))})
    with pytest.raises(RefusedByRule) as refused:
        scene.make(ground, steps, False)
    assert (refused.value.rule, refused.value.exit_code) == (Rule.MOVED, 4)
    assert value_at(ground, scene.key) == ground.readable("target")


def intrude(
    ground: Ground, put: Callable[[bytes], object], act: Callable[[bytes], object], *wanted: str
) -> Iterator[tuple[str, bytes, RefusedByRule]]:
    """Delete again and again, and do something meanwhile: at the steps of these names, or at one in three."""
    probe = Recorded()
    key = ground.key("target-0")
    put(key)
    assert delete(ground, key, probe).result == "deleted"
    steps = probe.until(SENT)
    for number in some(range(len(steps)), of=1 if wanted else 3):
        if wanted and (steps[number] not in wanted or steps[number] in steps[:number]):
            continue
        key, seen = ground.key(f"target-{number + 1}"), list[str]()
        put(key)

        def step(name: str, number: int = number, key: bytes = key, seen: list[str] = seen) -> None:
            if len(seen) == number:
                act(key)
            seen.append(name)

        with pytest.raises(RefusedByRule) as refused:
            delete(ground.at(Path(ground.folder) / str(number)), key, step)
        assert seen[number] == steps[number]
        assert refused.value.exit_code == 4
        yield steps[number], key, refused.value


def test_repaired_object_survives_whenever_it_is_repaired(etcd: EtcdServer, lay: Lay) -> None:
    ground = lay()
    seen = []
    with reached(ground) as cluster:

        def name_of(key: bytes) -> str:
            return key.rpartition(b"/")[2].decode()

        for name, key, refusal in intrude(
            ground,
            lambda key: etcd.put(key, ground.broken(name_of(key))),
            lambda key: etcd.put(key, ground.readable(name_of(key))),
        ):
            seen.append(name)
            now = stands(cluster, key)
            assert now is not None
            assert (now.value, now.version) == (ground.readable(name_of(key)), 2)
            early = name in ("check: landmarks", "check: read the key")
            assert refusal.rule == (Rule.READABLE if early else Rule.MOVED)
    assert len(seen) > 15


@pytest.mark.parametrize("again", [True, False])
def test_object_that_is_deleted_meanwhile(etcd: EtcdServer, lay: Lay, *, again: bool) -> None:
    """Created again with the very same bytes it is another object, and survives."""
    ground = lay()
    seen = []
    with reached(ground) as cluster:

        def act(key: bytes) -> None:
            etcd.delete(key)
            if again:
                etcd.put(key, ground.broken("target"))

        steps = ("check: examine", "check: everything else", "check: lease", "confirm", SENT)
        for name, key, refusal in intrude(
            ground, lambda key: etcd.put(key, ground.broken("target")), act, *steps
        ):
            seen.append(name)
            now = stands(cluster, key)
            assert (now is not None, refusal.rule) == (again, Rule.MOVED)
            if now is not None:
                assert (now.value, now.version) == (ground.broken("target"), 1)
                etcd.delete(key)
    assert tuple(seen) == steps
