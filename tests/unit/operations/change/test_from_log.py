"""Which write of a log is taken: the newest that reads; one that etcd may have refused only where it is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from etcdfix.errors import RefusedByRule
from etcdfix.examine import Examiner, Reading
from etcdfix.model import Confidence
from etcdfix.operations.change import from_log
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.sources.wal.history import LogHistory
from etcdfix.sources.wal.model import Agreement, Kinship, LoggedWrite, WriteKind
from etcdfix.storagekey import StorageLayout
from tests.support.objects import UID, config_map

KEY = b"/registry/configmaps/shop/settings"
DIRECTORY = Path("/log")
OTHER_UID = b"99999999-2222-3333-4444-555555555555"

LOOK = "etcdfix history --wal /log /registry/configmaps/shop/settings"


def write(
    entry: int, value: bytes | None, confidence: Confidence = Confidence.CERTAIN, **changes: Any
) -> LoggedWrite:
    given: dict[str, Any] = {
        "key": KEY, "kind": WriteKind.PUT if value is not None else WriteKind.DELETE, "entry_index": entry,
        "operation": 0, "term": 1, "value": value, "keeps_value": False, "lease": 0, "mod_revision": entry + 100,
        "create_revision": 100, "version": 1, "confidence": confidence,
        "doubt": "" if confidence is Confidence.CERTAIN else "it may have been refused",
        "after_revision": None, "before_revision": None,
    }  # fmt: skip
    return LoggedWrite(**(given | changes))


class Played:
    """A history with these writes."""

    agreement = Agreement(
        kinship=Kinship.SAME_HISTORY, agreed=3, contradicted=0, newest_agreed_index=9, sentence="3 keys agree"
    )
    problems = ("a gap",)

    def __init__(self, *writes: LoggedWrite) -> None:
        self._writes = writes

    def writes(self, _key: bytes) -> Iterator[LoggedWrite]:
        yield from self._writes


def choose(
    monkeypatch: pytest.MonkeyPatch,
    *writes: LoggedWrite,
    entry: int | None = None,
    present: bytes | None = None,
) -> tuple[int, tuple[str, ...]]:
    examiner = Examiner.of(Reading(layout=StorageLayout()))
    found = None
    if present is not None:
        stored = write(1, present).stored()
        assert stored is not None
        found = examiner.examine(stored)
    monkeypatch.setattr(from_log, "newest_readable", lambda *_: found)
    now = SimpleNamespace(read_key=lambda _key: SimpleNamespace(revision=1000))
    cluster = cast("Cluster", SimpleNamespace(examiner=examiner, now=now))
    chosen, told = from_log._choose(
        cluster, KEY, DIRECTORY, entry, cast("LogHistory", Played(*writes)), look=LOOK
    )
    return chosen.entry_index, told


WHOLE = config_map()
OF_ANOTHER = WHOLE.replace(UID, OTHER_UID)


def test_the_newest_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, told = choose(
        monkeypatch, write(3, WHOLE), write(4, WHOLE), write(5, WHOLE[:-5]), write(6, None),
        write(7, WHOLE, refused=True, confidence=Confidence.LIKELY),
        write(8, None, kind=WriteKind.PUT, keeps_value=True),
    )  # fmt: skip
    assert entry == 4
    assert told == (
        "etcd applied it at mod_revision 104: certain",
        "3 keys agree",
        "a gap",
        "4 later writes of the key stand in the log, and not in this value",
    )


def test_of_the_object_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = (write(3, WHOLE), write(4, OF_ANOTHER))
    assert choose(monkeypatch, *writes, present=WHOLE)[0] == 3
    assert choose(monkeypatch, *writes, present=OF_ANOTHER)[0] == 4
    assert choose(monkeypatch, *writes)[0] == 4
    with pytest.raises(RefusedByRule, match=r"reads and is of its object \(1 looked at\)"):
        choose(monkeypatch, write(4, OF_ANOTHER), present=WHOLE)


def test_what_is_only_possible_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not passed over for an older one either: which of them is right, a person decides."""
    possible = write(4, WHOLE, Confidence.POSSIBLE, mod_revision=None)
    with pytest.raises(
        RefusedByRule, match="nothing shows that etcd applied it: it may have been refused"
    ) as caught:
        choose(monkeypatch, write(3, WHOLE), possible)
    assert caught.value.rule == "logged-only"
    assert "--entry INDEX" in caught.value.hint
    entry, told = choose(monkeypatch, write(3, WHOLE), possible, entry=4)
    assert entry == 4
    assert told[0] == "nothing shows that etcd applied it, as accepted by --entry: it may have been refused"
    entry, told = choose(monkeypatch, write(3, WHOLE, Confidence.LIKELY), write(9, None))
    assert told[0].startswith("etcd applied it at mod_revision 103: likely: ")
    assert told[-1] == "1 later write of the key stands in the log, and not in this value"


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (9, "entry 9 of the log in /log is no write of"),
        (4, "entry 4 of the log in /log is a deletion: it holds no value"),
        (5, "entry 5 of the log in /log is the end of a lease, which deleted the key: it holds no value"),
        (6, "entry 6 of the log in /log is a write that keeps the value before it: it holds no value"),
        (7, "entry 7 of the log in /log is refused by etcd: it holds no value"),
    ],
)
def test_an_entry_that_holds_no_value(monkeypatch: pytest.MonkeyPatch, named: int, words: str) -> None:
    writes = (
        write(3, WHOLE), write(4, None), write(5, None, kind=WriteKind.LEASE_REVOCATION),
        write(6, None, kind=WriteKind.PUT, keeps_value=True), write(7, WHOLE, Confidence.LIKELY, refused=True),
    )  # fmt: skip
    with pytest.raises(RefusedByRule, match=words) as caught:
        choose(monkeypatch, *writes, entry=named)
    assert caught.value.hint == f"see its writes: etcdfix history --wal /log {KEY.decode()}"


