"""What compare and explain say: points in time and members side by side, and all that is known of one key."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.commands.compare import Comparison, Side, compare_sources
from etcdfix.commands.explain import ExplainRequest, explain_key
from etcdfix.examine.all import no_progress
from etcdfix.examine.one import Examiner, Reading
from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, StoredValue
from etcdfix.model.scope import KeyRange, ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.compare import ComparedCopy, ComparisonReport
from etcdfix.report.document import State
from etcdfix.report.explain import AttemptResult, ExplainReport, History, Shows
from etcdfix.report.render.text import text_lines
from etcdfix.text.commands import RunOptions
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    configuration,
    json_object,
    namespace_object,
    provider,
    secret,
)
from tests.support.rendering import rendered
from tests.unit.examine.test_readable_revision import KEY as KEPT
from tests.unit.examine.test_readable_revision import Remembering

LAYOUT = StorageLayout("/registry")
CONFIG = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
AT = "/registry/secrets/shop/"
RUN = RunOptions(source=("--endpoints", "e:1"), reading=("--encryption-config", "c.yaml"))


def sealed(name: str, key: bytes = KEY_1) -> bytes:
    return aesgcm(secret(name), AT + name, key)


READING = Reading(layout=LAYOUT, configuration=CONFIG, run=RUN)


def compared(earlier: MemorySource, later: MemorySource) -> ComparisonReport:
    return compare_sources(earlier, later, READING, ScopeRequest(), earlier_path="old.db")[0]


Contents = dict[bytes, bytes]
_CONTENTS = st.dictionaries(
    st.sampled_from([b"a", b"a\x00", b"a/b", b"b", b"c"]), st.sampled_from([b"1", b"2"])
)


def walk(*sides: MemorySource) -> Comparison:
    """Return a comparison of some sides, before anything is compared."""
    comparison = Comparison(READING, ScopeRequest())
    for at, source in enumerate(sides):
        copy = ComparedCopy(label=f"m{at}", type="member", member_id=f"{at}", endpoint=f"host-{at}:2379")
        comparison.sides.append(Side(copy, Examiner.of(READING), source))
        comparison.copies.append(copy)
    return comparison


def differing(comparison: Comparison) -> dict[bytes, list[StoredValue | None]]:
    return dict(comparison.differing([side.source.current(b"") for side in comparison.sides]))


@given(st.lists(_CONTENTS, min_size=2, max_size=4), st.sets(st.integers(0, 3)))
def test_as_a_naive_comparison(all_of_them: list[Contents], partial: set[int]) -> None:
    comparison = walk(
        *(
            MemorySource(
                [stored(key, one[key]) for key in sorted(one)], problems=["cut"] if at in partial else []
            )
            for at, one in enumerate(all_of_them)
        )
    )
    found = differing(comparison)
    keys = {key for one in all_of_them for key in one}
    unknown = 0
    for key in keys:
        known = {one.get(key) for at, one in enumerate(all_of_them) if key in one or at not in partial}
        assert (key in found) == (len(known) > 1)
        unknown += len(known) == 1 and any(key not in one for one in all_of_them)
    assert list(found) == sorted(found)
    report, _ = comparison.result("members", "")
    assert (report.keys, report.unknown) == (len(keys), unknown)
    for key, copies in found.items():
        assert [copy and copy.value for copy in copies] == [one.get(key) for one in all_of_them]


@pytest.mark.parametrize("changed", ["mod_revision", "create_revision", "version", "lease"])
def test_anything_of_a_record_counts(changed: str) -> None:
    one, other = stored("k", b"v"), msgspec.structs.replace(stored("k", b"v"), **{changed: 77})
    assert len(differing(walk(MemorySource([one]), MemorySource([other])))) == 1


EARLIER = MemorySource(
    [
        stored(AT + "gone", sealed("gone")), stored(AT + "rotten", sealed("rotten")),
        stored(AT + "same", sealed("same")), stored(AT + "updated", sealed("updated")),
        stored(AT + "wrong-key", sealed("wrong-key")),
    ]
)  # fmt: skip
LATER = MemorySource(
    [
        stored(AT + "new", sealed("new")),
        stored(AT + "rotten", sealed("rotten")[:-1] + b"\x00" + b""),
        stored(AT + "same", sealed("same")),
        stored(AT + "updated", sealed("updated"), mod_revision=9, version=3),
        stored(AT + "wrong-key", sealed("wrong-key", KEY_2), mod_revision=9),
    ]
)


def test_what_became_unreadable_comes_first() -> None:
    report = compared(EARLIER, LATER)
    rows = [(row.key.removeprefix(AT), row.change) for row in report.differences]
    assert rows == [
        ("rotten", "unreadable-now"), ("wrong-key", "unreadable-now"), ("gone", "removed"),
        ("updated", "changed"), ("new", "added"),
    ]  # fmt: skip
    assert report.changes == {"unreadable-now": 2, "removed": 1, "changed": 1, "added": 1}
    assert len([*text_lines(report.document(), RUN, 100)]) <= 24
    scan, get = (remedy.command.line(RUN) for remedy in report.advice[:2])
    assert scan == f"etcdfix scan --endpoints e:1 --encryption-config c.yaml {AT}rotten"
    assert get == f"etcdfix get --snapshot old.db --encryption-config c.yaml {AT}rotten"


def test_other_bytes_at_one_revision_are_no_change() -> None:
    report = compared(
        MemorySource([stored(AT + "x", sealed("x"))]), MemorySource([stored(AT + "x", secret("x"))])
    )
    assert report.changes == {"same-revision-other-bytes": 1}
    assert report.advice[0].command.line(RUN).startswith("etcdfix compare --endpoints e:1")


@pytest.mark.parametrize(
    ("later", "unknown", "why"),
    [
        (MemorySource([stored(AT + "same", sealed("same"))], problems=["page 7"]), 4, "page 7"),
        (MemorySource(EARLIER.current(b""), fails_after=2), 3, "lost midway"),
    ],
)
def test_what_was_not_seen_is_not_called_removed(later: MemorySource, unknown: int, why: str) -> None:
    report = compared(EARLIER, later)
    assert (report.differing, report.unknown, report.complete) == (0, unknown, False)
    assert why in report.incomplete_reasons[0]


def test_other_clusters_are_told() -> None:
    one, two = (
        MemorySource({"/registry/namespaces/kube-system": namespace_object("kube-system", uid)})
        for uid in ("u-1", "u-2")
    )
    assert "different clusters" in compared(one, two).warnings[0]


BAD = b"k8s\x00\xff"


def advised(*values: bytes | StoredValue | None) -> list[str]:
    """Return the advice on one key whose copies on the members are these."""
    records = [stored(AT + "x", value) if isinstance(value, bytes) else value for value in values]
    comparison = walk(*(MemorySource([record] if record is not None else []) for record in records))
    comparison.walk([KeyRange(AT.encode())], no_progress)
    report, _ = comparison.result("members", "")
    return [f"{remedy.action} {remedy.command.line(RUN)}" for remedy in report.advice]


NEWER = stored(AT + "x", secret("x"), mod_revision=20, version=2)


@pytest.mark.parametrize(
    ("values", "order"),
    [
        pytest.param((BAD, secret("x"), secret("x")), [1, 2, 0], id="a minority is damaged"),
        pytest.param((BAD, BAD, secret("x")), [2, 0, 1], id="a majority is damaged"),
        pytest.param((None, secret("x")), [1, 0], id="a write, or a deletion, that one missed"),
        pytest.param((secret("x"), NEWER, BAD), [0, 1, 2], id="two readable values"),
        pytest.param((BAD, b"k8s\x00\xfe"), [0, 1], id="none can be read"),
    ],
)
def test_every_member_is_kept_the_one_that_lacks_least_first(
    values: tuple[bytes | StoredValue | None, ...], order: list[int]
) -> None:
    _warning, *saves = advised(*values)
    for at, told in zip(order, saves, strict=False):
        assert f"--endpoints host-{at}:2379 snapshot save member-{at}.db" in told
    assert ("etcdfix scan" in saves[-2]) is (values[0] == BAD and values[1] == b"k8s\x00\xfe")
    assert "replace" not in "".join(saves)


KEY = "/registry/secrets/shop/web"
A = "/registry/secrets/shop/a"
SYSTEM = "/registry/namespaces/kube-system"
GCM = configuration(provider("aesgcm", key1=KEY_1, key2=KEY_2), IDENTITY)


def flipped(value: bytes, at: int = -20) -> bytes:
    there = at % len(value)
    return value[:there] + bytes([value[there] ^ 1]) + value[there + 1 :]


def explained(source: MemorySource, key: str | bytes = KEY) -> ExplainReport:
    raw = key.encode() if isinstance(key, str) else key
    report = explain_key(source, ExplainRequest(layout=StorageLayout(), configuration=GCM, key=raw)).report
    assert report is not None
    return report


def cluster_with(value: bytes, *others: tuple[str, bytes], key: str = KEY) -> MemorySource:
    return MemorySource({SYSTEM: namespace_object("kube-system"), key: value, **dict(others)})


def test_a_damaged_value_among_others() -> None:
    report = explained(
        cluster_with(
            flipped(sealed("web")),
            *((f"/registry/secrets/shop/{n}", sealed(n)) for n in ("a", "b")),
        )
    )
    assert report.finding is not None
    assert report.finding.cause == "ciphertext-damaged"
    assert [one.result for one in report.attempts] == [
        AttemptResult.FAILED, AttemptResult.NOT_TRIED, AttemptResult.NOT_TRIED,
    ]  # fmt: skip
    (beside,) = report.siblings
    assert (beside.opened, beside.failed, beside.damaged, beside.doubt) == (2, 1, 1, "none")
    (copy, *_) = report.copies
    assert (copy.place, copy.grade, copy.later_writes) == ("bit", "good", 0)
    assert report.document().status.state is State.FINDINGS
    assert len(rendered(report).splitlines()) <= 24


def test_a_lost_key_is_not_the_value() -> None:
    others = ((f"/registry/secrets/shop/{n}", sealed(n, b"x" * 32)) for n in ("a", "b"))
    report = explained(cluster_with(sealed("web", b"x" * 32), *others))
    assert (report.siblings[0].doubt, report.copies) == ("none-opens", [])
    assert report.no_repair


def test_a_deletion_that_would_be_refused_is_not_advised() -> None:
    """Of two that look damaged only for what opens around them, the key may have had other bytes."""
    records = {AT + name: sealed(name, b"x" * 32 if name in "mn" else KEY_1) for name in "amnz"}
    report = explained(MemorySource(records), "/registry/secrets/shop/m")
    assert report.finding is not None
    assert report.finding.cause == "nonce-damaged"
    assert report.siblings[0].doubt == "in-between"
    assert report.deletion_withheld
    assert not [way for way in report.remedies if way.verb == "delete"]
    del records["/registry/secrets/shop/n"]
    alone = explained(MemorySource(records), "/registry/secrets/shop/m")
    assert alone.deletion_withheld == ""
    assert [way for way in alone.remedies if way.verb == "delete"]


def test_what_a_deletion_would_set_off_in_three_lines() -> None:
    """Only of what could be deleted; the rest of the resource is looked at for any other one."""
    pod = json_object("v1", "Pod", "app", spec={"volumes": [{"name": "v", "secret": {"secretName": "web"}}]})
    beside = (("/registry/pods/shop/app", pod), (A, sealed("a")))
    found = explained(cluster_with(flipped(sealed("web")), *beside)).impact
    assert found is not None
    assert found.risk == "high"
    for value in (sealed("web"), sealed("web", b"x" * 32)):
        assert explained(cluster_with(value, *beside)).impact is None


class Going(MemorySource):
    def current(self, prefix: bytes) -> Iterator[StoredValue]:
        return (one for one in super().current(prefix) if one.key != KEY.encode())


class Denied(MemorySource):
    def current(self, prefix: bytes) -> Iterator[StoredValue]:
        if not prefix or prefix.endswith(b"secrets/"):
            raise SourceError("permission denied")
        return super().current(prefix)


@pytest.mark.parametrize(("kind", "why"), [(Going, "the key went"), (Denied, "permission denied")])
def test_a_value_that_goes_and_values_that_may_not_be_read(kind: type[MemorySource], why: str) -> None:
    report = explained(kind({KEY: flipped(sealed("web")), A: sealed("a")}))
    assert report.finding is not None
    assert report.finding.cause == "ciphertext-damaged"
    assert why in report.incomplete_reasons[0]


@pytest.mark.parametrize("name", ["\x1b]0;x\x07", "$(reboot)", "a'b", "\u202egpj", "-rf", "n" * 5000])
def test_hostile_names(name: str) -> None:
    key = f"/registry/secrets/shop/{name}".encode()
    report = explained(MemorySource([stored(key, flipped(aesgcm(secret("web"), "x")))]), key)
    assert all(line.isprintable() for line in rendered(report, "wide").splitlines())
    for way in report.remedies:
        command = way.command.line(RunOptions())
        assert "$(reboot)" not in command.replace("'/registry/secrets/shop/$(reboot)'", "")


CBC = configuration(provider("aescbc", key1=KEY_1), IDENTITY)
WHOLE = aescbc(secret("web"))
CUT = WHOLE[:-5]


def told(there: MemorySource, shows: Shows = Shows.HISTORY) -> ExplainReport:
    request = ExplainRequest(layout=StorageLayout(), configuration=CBC, key=KEPT, shows=shows)
    report = explain_key(there, request).report
    assert report is not None
    return report


def history(*steps: bytes | None, **kept: int) -> History:
    found = told(Remembering(*steps, **kept)).history
    assert found is not None
    return found


def test_what_a_write_changed_is_told_without_its_contents() -> None:
    values = [
        json_object("v1", "Secret", "web", "shop", more_metadata={"labels": labels}, data={"password": data})
        for labels, data in (({}, "YQ=="), ({"tier": "never-to-be-shown"}, "YQ=="), ({}, "bmV2ZXItdG8tYmU="))
    ]
    report = told(Remembering(*map(aescbc, values)))
    assert report.history is not None
    assert [one.changed for one in report.history.writes] == [
        ["metadata.labels (removed)", "data.password (changed)"],
        ["metadata.labels (added)"],
        None,
    ]
    for secret_word in ("never-to-be-shown", "bmV2ZXItdG8tYmU="):
        assert secret_word not in rendered(report, "wide") + rendered(report, "json")


class Lost(Remembering):
    """A source that is lost midway."""

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        yield from self.kept[:1]
        raise SourceError("compacted meanwhile")


def test_a_history_that_cannot_be_read_to_its_end() -> None:
    report = told(Lost(WHOLE, CUT))
    assert "compacted meanwhile" in report.incomplete_reasons[0]
    assert report.document().status.state is State.INCOMPLETE
