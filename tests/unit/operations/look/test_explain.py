"""All that is known of one key: races, hostile names, huge values, a few bytes, other programs' keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.errors import SourceError
from etcdfix.model import StoredValue
from etcdfix.operations.look.explain import ExplainRequest, explain_key
from etcdfix.operations.look.history import KeyLook
from etcdfix.report.document import State
from etcdfix.report.explain import AttemptResult, ExplainReport
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import RunOptions
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    configuration,
    namespace_object,
    provider,
    secret,
)
from tests.support.rendering import rendered

KEY = "/registry/secrets/shop/web"
SYSTEM = "/registry/namespaces/kube-system"
GCM = configuration(provider("aesgcm", key1=KEY_1, key2=KEY_2), IDENTITY)


def sealed(name: str, key: bytes = KEY_1) -> bytes:
    return aesgcm(secret(name), f"/registry/secrets/shop/{name}", key)


def flipped(value: bytes, at: int = -20) -> bytes:
    there = at % len(value)
    return value[:there] + bytes([value[there] ^ 1]) + value[there + 1 :]


def look(source: MemorySource, key: str | bytes = KEY, *, configured: bool = True) -> KeyLook[ExplainReport]:
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
    assert (beside.keys, beside.opened, beside.failed, beside.damaged, beside.doubt) == (3, 2, 1, 1, "none")
    assert beside.newest_opened == "/registry/secrets/shop/b"
    assert report.repair is not None
    assert (report.repair.proof, report.repair.confidence) == ("tag", "certain")
    document = report.document()
    assert document.status.state is State.FINDINGS
    assert document.status.headline == f"{KEY} cannot be read: ciphertext-damaged (certain)"
    assert document.next is not None
    assert report.finding.remedies[0].action == document.next.action
    text = rendered(report)
    assert len(text.splitlines()) <= 24
    for remedy in report.finding.remedies:  # nothing is said twice, and nothing is lost
        assert text.count(remedy.action) <= 1
        assert rendered(report, "wide").count(remedy.action) == 1


def test_a_repair_that_nothing_proves_is_only_possible() -> None:
    cbc = configuration(provider("aescbc", key1=KEY_1), IDENTITY)
    there = MemorySource({KEY: flipped(aescbc(secret("web")), -40)})
    request = ExplainRequest(layout=StorageLayout(), configuration=cbc, key=KEY.encode())
    report = explain_key(there, request).report
    assert report is not None
    assert report.repair is not None
    assert (report.repair.proof, report.repair.confidence) == ("none", "possible")
    assert "may come back with wrong bytes" in rendered(report, "wide")


def test_a_lost_key_is_not_the_value() -> None:
    others = ((f"/registry/secrets/shop/{n}", sealed(n, b"x" * 32)) for n in ("a", "b"))
    report = explained(source(sealed("web", b"x" * 32), *others))
    assert report.siblings[0].doubt == "none-opens"
    assert report.repair is None
    assert report.no_repair == (
        "no single bit or known change makes it readable under the encryption keys of this configuration"
    )


OTHER_KEY = b"x" * 32


@pytest.mark.parametrize(
    ("value", "cause", "why"),
    [
        (aesgcm(secret("a"), "/registry/secrets/shop/a"), "value-moved", "its bytes are whole"),
        (aesgcm(secret("web"), KEY, name="gone"), "key-renamed", "its bytes are whole"),
        (
            aesgcm(secret("web"), KEY, OTHER_KEY, "gone"),
            "key-name-missing",
            "the key that it names, which is missing",
        ),
        (
            aescbc(secret("web"), OTHER_KEY),
            "provider-missing",
            "the provider that it names, which is missing",
        ),
        (
            b"k8s\x00no object",
            "protobuf-damaged",
            "none of the changes that can be undone in an unencrypted value",
        ),
        (secret("web") + secret("other"), "trailing-bytes", "a whole object may be found in it"),
    ],
)
def test_why_there_is_no_repair_fits_the_cause(value: bytes, cause: str, why: str) -> None:
    report = explained(source(value, ("/registry/secrets/shop/a", sealed("a"))))
    assert report.finding is not None
    assert report.finding.cause == cause
    assert report.repair is None
    assert why in report.no_repair


def test_a_deletion_that_would_be_refused_is_not_advised() -> None:
    """Of two that look damaged only for what opens around them, the key may have had other bytes."""
    values = [
        ("a", sealed("a")),
        ("m", sealed("m", b"x" * 32)),
        ("n", sealed("n", b"x" * 32)),
        ("z", sealed("z")),
    ]
    records = {f"/registry/secrets/shop/{name}": value for name, value in values}
    report = explained(MemorySource(records), "/registry/secrets/shop/m")
    assert report.finding is not None
    assert report.finding.cause == "nonce-damaged"
    assert report.siblings[0].doubt == "in-between"
    assert not [way for way in report.finding.remedies if way.action.startswith("Last: ")]
    assert "a deletion would be refused" in rendered(report)
    alone = explained(
        MemorySource({key: value for key, value in records.items() if not key.endswith("n")}),
        "/registry/secrets/shop/m",
    )
    assert alone.finding is not None
    assert alone.deletion_withheld == ""
    assert [way for way in alone.finding.remedies if way.action.startswith("Last: ")]


def test_where_decoding_breaks() -> None:
    value = secret("web")
    broken = value.replace(b"password", b"pass\xfford").replace(b"\x0a\x03web", b"\x0a\x7fweb")
    report = explained(source(broken))
    assert report.finding is not None
    assert report.finding.outcome == "decode-failure"
    assert report.damage_offset is not None
    text = rendered(report, "wide")
    assert f"decoding breaks at  byte {report.damage_offset}" in text
    assert "never-to-be-shown" not in text


def test_a_huge_value() -> None:
    value = aesgcm(b"k8s\x00" + b"\x12\xff" * 700_000, KEY)
    report = explained(source(value, ("/registry/secrets/shop/b", sealed("b"))))
    assert report.finding is not None
    assert report.finding.outcome == "decode-failure"
    assert len(rendered(report, "wide")) < 20_000


@pytest.mark.parametrize("name", ["\x1b]0;x\x07", "$(reboot)", "a'b", "\u202egpj", "-rf", "n" * 5000])
def test_hostile_names(name: str) -> None:
    key = f"/registry/secrets/shop/{name}".encode()
    report = explained(MemorySource([stored(key, flipped(aesgcm(secret("web"), "x")))]), key)
    assert report.kept is not None
    assert all(line.isprintable() for line in rendered(report, "wide").splitlines())
    command = report.kept.command.line(RunOptions())
    assert "$(reboot)" not in command.replace("'/registry/secrets/shop/$(reboot)'", "")


def test_values_beside_it_that_may_not_be_read() -> None:
    class Denied(MemorySource):
        def current(self, prefix: bytes) -> Iterator[StoredValue]:
            if prefix.endswith(b"secrets/"):
                raise SourceError("permission denied")
            return super().current(prefix)

    report = explained(Denied({KEY: flipped(sealed("web"))}))
    assert report.finding is not None
    assert report.finding.cause == "ciphertext-damaged"
    assert report.incomplete_reasons == ["the values beside it could not be read: permission denied"]
    assert report.siblings[0].keys == 1
