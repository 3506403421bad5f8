"""Kinds of damage and of wrong configurations, each with the cause that says so: the cases of the second exam.

A case is made from a seed alone: an object of one of five resources, written under one of all providers or under none,
one thing done to it, and a configuration. It knows which cause says what was done, and whether the evidence allows it.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from etcdfix.encryption.kms.envelopes import Failure
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import StoredValue
from etcdfix.testing.protobytes import block, entry, number, object_meta, unknown
from tests.exam import corpus
from tests.exam.cases import (
    KNOWN_PREFIXES,
    PREFIX,
    PROVIDERS,
    TARGET_REVISION,
    Keyring,
    Part,
    Sealed,
    Secrets,
    _flipped,
    _identity,
    seal,
)
from tests.exam.corpus import Identity, Kind
from tests.support import objects
from tests.support.objects import IDENTITY, configuration_of_rules

PLAIN: Final = "identity"
LOCAL: Final = ("aescbc", "aesgcm", "secretbox")


class Ground:
    """What a case is made of; a kind of damage changes some of it before the values are written, or the value after.

    Attributes:
        home: The etcd key at which the value stands.
        written_at: The one that it was written under.
        held: Names and bytes of keys that the configuration has for the provider.
        elsewhere: The same, for other resources.
        covered: The configuration has the resource.
        own: It has the provider for it.
        with_identity: It has identity.
        given: There is a configuration at all.
        refusal: What the plugin says of what it does not know.
        knows: It knows anything.
        known: What it knows; None for what the value was written with.
        around: Values of the resource that are in order were written before and after.
        visible: There is a start of the plaintext by which the encryption key is known.
        allowed: The evidence allows to say what was done, else.
        also: Causes that say so too.
        crd: The definition of the custom resources is there.
        more: Other values in etcd.
    """

    def __init__(self, rng: random.Random, provider: str, kind: Kind) -> None:
        self.rng, self.provider, self.kind = rng, provider, kind
        self.identity = _identity(rng, kind)
        size = 32 if provider == "secretbox" or provider.startswith("kms") else rng.choice((16, 32))
        self.mine = Secrets(rng.randbytes(size), rng.randbytes(48))
        self.other = Secrets(rng.randbytes(size), rng.randbytes(48))
        self.name = "prov" if provider.startswith("kms") else "key1"
        self.home = self.written_at = kind.etcd_key(PREFIX, self.identity)
        self.held = [(self.name, self.mine.key)]
        self.elsewhere = [("key1", rng.randbytes(32))]
        self.covered = self.own = self.with_identity = self.given = True
        self.refusal = Failure("INVALID_ARGUMENT", "rpc error: code = InvalidArgument")
        self.knows = True
        self.known: Secrets | None = None
        self.around = rng.random() < 0.6
        self.visible = True
        self.crd = True
        self.text = corpus.filler(rng, rng.choice((200, 600, 3000)))
        self.more: list[StoredValue] = []
        self.allowed = True
        self.also: frozenset[Cause] = frozenset()

    def plaintext(self, identity: Identity) -> bytes:
        return self.kind.build(identity, self.text)

    def seal(self, plaintext: bytes, at: bytes) -> Sealed:
        if self.provider == PLAIN:
            return Sealed(plaintext, {"ciphertext": Part(0, len(plaintext))})
        return seal(self.rng, self.provider, self.name, plaintext, self.mine, at)

    def neighbours(self) -> list[StoredValue]:
        found = []
        for revision in (40, 60, 140, 160) if self.around else ():
            identity = self.identity._replace(name=f"n{revision}-{self.identity.name[:20]}")
            at = self.kind.etcd_key(PREFIX, identity)
            value = self.seal(self.kind.build(identity, self.text[:60]), at).value
            found.append(StoredValue(at, value, revision, revision, 1, 0))
        return found

    def configuration(self) -> bytes | None:
        if not self.given:
            return None
        providers: list[dict[str, Any]] = [self._provider(self.held)] if self.own else []
        if not self.own:
            providers.append(
                {"secretbox" if self.provider != "secretbox" else "aesgcm": self._keys([("key1", bytes(32))])}
            )
        providers += [IDENTITY] if self.with_identity else []
        other = "leases.coordination.k8s.io"
        rules: list[tuple[tuple[str, ...], tuple[dict[str, Any], ...]]] = [
            ((other,), (self._provider(self.elsewhere) if self.provider in LOCAL else IDENTITY,))
        ]
        if self.covered:
            rules.append(((self.kind.resource,), tuple(providers)))
        return configuration_of_rules(*rules)

    def _provider(self, held: list[tuple[str, bytes]]) -> dict[str, Any]:
        if self.provider.startswith("kms"):
            version = self.provider[4:6]
            return {"kms": {"apiVersion": version, "name": held[0][0], "endpoint": "unix:///run/kms.sock"}}
        return {self.provider if self.provider != PLAIN else "aesgcm": self._keys(held)}

    def _keys(self, held: list[tuple[str, bytes]]) -> dict[str, Any]:
        return {"keys": [{"name": name, "secret": base64.b64encode(key).decode()} for name, key in held]}

    def plugin(self) -> Keyring | None:
        if not self.provider.startswith("kms"):
            return None
        known = self.known or self.mine
        return Keyring({known.wrapped: known.key} if self.knows else {}, refusal=self.refusal)


CBC = ("aescbc", "kms v1, CBC")
KMS = tuple(name for name in PROVIDERS if name.startswith("kms"))
KMS_V2 = ("kms v2, key", "kms v2, seed")
BOUND = ("aesgcm", "kms v1, GCM", *KMS_V2)
TAGGED = (*BOUND, "secretbox")
SEALED = tuple(PROVIDERS)
ALL = (*SEALED, PLAIN)
RESOURCES = (
    "secrets",
    "configmaps",
    "pods",
    "customresourcedefinitions.apiextensions.k8s.io",
    "widgets.example.com",
)
BEGINS = 48
"""Bytes at the start of a plaintext by which an encryption key is shown to be right: a header, or three blocks."""
_PROTOBUF, _JSON, _CBOR = frozenset({"protobuf"}), frozenset({"json"}), frozenset({"cbor"})
_ANY = _PROTOBUF | _JSON | _CBOR


Plaintext = Callable[[Ground, bytes], bytes]
Value = Callable[[Ground, Sealed], bytes]


class Damage(NamedTuple):
    """One thing that is done.

    Attributes:
        causes: Each says what was done.
        providers: Under which it is done.
        encodings: To which objects.
        setting: What is different before anything is written.
        plaintext: What is done before it is encrypted.
        value: What is done to the stored bytes.
        resources: To which; empty for all.
    """

    causes: frozenset[Cause]
    providers: tuple[str, ...] = ALL
    encodings: frozenset[str] = _ANY
    setting: Callable[[Ground], None] = lambda _ground: None
    plaintext: Plaintext = lambda _ground, plaintext: plaintext
    value: Value = lambda _ground, sealed: sealed.value
    resources: tuple[str, ...] = ()


class CauseCase(NamedTuple):
    """One case.

    Attributes:
        seed: From which it is made.
        damage: Name of what was done.
        provider: Under which the value was written.
        resource: Of the object.
        causes: Each says what was done.
        allowed: The evidence allows to say it; see :data:`NOT_ALLOWED`.
        records: What etcd holds.
        target: The value in question.
        configuration: The file; None for none.
        plugin: Behind its KMS provider.
        minor: Release that is named; None for none.
    """

    seed: int
    damage: str
    provider: str
    resource: str
    causes: frozenset[Cause]
    allowed: bool
    records: tuple[StoredValue, ...]
    target: StoredValue
    configuration: bytes | None
    plugin: Keyring | None
    minor: int | None

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.provider}, {self.resource}, {self.damage}"


def make_cause_case(seed: int) -> CauseCase:
    rng = random.Random(seed + 1_000_000)
    name = rng.choice(list(DAMAGES))
    done = DAMAGES[name]
    provider = rng.choice(done.providers)
    choices = [
        k for k in _kinds() if k.encoding in done.encodings and k.resource in (done.resources or RESOURCES)
    ]
    ground = Ground(rng, provider, rng.choice(choices))
    done.setting(ground)
    plaintext = done.plaintext(ground, ground.plaintext(ground.identity))
    value = done.value(ground, ground.seal(plaintext, ground.written_at))
    target = StoredValue(ground.home, value, TARGET_REVISION, 5, 2, 0)
    records = [target, *ground.neighbours(), *ground.more]
    if ground.crd:
        records.append(StoredValue(*corpus.crd_record(), 3, 3, 1, 0))
    return CauseCase(
        seed, name, provider, ground.kind.resource, done.causes | ground.also, ground.allowed and ground.visible,
        tuple({record.key: record for record in records}.values()), target, ground.configuration(), ground.plugin(),
        36 if name == "a version that was removed" else None,
    )  # fmt: skip


def _kinds() -> list[Kind]:
    wanted = {"v1 Secret", "v1 ConfigMap", "v1 Pod", "apiextensions.k8s.io/v1beta1 CustomResourceDefinition"}
    wanted.add("example.com/v1 Widget")
    return [
        kind
        for kinds in corpus.kinds().values()
        for kind in kinds
        if kind.label in wanted and kind.encoding != "yaml"
    ]


# --- the configuration -----------------------------------------------------------------------------------------------


def _set(**changes: Any) -> Callable[[Ground], None]:
    def change(ground: Ground) -> None:
        for name, new in changes.items():
            setattr(ground, name, new)

    return change


def _name_gone(ground: Ground) -> None:
    ground.held = [("key7", ground.other.key)]


def _renamed(ground: Ground) -> None:
    ground.held = [("key7", ground.mine.key)]


def _of_another_rule(ground: Ground) -> None:
    ground.held, ground.elsewhere = [(ground.name, ground.other.key)], [("key1", ground.mine.key)]


def _wrong_bytes(ground: Ground) -> None:
    # Those around are in order under the key that is gone: nothing opens under what has its name now.
    ground.held = [(ground.name, ground.other.key)]


def _other_prefix(ground: Ground) -> None:
    ground.written_at = ground.kind.etcd_key(ground.rng.choice(KNOWN_PREFIXES), ground.identity)


def _hidden_prefix(ground: Ground) -> None:
    ground.written_at = ground.kind.etcd_key(f"/{ground.rng.randbytes(6).hex()}{PREFIX}", ground.identity)
    # Values around it that open at their own keys speak for damage: that is not what was done, and nothing tells.
    ground.around = False


def _moved(ground: Ground) -> None:
    ground.home = ground.kind.etcd_key(PREFIX, ground.identity._replace(name=f"{ground.identity.name}-copy"))


def _kms_says(status: str, *, around: bool, knows: bool) -> Callable[[Ground], None]:
    def change(ground: Ground) -> None:
        code = "".join(word.capitalize() for word in status.split("_"))
        ground.refusal, ground.around, ground.knows = (
            Failure(status, f"rpc error: code = {code}"),
            around,
            knows,
        )

    return change


def _kms_away(ground: Ground) -> None:
    ground.refusal, ground.knows = (
        Failure("UNAVAILABLE", "rpc error: code = Unavailable desc = refused"),
        False,
    )


def _one_key_gone(ground: Ground) -> None:
    ground.refusal, ground.around = Failure("NOT_FOUND", "rpc error: code = NotFound"), False
    identity = ground.identity._replace(name=f"today-{ground.identity.name[:20]}")
    at = ground.kind.etcd_key(PREFIX, identity)
    today = Secrets(ground.rng.randbytes(32), ground.rng.randbytes(48), "key-id-2")
    value = seal(
        ground.rng, ground.provider, ground.name, ground.kind.build(identity, "x" * 60), today, at
    ).value
    ground.more.append(StoredValue(at, value, 140, 140, 1, 0))
    ground.known = today


# --- what is written --------------------------------------------------------------------------------------------------


def _cut_plaintext(ground: Ground, plaintext: bytes) -> bytes:
    if ground.kind.encoding == "cbor":
        ground.also = frozenset({Cause.CBOR_DAMAGED})  # said of all CBOR that does not parse
    return plaintext[: -ground.rng.randint(2, len(plaintext) - 2 * BEGINS)]


def _twice(ground: Ground, plaintext: bytes) -> bytes:
    return ground.seal(plaintext, ground.written_at).value


def _magic(ground: Ground, plaintext: bytes) -> bytes:
    at = ground.rng.randrange(4)
    return plaintext[:at] + bytes([plaintext[at] ^ 1 << ground.rng.randrange(8)]) + plaintext[at + 1 :]


def _noise(ground: Ground, _plaintext: bytes) -> bytes:
    return b"\xc3" + ground.rng.randbytes(300)


def _nothing(ground: Ground, _plaintext: bytes) -> bytes:
    ground.allowed = ground.around or ground.provider != "kms v1, CBC"
    return b""


def _iv(ground: Ground, sealed: Sealed) -> bytes:
    ground.allowed = ground.around or ground.provider != "kms v1, CBC"
    return _overwritten("nonce")(ground, sealed)


def _zeros(ground: Ground, plaintext: bytes) -> bytes:
    ground.visible = ground.provider in (PLAIN, *TAGGED)
    return bytes(len(plaintext))


def _garbled_kind(ground: Ground, plaintext: bytes) -> bytes:
    kind = ground.kind.label.rsplit(" ", 1)[-1].encode()
    return plaintext.replace(kind, kind[:-1] + bytes([kind[-1] ^ 1]), 1)


def _another_kind(ground: Ground, _plaintext: bytes) -> bytes:
    meta = block(1, object_meta(ground.identity.name.encode(), ground.identity.namespace.encode(), b"u-1"))
    return unknown(b"v1", b"Service", meta)


def _wire_type(ground: Ground, _plaintext: bytes) -> bytes:
    meta = object_meta(ground.identity.name.encode(), ground.identity.namespace.encode(), b"u-1")
    return _with_kind(ground, block(1, meta) + entry(2, b"k", ground.text.encode()) + b"\x0f" + b"\x01\x02")


def _with_kind(ground: Ground, raw: bytes) -> bytes:
    version, kind = ground.kind.label.rsplit(" ", 1)
    return unknown(version.encode(), kind.encode(), raw)


def _metadata(*more: bytes, name: bytes | None = None) -> Plaintext:
    def change(ground: Ground, _plaintext: bytes) -> bytes:
        note = entry(12, b"note", ground.text.encode())
        own = ground.identity.name.encode() if name is None else name
        return _with_kind(
            ground, block(1, object_meta(own, ground.identity.namespace.encode(), b"u-1", *more, note))
        )

    return change


_BROKEN_FIELDS = block(
    17, block(1, b"kubectl") + block(2, b"Update") + block(7, block(1, b'{"f:data":{"f:k":}}'))
)


def _int_or_string(ground: Ground, _plaintext: bytes) -> bytes:
    meta = object_meta(ground.identity.name.encode(), ground.identity.namespace.encode(), b"u-1")
    action = block(2, number(1, 7) + number(2, 80) + block(3, b""))
    container = block(1, b"c") + block(10, block(1, block(2, action)))
    return _with_kind(ground, block(1, meta) + block(2, block(2, container)))


def _json_quote(_ground: Ground, plaintext: bytes) -> bytes:
    at = plaintext.rindex(b'":')
    return plaintext[:at] + b"!" + plaintext[at + 1 :]


def _cbor_broken(_ground: Ground, plaintext: bytes) -> bytes:
    at = plaintext.rindex(b"Dspec") if b"Dspec" in plaintext else len(plaintext) - 8
    return plaintext[:at] + b"\xff" + plaintext[at + 1 :]


def _without_kind(ground: Ground, plaintext: bytes) -> bytes:
    return re.sub(rb'"kind":"[^"]*",?', b"", plaintext, count=1)


def _other_version(ground: Ground, plaintext: bytes) -> bytes:
    return plaintext.replace(b"example.com/v1", b"example.com/v8", 1)


def _removed_version(ground: Ground, _plaintext: bytes) -> bytes:
    meta = block(1, object_meta(ground.identity.name.encode(), ground.identity.namespace.encode(), b"u-1"))
    return unknown(b"autoscaling/v2beta1", b"HorizontalPodAutoscaler", meta)


def _trailing(ground: Ground, plaintext: bytes) -> bytes:
    return plaintext + ground.rng.choice((bytes(16), ground.rng.randbytes(24), plaintext[:40]))


def _crlf_plaintext(_ground: Ground, plaintext: bytes) -> bytes:
    return plaintext.replace(b"\n", b"\r\n")


# --- what is stored ---------------------------------------------------------------------------------------------------


def _bit_in(name: str, *, after: int = 0) -> Value:
    def flip(ground: Ground, sealed: Sealed) -> bytes:
        part = sealed.parts[name]
        at = ground.rng.randrange(min(part.start + after, part.end - 1), part.end)
        return _flipped(sealed, [(at, ground.rng.randrange(8))]).value

    return flip


def _run_in(ground: Ground, sealed: Sealed) -> bytes:
    part = sealed.parts["ciphertext"]
    start = ground.rng.randrange(part.start + 2 * BEGINS, max(part.end - 48, part.start + 2 * BEGINS + 1))
    end = min(start + ground.rng.randint(16, 64), part.end)
    return sealed.value[:start] + ground.rng.randbytes(end - start) + sealed.value[end:]


def _overwritten(name: str) -> Value:
    def overwrite(ground: Ground, sealed: Sealed) -> bytes:
        part = sealed.parts[name]
        return (
            sealed.value[: part.start]
            + ground.rng.randbytes(part.end - part.start)
            + sealed.value[part.end :]
        )

    return overwrite


def _cut(ground: Ground, sealed: Sealed) -> bytes:
    room = len(sealed.value) - sealed.parts["ciphertext"].start - 2 * BEGINS
    return sealed.value[: -ground.rng.randint(1, max(room, 2))]


def _cut_short(ground: Ground, sealed: Sealed) -> bytes:
    body = sealed.body()
    least = {"aescbc": 16, "aesgcm": 12, "secretbox": 40}[ground.provider]
    return sealed.value[: body.start + ground.rng.randrange(least)]


def _cut_in_name(ground: Ground, sealed: Sealed) -> bytes:
    return sealed.value[: ground.rng.randint(len("k8s:enc:") + 1, sealed.value.index(b":v") + 3)]


def _appended(ground: Ground, sealed: Sealed) -> bytes:
    return sealed.value + ground.rng.randbytes(ground.rng.randint(1, 64))


def _crlf(ground: Ground, sealed: Sealed) -> bytes:
    value = sealed.value.replace(b"\n", b"\r\n")
    ground.allowed = value != sealed.value and b"\r\n" not in sealed.value
    if ground.provider in KMS_V2:
        ground.also = frozenset({Cause.KMS_ENVELOPE_DAMAGED})  # its lengths no longer fit
    return value


def _prefix_bit(ground: Ground, sealed: Sealed) -> bytes:
    return _flipped(sealed, [(ground.rng.randrange(8), ground.rng.randrange(8))]).value


def _other_provider(ground: Ground, sealed: Sealed) -> bytes:
    return (
        b"k8s:enc:"
        + ground.rng.choice((b"chacha", b"aesgcn", b"vault"))
        + sealed.value[sealed.value.index(b":v") :]
    )


def _tag_of_envelope(ground: Ground, sealed: Sealed) -> bytes:
    at = sealed.value.index(b":prov:") + len(b":prov:")
    return sealed.value[:at] + b"\x0f" + sealed.value[at + 1 :]


def _size_of_key(ground: Ground, sealed: Sealed) -> bytes:
    at = sealed.parts["wrapped"].start - 2
    return sealed.value[:at] + b"\xff" + sealed.value[at + 1 :]


def _source_type(ground: Ground, sealed: Sealed) -> bytes:
    value = sealed.value
    if value.endswith(b"\x28\x01"):
        return value[:-2] + b"\x28\x05"
    return value + b"\x28\x05"


def _allocator(ground: Ground) -> None:
    ground.home = ground.written_at = b"/registry/ranges/serviceips"
    ground.covered = False


def _autoscaler(ground: Ground) -> None:
    namespace, name = ground.identity.namespace or "shop", ground.identity.name
    ground.home = f"/registry/horizontalpodautoscalers/{namespace}/{name}".encode()
    ground.identity, ground.around = ground.identity._replace(namespace=namespace), False


def _no_definition(ground: Ground) -> None:
    ground.crd = False


_TAG_CAUSE = frozenset({Cause.CIPHERTEXT_DAMAGED})
_CUT_CAUSE = frozenset({Cause.VALUE_TRUNCATED})
_ENVELOPE_CAUSE = frozenset({Cause.KMS_ENVELOPE_DAMAGED})


def _one(cause: Cause, *others: Cause) -> frozenset[Cause]:
    return frozenset({cause, *others})


DAMAGES: dict[str, Damage] = {
    # the configuration, the plugin
    "no configuration": Damage(_one(Cause.NO_CONFIGURATION), SEALED, setting=_set(given=False)),
    "resource not configured": Damage(_one(Cause.RESOURCE_NOT_CONFIGURED), SEALED, setting=_set(covered=False)),
    "provider left out": Damage(_one(Cause.PROVIDER_MISSING), SEALED, setting=_set(own=False)),
    "key left out": Damage(_one(Cause.KEY_NAME_MISSING), LOCAL, setting=_name_gone),
    "key renamed": Damage(_one(Cause.KEY_RENAMED), (*LOCAL, *KMS), setting=_renamed),
    "key of other resources": Damage(_one(Cause.KEY_RENAMED), LOCAL, setting=_of_another_rule),
    "key with other bytes": Damage(_one(Cause.WRONG_KEY), LOCAL, setting=_wrong_bytes),
    "identity left out": Damage(_one(Cause.PLAINTEXT_NOT_ALLOWED), (PLAIN,), setting=_set(with_identity=False)),
    "another storage prefix": Damage(_one(Cause.STORAGE_PREFIX_CHANGED), BOUND, setting=_other_prefix),
    "a prefix that nothing names": Damage(_one(Cause.ASSOCIATED_DATA_UNKNOWN), BOUND, setting=_hidden_prefix),
    "copied to another etcd key, bound": Damage(_one(Cause.VALUE_MOVED), BOUND, setting=_moved),
    "copied to another etcd key, not bound": Damage(
        _one(Cause.IDENTITY_MISMATCH), (*CBC, "secretbox", PLAIN), setting=_moved
    ),
    "plugin away": Damage(_one(Cause.KMS_UNREACHABLE), KMS, setting=_kms_away),
    "plugin not allowed": Damage(
        _one(Cause.KMS_DENIED), KMS, setting=_kms_says("PERMISSION_DENIED", around=True, knows=False)
    ),
    "plugin lost one of its keys": Damage(_one(Cause.KMS_KEY_UNKNOWN), KMS_V2, setting=_one_key_gone),
    "plugin of another keyring": Damage(
        _one(Cause.KMS_UNPROVEN), KMS, setting=_kms_says("INVALID_ARGUMENT", around=True, knows=False)
    ),
    # what frames the encrypted data
    "a bit of k8s:enc:": Damage(_one(Cause.ENVELOPE_DAMAGED), SEALED, value=_prefix_bit),
    "an unknown provider": Damage(_one(Cause.UNKNOWN_ENVELOPE), SEALED, value=_other_provider),
    "cut inside the envelope": Damage(_CUT_CAUSE, SEALED, value=_cut_in_name),
    "cut to less than any value has": Damage(_CUT_CAUSE, LOCAL, value=_cut_short),
    "KMS v2 framing broken": Damage(_ENVELOPE_CAUSE, KMS_V2, value=_tag_of_envelope),
    "KMS v1 length of the data key": Damage(_ENVELOPE_CAUSE, ("kms v1, GCM", "kms v1, CBC"), value=_size_of_key),
    "KMS v2 unknown kind of data key": Damage(
        _one(Cause.UNKNOWN_ENVELOPE), KMS_V2, value=_source_type
    ),
    "wrapped data key overwritten, others around": Damage(
        _ENVELOPE_CAUSE, KMS, setting=_set(around=True), value=_overwritten("wrapped")
    ),
    # the encrypted data
    "one bit of the ciphertext": Damage(_TAG_CAUSE, TAGGED, value=_bit_in("ciphertext")),
    "one bit of the tag": Damage(_TAG_CAUSE, TAGGED, value=_bit_in("tag")),
    "one bit of the nonce": Damage(_one(Cause.NONCE_DAMAGED), TAGGED, value=_bit_in("nonce")),
    "one bit of the info": Damage(_one(Cause.NONCE_DAMAGED), ("kms v2, seed",), value=_bit_in("info")),
    "nonce overwritten, others around": Damage(
        _one(Cause.NONCE_DAMAGED), ("aesgcm", "secretbox"), setting=_set(around=True), value=_overwritten("nonce")
    ),
    "IV overwritten": Damage(
        _one(Cause.IV_DAMAGED), CBC, _PROTOBUF | _JSON, value=_iv
    ),
    "some bytes of the ciphertext, others around": Damage(_TAG_CAUSE, TAGGED, setting=_set(around=True), value=_run_in),
    "cut at the end": Damage(_CUT_CAUSE, (*LOCAL, "kms v1, GCM", "kms v1, CBC"), value=_cut),
    "KMS v2 value cut at the end": Damage(
        _one(Cause.VALUE_TRUNCATED, Cause.KMS_ENVELOPE_DAMAGED), KMS_V2, value=_cut
    ),
    "bytes appended": Damage(_TAG_CAUSE, (*LOCAL, "kms v1, GCM", "kms v1, CBC"), value=_appended),
    "CR LF for LF, encrypted": Damage(_one(Cause.TEXT_MODE_DAMAGE), TAGGED, value=_crlf),
    # the object itself, before it is encrypted or without encryption
    "encrypted twice": Damage(_one(Cause.DOUBLE_ENCRYPTED), SEALED, plaintext=_twice),
    "0 bytes": Damage(_one(Cause.EMPTY_VALUE), ALL, plaintext=_nothing),
    "nothing but zeros": Damage(_one(Cause.ZEROED_VALUE), ALL, plaintext=_zeros),
    "an object without contents": Damage(
        _one(Cause.EMPTY_OBJECT), (*TAGGED, PLAIN), _PROTOBUF, plaintext=lambda g, _p: _with_kind(g, b"")
    ),
    "magic: one bit": Damage(_one(Cause.MAGIC_DAMAGED), (*TAGGED, PLAIN), _PROTOBUF, plaintext=_magic),
    "protobuf: a wire type": Damage(_one(Cause.PROTOBUF_DAMAGED), ALL, _PROTOBUF, plaintext=_wire_type),
    "plaintext cut": Damage(_CUT_CAUSE, ALL, plaintext=_cut_plaintext),
    "bytes after the object": Damage(_one(Cause.TRAILING_BYTES), ALL, _PROTOBUF, plaintext=_trailing),
    "JSON: a quote": Damage(_one(Cause.JSON_DAMAGED), ALL, _JSON, plaintext=_json_quote),
    "CBOR: a break": Damage(_one(Cause.CBOR_DAMAGED), ALL, _CBOR, plaintext=_cbor_broken),
    "no encoding at all": Damage(_one(Cause.UNKNOWN_ENCODING), (*TAGGED, PLAIN), plaintext=_noise),
    "kind: one bit": Damage(_one(Cause.KIND_NOT_REGISTERED), ALL, _PROTOBUF, plaintext=_garbled_kind),
    "another kind": Damage(_one(Cause.WRONG_KIND_FOR_KEY), ALL, _PROTOBUF, plaintext=_another_kind),
    "a version that was removed": Damage(
        _one(Cause.VERSION_REMOVED), (PLAIN,), _PROTOBUF, setting=_autoscaler, plaintext=_removed_version
    ),
    "a version that the CRD lacks": Damage(
        _one(Cause.CRD_VERSION_MISSING), ALL, plaintext=_other_version, resources=("widgets.example.com",)
    ),
    "kind left out": Damage(
        _one(Cause.KIND_MISSING), ALL, _JSON, plaintext=_without_kind, resources=("widgets.example.com",)
    ),
    "CR LF for LF": Damage(
        _one(Cause.TEXT_MODE_DAMAGE), (PLAIN,), _PROTOBUF,
        plaintext=_crlf_plaintext, setting=lambda g: setattr(g, "text", f"one\ntwo\n{g.text}"),
    ),
    "another name inside": Damage(
        _one(Cause.IDENTITY_MISMATCH), ALL, _PROTOBUF, plaintext=_metadata(name=b"somebody-else")
    ),
    "text that is not UTF-8": Damage(
        _one(Cause.INVALID_UTF8), ALL, _PROTOBUF, plaintext=_metadata(entry(11, b"app", b"a\xff\xfeb"))
    ),
    "managedFields that are no JSON": Damage(
        _one(Cause.RAW_JSON_INVALID), ALL, _PROTOBUF, plaintext=_metadata(_BROKEN_FIELDS)
    ),
    "an IntOrString of no type": Damage(
        _one(Cause.INT_OR_STRING_INVALID), ALL, _PROTOBUF, plaintext=_int_or_string, resources=("pods",)
    ),
    # what nobody can judge
    "allocator: cut": Damage(
        _one(Cause.ALLOCATOR_DAMAGED), (PLAIN,), _PROTOBUF, setting=_allocator,
        plaintext=lambda _g, _p: objects.allocation()[:40],
    ),
    "definition gone, JSON cut": Damage(
        _one(Cause.OWNER_UNKNOWN), (PLAIN,), _JSON, setting=_no_definition, plaintext=_cut_plaintext,
        resources=("widgets.example.com",),
    ),
}  # fmt: skip
"""By name, what is done; the first cause of each is what was meant, the others say it too."""
