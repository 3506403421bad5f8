"""Values that wait for a KMS plugin: none is lost, none is judged too early, and the reading never waits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import msgspec
import pytest

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.kms.envelopes import Failure, KMSPending, WrappedKey
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine import all as examine_all
from etcdfix.examine.one import Examiner
from etcdfix.examine.spool import Spool
from etcdfix.examine.two_passes import TwoPasses, _Aside
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Repair, RepairKind, RepairProof, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.sources import pages
from tests.support import encoders
from tests.support.decoders import shared_decoder
from tests.support.memory_source import stored
from tests.support.objects import KEY_1, aesgcm, configuration, json_object, provider, secret

SEED = bytes(range(32))
CONFIG = b"""
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: prov, endpoint: "unix:///nowhere"}
  - identity: {}
"""
Reply = Callable[[WrappedKey], bytes | Failure]


class SlowPlugin:
    """A plugin and its run in one: while deferring it has answers only for what it has been told to know."""

    def __init__(self, reply: Reply) -> None:
        self.healthy = True
        self.write_key_id = ""
        self.opened: Counter[str] = Counter()
        self.deferring = False
        self.final = False
        self.over = False
        self.known: set[bytes] = set()
        self.waited: list[bytes] = []
        self.asked: list[bytes] = []
        self._reply = reply

    def check(self) -> bool:
        if self.deferring:
            raise KMSPending
        return True

    def add_control(self, wrapped: WrappedKey, key: bytes) -> None:
        pass

    def plugin_for(self, provider: KMSProvider) -> SlowPlugin:
        return self

    def start_over(self) -> None:
        raise AssertionError("one value after the other is for a run over a plan")

    def without_recording(self) -> AbstractContextManager[None]:
        return nullcontext()

    def abort(self) -> None:
        raise AssertionError("nobody is to give up")

    def recall(self, wrapped: WrappedKey) -> bytes | None:
        return None

    def unwrap(self, wrapped: WrappedKey) -> bytes | Failure:
        self.asked.append(wrapped.ciphertext)
        if self.deferring and wrapped.ciphertext not in self.known:
            raise KMSPending
        if not self.deferring:
            self.waited.append(wrapped.ciphertext)
        return self._reply(wrapped)


def seed_for_all(_: WrappedKey) -> bytes:
    return SEED


def value(
    name: str, source: bytes, *, key_id: str = "k1", seed: bytes = SEED, named: str = ""
) -> StoredValue:
    key = f"/registry/secrets/shop/{name}".encode()
    data = encoders.kms_v2_seeded_data(secret(named or name), seed, bytes(32), bytes(12), key)
    body = encoders.kms_v2_body(data, key_id=key_id, dek_source=source, source_type=1)
    return stored(key, b"k8s:enc:kms:v2:prov:" + body)


def plain(name: str) -> StoredValue:
    return stored(f"/registry/secrets/shop/{name}", secret(name))


def examining(plugin: SlowPlugin) -> TwoPasses:
    def plugin_for(_: KMSProvider) -> SlowPlugin:
        return plugin

    transformers = Transformers.from_configuration(parse_configuration(CONFIG, path="test"), plugin_for)
    return TwoPasses(Examiner(StorageLayout(), transformers, shared_decoder(None), plugins=plugin))


def first(run: TwoPasses, values: Iterable[StoredValue]) -> Iterator[Examination]:
    return run.first(run._examiner.examine_each(values))


def verdicts(found: Iterator[Examination]) -> list[tuple[str, Cause | None]]:
    return [(e.name, e.verdict.cause) for e in found]


def test_what_needs_no_plugin_goes_on_at_once() -> None:
    plugin = SlowPlugin(seed_for_all)
    with examining(plugin) as run:
        read = verdicts(first(run, [value("a", b"1"), plain("b"), value("c", b"2"), plain("d")]))
        assert read == [("b", None), ("d", None)]
        assert (run.set_aside, plugin.waited) == (2, [])
        assert verdicts(run.second()) == [("a", None), ("c", None)]
        assert (run.set_aside, plugin.waited) == (0, [b"1", b"2"])


def test_a_control_that_comes_later_still_counts() -> None:
    def reply(wrapped: WrappedKey) -> bytes | Failure:
        if wrapped.ciphertext == b"bad":
            return Failure("INVALID_ARGUMENT", "rejected")
        return SEED

    plugin = SlowPlugin(reply)
    plugin.known.add(b"bad")
    values = [value("a", b"bad"), value("b", b"bad", key_id="k2", seed=b"\xff" * 32), value("c", b"good")]
    with examining(plugin) as run:
        assert verdicts(first(run, values)) == []
        assert verdicts(run.second()) == [
            ("c", None), ("a", Cause.KMS_ENVELOPE_DAMAGED), ("b", Cause.KMS_UNPROVEN),
        ]  # fmt: skip


def test_what_was_unreachable_a_moment_ago_is_asked_once_more() -> None:
    answers: list[bytes | Failure] = [Failure("UNAVAILABLE", "away"), SEED]

    def reply(_: WrappedKey) -> bytes | Failure:
        return answers.pop(0)

    plugin = SlowPlugin(reply)
    plugin.known.add(b"1")
    with examining(plugin) as run:
        assert verdicts(first(run, [value("a", b"1")])) == []
        assert verdicts(run.second()) == [("a", None)]


def test_nothing_is_lost_when_the_wait_is_interrupted() -> None:
    interruptions = [KeyboardInterrupt(), None, KeyboardInterrupt()]

    def reply(wrapped: WrappedKey) -> bytes | Failure:
        interruption = interruptions.pop(0) if interruptions else None
        if interruption is not None:
            raise interruption
        if wrapped.ciphertext == b"bad":
            return Failure("INVALID_ARGUMENT", "rejected")
        return SEED

    plugin = SlowPlugin(reply)
    found: list[tuple[str, Cause | None]] = []
    with examining(plugin) as run:
        list(first(run, [value("a", b"bad"), value("b", b"good")]))
        for _ in range(3):
            try:
                found += verdicts(run.second())
            except KeyboardInterrupt:
                assert run.set_aside == 2
    assert found == [("b", None), ("a", Cause.KMS_ENVELOPE_DAMAGED)]


GCM = configuration(provider("aesgcm", key1=KEY_1))


def local(*, target: bytes = b"", prefix: str = "/registry") -> TwoPasses:
    transformers = Transformers.from_configuration(GCM)
    return TwoPasses(Examiner(StorageLayout(prefix), transformers, shared_decoder(None)), targets=(target,))


def gcm(name: str, mod_revision: int = 7, *, written_for: str = "", key: bytes = KEY_1) -> StoredValue:
    etcd_key = f"/registry/secrets/shop/{name}"
    return stored(etcd_key, aesgcm(secret(name), written_for or etcd_key, key), mod_revision=mod_revision)


NOISE = b"0" * 16


def test_what_does_not_open_under_a_local_key_waits_for_the_values_around_it() -> None:
    with local() as run:
        read = verdicts(first(run, [gcm("a", 50, key=NOISE), gcm("b", 10), gcm("c", 90)]))
        assert read == [("b", None), ("c", None)]
        assert run.set_aside == 1
        assert verdicts(run.second()) == [("a", Cause.NONCE_DAMAGED)]
        assert run.set_aside == 0


def test_the_plugins_word_counts_against_a_value_only_between_others() -> None:
    """A key that was replaced behind its key id refuses every old data key, and opens every new one."""

    def reply(wrapped: WrappedKey) -> bytes | Failure:
        if wrapped.ciphertext == b"bad":
            return Failure("INVALID_ARGUMENT", "rejected")
        return SEED

    def at(mod_revision: int, name: str, source: bytes) -> StoredValue:
        # Another seed, so that no neighbour's data key opens it.
        made = value(name, source, seed=SEED if source != b"bad" else b"\xff" * 32)
        return stored(made.key, made.value, mod_revision=mod_revision)

    for mod_revision, cause in (
        (5, Cause.KMS_UNPROVEN),
        (50, Cause.KMS_ENVELOPE_DAMAGED),
        (95, Cause.KMS_UNPROVEN),
    ):
        with examining(SlowPlugin(reply)) as run:
            values = [at(mod_revision, "a", b"bad"), at(10, "b", b"1"), at(90, "c", b"2")]
            assert list(first(run, values)) == []
            assert verdicts(run.second())[-1] == ("a", cause)


@pytest.mark.parametrize(
    ("beside", "cause"), [("gcm", Cause.CIPHERTEXT_DAMAGED), ("cbc", Cause.ASSOCIATED_DATA_UNKNOWN)]
)
def test_what_has_no_associated_data_shows_none_for_the_others_of_its_plugin(
    beside: str, cause: Cause
) -> None:
    """Under KMS v1 older servers wrote AES-CBC: one such value that opens does not show that etcd keys are bound."""
    config = parse_configuration(CONFIG.replace(b"v2,", b"v1,"), path="test")

    class Plugin(SlowPlugin):
        def recall(self, wrapped: WrappedKey) -> bytes | None:
            return SEED

    plugin = Plugin(seed_for_all)
    transformers = Transformers.from_configuration(config, lambda _: plugin)
    examiner = Examiner(StorageLayout(), transformers, shared_decoder(None))

    def look(name: str, at: int, *, bound: bytes = b"", cbc: bool = False) -> Examination:
        key, nonce = b"/registry/secrets/shop/" + name.encode(), at.to_bytes(16)
        gcm_body = encoders.aesgcm_body(secret(name), SEED, nonce[4:], bound or key)
        body = encoders.aescbc_body(secret(name), SEED, nonce) if cbc else gcm_body
        made = b"k8s:enc:kms:v1:prov:" + encoders.kms_v1_body(b"wrapped", body)
        return examiner.examine(stored(key, made, mod_revision=at))

    assert all(look(f"at-{at}", at).opened for at in (3, 8, 9))
    assert look("beside", 10, cbc=beside == "cbc").opened
    assert look("web", 50, bound=b"/elsewhere").verdict.cause is cause


def test_a_run_counts_nothing_of_what_was_examined_before_it() -> None:
    examiner = Examiner(StorageLayout(), Transformers.from_configuration(GCM), shared_decoder(None))
    for found in (gcm("b", 10), gcm("c", 90)):
        assert examiner.examine(found).opened
    assert examiner.examine(gcm("a", 50, key=NOISE)).verdict.cause is Cause.NONCE_DAMAGED
    with TwoPasses(examiner) as run:
        assert verdicts(first(run, [gcm("a", 50, key=NOISE)])) == []
        assert verdicts(run.second()) == [("a", Cause.WRONG_KEY)]


def test_what_shows_its_key_is_searched_though_nothing_else_opens() -> None:
    moved = gcm("web", written_for="/elsewhere/secrets/shop/web")
    damaged = stored(moved.key, gcm("web").value[:-1] + bytes([gcm("web").value[-1] ^ 1]))
    for target in (b"", damaged.key):
        with local(target=target) as run:
            assert verdicts(first(run, [damaged])) == []
            assert verdicts(run.second()) == [("web", Cause.CIPHERTEXT_DAMAGED)]


def test_what_the_first_look_seems_to_settle_is_searched_all_the_same() -> None:
    """A whole object without the end that API servers write, and in order: it only stands below another prefix."""
    plaintext = json_object("v1", "Secret", "web", data={})
    value = aesgcm(plaintext, "/registry/secrets/shop/web")
    moved = stored("/registry/new/secrets/shop/web", value)
    for target in (b"", moved.key):
        with local(prefix="/registry/new", target=target) as run:
            assert verdicts(first(run, [moved])) == []
            assert verdicts(run.second()) == [("web", Cause.STORAGE_PREFIX_CHANGED)]


def test_a_full_disk_ends_the_pass_and_what_was_seen_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = gcm("b", key=NOISE)
    examiner = Examiner(StorageLayout(), Transformers.from_configuration(GCM), shared_decoder(None))
    original = Spool.append

    def append(spool: Spool[object], value: object) -> None:
        if spool.count:
            raise OSError(28, "No space left on device")
        original(spool, value)

    monkeypatch.setattr(Spool, "append", append)
    found, ending = scanned(examiner, [damaged, gcm("c"), gcm("d", key=NOISE), gcm("e")])
    assert [verdict.cause for verdict in found] == [Cause.WRONG_KEY]
    assert "no room in" in ending.problems[0]


@pytest.mark.parametrize("whole", [False, True])
def test_a_disk_that_fills_up_while_plugins_answer_loses_no_value(
    monkeypatch: pytest.MonkeyPatch, *, whole: bool
) -> None:
    def reply(wrapped: WrappedKey) -> bytes | Failure:
        return SEED if wrapped.ciphertext == b"good" else Failure("PERMISSION_DENIED", "no")

    original = Spool.append

    def append(spool: Spool[object], value: object) -> None:
        if not isinstance(value, StoredValue) and spool.count:
            raise OSError(28, "No space left on device")
        original(spool, value)

    monkeypatch.setattr(Spool, "append", append)
    values = [value("a", b"1"), value("b", b"good"), value("c", b"2"), plain("d"), value("e", b"3")]
    found: list[Verdict] = []
    with examining(SlowPlugin(reply)) as run:
        examiner = run._examiner
    with pytest.raises(SourceError, match="no room in") if whole else nullcontext():
        ending = examine_all.examine_all(
            examiner, pages.paged(values), lambda one: found.append(one.verdict), whole=whole
        )
        assert "no room in" in ending.problems[0]
    assert Counter(verdict.cause for verdict in found) == {None: 2, Cause.KMS_DENIED: 3}


def scanned(examiner: Examiner, values: list[StoredValue]) -> tuple[list[Verdict], examine_all.Ending]:
    found: list[Verdict] = []
    ending = examine_all.examine_all(
        examiner, pages.paged(values), lambda one: found.append(one.verdict), plain=lambda _counts: None
    )
    return found, ending


def test_plain_values_come_as_counts_and_all_others_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_VALUES", 2)
    values = [
        gcm("a", 3),
        gcm("b", 9),
        gcm("c", 5, key=NOISE),
        gcm("d", 4),
        stored("/registry/secrets/shop/e"),
    ]
    examiner = Examiner(StorageLayout(), Transformers.from_configuration(GCM), shared_decoder(None))
    each: list[Examination] = []
    examine_all.examine_all(examiner, pages.paged(values), each.append)
    others: list[Examination] = []
    plain: list[PlainCount] = []
    examine_all.examine_all(examiner, pages.paged(values), others.append, plain=plain.extend)
    assert others == [found for found in each if not found.verdict.is_plain]
    assert [(one.count, one.first, one.last) for one in plain] == [(2, 3, 9), (1, 4, 4)]
    assert {one.transformer for one in plain} == {"aesgcm/v1/key1"}
    assert {one.key_fingerprints for one in plain} == {each[0].key_fingerprints}


@pytest.mark.parametrize("where", ["take", "source"])
def test_what_was_counted_before_an_interruption_is_handed_on(where: str) -> None:
    def take(_found: Examination) -> None:
        if where == "take":
            raise KeyboardInterrupt

    def values() -> Iterator[StoredValue]:
        yield gcm("a")
        yield stored("/registry/secrets/shop/b", b"unreadable")
        yield gcm("c")
        raise KeyboardInterrupt

    examiner = Examiner(StorageLayout(), Transformers.from_configuration(GCM), shared_decoder(None))
    plain: list[PlainCount] = []
    ending = examine_all.examine_all(examiner, pages.paged(values()), take, plain=plain.extend)
    assert ending.ended is not None
    assert sum(one.count for one in plain) == 2


def test_of_a_few_values_each_is_searched_and_of_many_none() -> None:
    """A nonce that lost a bit looks like a wrong key, and a wrong key fails for all."""
    start = len("k8s:enc:aesgcm:v1:key1:")
    values = []
    for name in "abcd":
        value = bytearray(gcm(name).value)
        value[start] ^= 1
        values.append(stored(gcm(name).key, bytes(value)))
    for count, cause in ((3, Cause.NONCE_DAMAGED), (4, Cause.WRONG_KEY)):
        with local() as run:
            assert verdicts(first(run, values[:count])) == []
            assert {found for _, found in verdicts(run.second())} == {cause}


BOTH_KEYS = configuration(provider("aesgcm", key1=KEY_1), provider("aescbc", key2=KEY_1))


def examiner() -> Examiner:
    transformers = Transformers.from_configuration(BOTH_KEYS)
    return Examiner(StorageLayout(), transformers, shared_decoder(None))


def values() -> Iterator[tuple[str, bytes]]:
    source = random.Random(3)
    for number in range(60):
        noise = source.randbytes(200)
        key = f"secrets/ns{number % 3}/s{number}" if number % 7 else f"pods/ns/p{number}"
        for start in (
            b"k8s:enc:aesgcm:v1:key1:",
            b"k8s:enc:aesgcm:v1:key9:",
            b"k8s:enc:aesgcm:v1:lost:",
            b"k8s:enc:aescbc:v1:key2:",
            b"k8s:enc:secretbox:v1:key1:",
            b"k8s:enc:aesgcm:v1:key1:more:",
            b"k8s:enc:kms:v2:prov:",
            b"k8s:enc:new:v1:key1:",
            b"",
        ):
            yield key, start + noise
        yield key, b"k8s:enc:aesgcm:v1:key1:" + noise[:30]


def test_a_name_that_is_learned_later_counts() -> None:
    looks = examiner()
    one = stored("/registry/secrets/ns/a", b"k8s:enc:aesgcm:v1:lost:er:" + b"\xff" * 100)
    for names, expected in (((), "aesgcm/v1/lost"), (("lost:er",), "aesgcm/v1/lost:er")):
        looks.know_names(names)
        ((_, found),) = looks.examine_each((one,))
        assert isinstance(found, Examination)
        assert found.transformer == expected


def test_what_is_put_aside_comes_back_as_it_was() -> None:
    looks = examiner()
    found: list[Examination] = []
    for key, value in values():
        ((_, one),) = looks.examine_each((stored(f"/registry/{key}", value),))
        assert isinstance(one, Examination)
        found.append(one)
    repair = Repair(RepairKind.PREFIX, "one bit", RepairProof.TAG)
    found.append(msgspec.structs.replace(found[0], repair=repair))
    kept = _Aside()
    for one in found:
        kept.append(one)
    for one in found:
        assert kept.peek() is kept.peek()
        assert kept.peek() == one
        kept.drop()
    assert kept.count == 0
    kept.close()