def test_a_lease_that_the_log_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    _entry, told = choose(monkeypatch, write(4, WHOLE, lease=None))
    assert any("it is put back without one" in line for line in told)
    _entry, told = choose(monkeypatch, write(4, WHOLE, lease=7))
    assert not any("lease" in line for line in told)


def test_the_last_of_one_entry() -> None:
    """One transaction may write a key twice; what is stored then is the later one."""
    first, second = write(4, WHOLE), write(4, OF_ANOTHER, operation=1)
    assert from_log._of_entry(KEY, DIRECTORY, 4, [first, second], "") is second


LIKELY, CERTAIN = Confidence.LIKELY, Confidence.CERTAIN


@pytest.mark.parametrize(
    ("later", "deleted_at"),
    [
        ([write(6, None)], 106),
        ([write(6, b"damaged"), write(7, None)], 107),
        ([write(6, None, kind=WriteKind.LEASE_REVOCATION)], 106),
        ([], 0),  # the log ends before the deletion
        ([write(6, b"newer")], 0),
        ([write(6, None, LIKELY, mod_revision=106)], 0),
        ([write(6, b"perhaps", LIKELY), write(7, None)], 0),
        ([write(6, None), write(7, b"another life", create_revision=107), write(8, None)], 0),
        ([write(6, None), write(7, b"perhaps another life", Confidence.POSSIBLE)], 0),
        ([write(6, b"another life", create_revision=106), write(7, None)], 0),
    ],
)
def test_the_end_of_the_last_life(later: list[LoggedWrite], deleted_at: int) -> None:
    chosen = write(5, b"whole")
    assert from_log._deleted_at([write(4, b"before"), chosen, *later], chosen) == deleted_at
    unsure = write(5, b"whole", LIKELY)
    assert from_log._deleted_at([unsure, *later], unsure) == 0
