"""All that is known of one key: races, hostile names, huge values, a few bytes, other programs' keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.commands.explain import Explained, ExplainRequest, explain_key
from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.document import State
from etcdfix.report.explain import AttemptResult, ExplainReport, History, Shows
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

KEY = "/registry/secrets/shop/web"
A = "/registry/secrets/shop/a"
SYSTEM = "/registry/namespaces/kube-system"
GCM = configuration(provider("aesgcm", key1=KEY_1, key2=KEY_2), IDENTITY)


def sealed(name: str, key: bytes = KEY_1) -> bytes:
    return aesgcm(secret(name), f"/registry/secrets/shop/{name}", key)


def flipped(value: bytes, at: int = -20) -> bytes:
    there = at % len(value)
    return value[:there] + bytes([value[there] ^ 1]) + value[there + 1 :]


def look(source: MemorySource, key: str | bytes = KEY, *, configured: bool = True) -> Explained:
    raw = key.encode() if isinstance(key, str) else key
    request = ExplainRequest(layout=StorageLayout(), configuration=GCM if configured else None, key=raw)
    return explain_key(source, request)


def explained(source: MemorySource, key: str | bytes = KEY, *, configured: bool = True) -> ExplainReport:
    report = look(source, key, configured=configured).report
    assert report is not None
    return report


def source(value: bytes, *others: tuple[str, bytes], key: str = KEY) -> MemorySource:
    return MemorySource({SYSTEM: namespace_object("kube-system"), key: value, **dict(others)})


def test_a_damaged_value_among_others() -> None:
    report = explained(
        source(flipped(sealed("web")), *((f"/registry/secrets/shop/{n}", sealed(n)) for n in ("a", "b")))
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
    report = explained(source(sealed("web", b"x" * 32), *others))
    assert (report.siblings[0].doubt, report.copies) == ("none-opens", [])
    assert report.no_repair


def test_a_deletion_that_would_be_refused_is_not_advised() -> None:
    """Of two that look damaged only for what opens around them, the key may have had other bytes."""
    values = [
        ("a", sealed("a")), ("m", sealed("m", b"x" * 32)), ("n", sealed("n", b"x" * 32)), ("z", sealed("z")),
    ]  # fmt: skip
    records = {f"/registry/secrets/shop/{name}": value for name, value in values}
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
    found = explained(source(flipped(sealed("web")), *beside)).impact
    assert found is not None
    assert found.risk == "high"
    for value in (sealed("web"), sealed("web", b"x" * 32)):
        assert explained(source(value, *beside)).impact is None


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
