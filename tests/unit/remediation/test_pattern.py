"""One object or the configuration: counted over a source in memory."""

from __future__ import annotations

import pytest

from etcdfix.decoding.stacks import Decoder
from etcdfix.deferred import unwatched
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.model import Outcome
from etcdfix.pipeline import Examiner
from etcdfix.remediation.pattern import Pattern, Tally, find_pattern
from etcdfix.storagekey import StorageLayout
from tests.support.examinations import examination, readable
from tests.support.memory_source import MemorySource
from tests.support.objects import IDENTITY, KEY_1, aescbc, config_map, configuration, provider, secret

SHORT = b"k8s:enc:aescbc:v1:key1:short"


@pytest.mark.parametrize(
    ("opened", "failed", "undetermined", "pattern"),
    [
        (0, 1, 0, False),
        (0, 0, 1, False),
        (0, 2, 0, True),
        (0, 1, 1, True),
        (0, 0, 2, True),
        (1, 2, 0, False),
        (1, 9, 0, False),
        (1, 10, 0, True),
        (10, 10, 0, True),
        (11, 10, 0, False),
        (10, 9, 9, False),
        (1000, 999, 0, False),
        (1000, 1000, 0, True),
    ],
)
def test_what_is_a_pattern(opened: int, failed: int, undetermined: int, *, pattern: bool) -> None:
    assert Tally(opened, failed, undetermined).is_pattern is pattern


def test_counting() -> None:
    tally = Tally()
    tally.add(readable(mod_revision=99))
    tally.add(examination(outcome=Outcome.INCONSISTENT, mod_revision=98))
    assert (tally.opened, tally.last_failing) == (2, 0)
    tally.add(examination(mod_revision=9))
    tally.add(examination(outcome=Outcome.DECODE_FAILURE, mod_revision=8))
    tally.add(examination(outcome=Outcome.UNDETERMINED, cause=None, mod_revision=12))
    assert (tally.opened, tally.failed, tally.undetermined, tally.last_failing) == (2, 2, 1, 12)
    assert tally.last_opened == 99


def test_the_target_says_nothing_of_when_others_failed_or_opened_last() -> None:
    target = examination(mod_revision=50)
    tally = Tally()
    for found in (
        target,
        examination("/registry/secrets/shop/a", mod_revision=20),
        readable("/registry/secrets/shop/b", mod_revision=40),
        readable("/registry/secrets/shop/c", mod_revision=60),
    ):
        tally.add(found, target=target.stored)
    assert (tally.failed, tally.last_failing, tally.opened, tally.last_opened) == (2, 20, 2, 40)


def _examiner() -> Examiner:
    transformers = Transformers.from_configuration(
        configuration(provider("aescbc", key1=KEY_1, key10=KEY_1), IDENTITY), no_plugin
    )
    return Examiner(StorageLayout(), transformers, Decoder(None))


HOLDS = {
    "/elsewhere": b"not ours",
    "/registry/configmaps/shop/settings": config_map(),
    "/registry/configmaps/shop/torn": config_map()[:-3],
    "/registry/masterleases/10.0.0.1": b"x",
    "/registry/secrets/shop/good": aescbc(secret("good")),
    "/registry/secrets/shop/other": aescbc(secret("other"), name="key10"),
    "/registry/secrets/shop/short": SHORT,
    "/registry/secrets/shop/shorter": SHORT[:-1],
}


def _pattern(key: str, source: MemorySource | None = None) -> Pattern:
    examiner, source = _examiner(), source or MemorySource(HOLDS)
    stored = MemorySource(HOLDS).get(key.encode())
    assert stored is not None
    return find_pattern(source, examiner, examiner.examine(stored), None, unwatched)


def test_only_what_was_written_under_the_same_key_counts() -> None:
    found = _pattern("/registry/secrets/shop/short")
    assert (found.transformer, found.kms_key_id_sha256, found.keys) == ("aescbc/v1/key1", "", 7)
    assert (found.all.opened, found.all.failed, found.all.undetermined) == (1, 2, 0)
    assert found.same_key_id == found.all
    assert found.target is not None
    assert found.target.stored.key == b"/registry/secrets/shop/short"


def test_values_in_the_clear_are_alike_but_bookkeeping_is_not() -> None:
    found = _pattern("/registry/configmaps/shop/torn")
    assert found.transformer == "identity"
    assert (found.all.opened, found.all.failed) == (1, 1)


@pytest.mark.parametrize("now", [None, b"k8s:enc:aescbc:v1:key1:changed", aescbc(secret("short"))])
def test_target_that_was_changed_meanwhile_is_not_met_again(now: bytes | None) -> None:
    changed = {name: value for name, value in HOLDS.items() if not name.endswith("/short")}
    if now is not None:
        changed["/registry/secrets/shop/short"] = now
    assert _pattern("/registry/secrets/shop/short", MemorySource(changed)).target is None


def test_without_a_configuration_there_are_no_names() -> None:
    examiner = Examiner(StorageLayout(), None, Decoder(None))
    source = MemorySource(HOLDS)
    stored = source.get(b"/registry/secrets/shop/short")
    assert stored is not None
    found = find_pattern(source, examiner, examiner.examine(stored), None, unwatched)
    assert found.all.undetermined == 3


def test_everything_is_seen_in_the_same_pass() -> None:
    holds = {**HOLDS, "/registry/secrets/shop/kms": b"k8s:enc:kms:v2:prov:x"}
    source = MemorySource(holds)
    examiner = Examiner(StorageLayout(), None, Decoder(None))
    stored = source.get(b"/registry/secrets/shop/short")
    assert stored is not None
    target = examiner.examine(stored)
    seen: list[str] = []
    with_others = find_pattern(
        source, examiner, target, None, unwatched, see=lambda found: seen.append(found.stored.key.decode())
    )
    alone = find_pattern(source, examiner, target, None, unwatched)
    below = {key for key in holds if key.startswith("/registry/")}
    assert seen == sorted(below)
    assert (with_others.all, with_others.keys) == (alone.all, alone.keys)
