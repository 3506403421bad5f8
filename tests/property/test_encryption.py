"""Properties of the encryption package: round trips against a foreign encoder, and parsers on anything."""

from __future__ import annotations

import base64
import contextlib
import random
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etcdfix.encryption.cipher import Flip
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import socket_path
from etcdfix.encryption.envelope import parse_envelope, transformer_name
from etcdfix.encryption.keyring import fingerprint
from etcdfix.encryption.kms.envelopes import (
    EncryptedObject,
    KMSEnvelopeInvalid,
    parse_encrypted_object,
    parse_v1_body,
    validate_encrypted_object,
)
from etcdfix.encryption.providers import cipher_of
from etcdfix.encryption.transformer import ResourceTransformers, Transformers
from etcdfix.golang.gotime import parse_duration
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import (
    Attempt,
    FailureReason,
    GroupResource,
    PeekState,
    Plaintext,
    TransformFailure,
    Undone,
)
from etcdfix.model.providers import ProviderType
from tests.support import encoders
from tests.support.peeking import (
    ETCD_KEY,
    NONCE12,
    ONE,
    SECRETS,
    STRUCTURES,
    peeked,
    sealed,
    secret,
    transformers,
)
from tests.support.thorough import THOROUGH

KEYS = [bytes([n]) * 32 for n in range(3)]
NAMES = ["k", "k:k", "other"]


def _readers() -> list[ResourceTransformers]:
    keys = ", ".join(
        f'{{name: "{name}", secret: {base64.b64encode(key).decode()}}}'
        for name, key in zip(NAMES, KEYS, strict=True)
    )
    cbc, gcm, box = (f"{{{name}: {{keys: [{keys}]}}}}" for name in ("aescbc", "aesgcm", "secretbox"))
    more, kms = (f"{{kms: {{apiVersion: {v}, name: p, endpoint: 'unix:///x'}}}}" for v in ("v1", "v2"))
    identity = "{identity: {}}"
    lists = [
        [cbc, gcm, box, kms, identity], [identity, gcm, cbc], [box, gcm, cbc, cbc, gcm], [more, gcm],
        [identity],
    ]  # fmt: skip
    text = "apiVersion: v1\nkind: EncryptionConfig\nresources:\n"
    for number, listed in enumerate(lists):
        text += f"- resources: [r{number}]\n  providers: [{', '.join(listed)}]\n"
    found = Transformers.from_configuration(parse_configuration(text.encode(), path="test"))
    return [found.for_resource(GroupResource("", f"r{number}")) for number in range(len(lists) + 1)]


READERS = _readers()
plaintexts = st.binary(max_size=200) | st.sampled_from(
    [b"", b"k8s\x00", b"k8s:enc:aescbc:v1:k:x", bytes(5000)]
)
etcd_keys = st.binary(max_size=60)


@st.composite
def encrypted(draw: st.DrawFn) -> tuple[str, str, bytes, bytes, bytes]:
    number = draw(st.integers(0, 2))
    name, key = NAMES[number], KEYS[number]
    plaintext, etcd_key = draw(plaintexts), draw(etcd_keys)
    provider = draw(st.sampled_from(["aescbc", "aesgcm", "secretbox"]))
    nonce = draw(st.binary(min_size=24, max_size=24))
    body = encoders.local_body(provider, plaintext, key, nonce, etcd_key)
    return provider, name, plaintext, etcd_key, f"k8s:enc:{provider}:v1:{name}:".encode() + body


def told(found: Plaintext | TransformFailure) -> object:
    if isinstance(found, Plaintext):
        return found.data, found.transformer, found.stale
    return [(attempt.transformer, attempt.reason) for attempt in found.attempts]


def searched(reader: ResourceTransformers, data: bytes, etcd_key: bytes) -> object:
    """What the API server's own nested search comes to, without a plugin."""
    said: list[tuple[str, FailureReason]] = []
    for at, provider in enumerate(reader._providers):
        if not data.startswith(provider.prefix):
            continue
        if provider.type is ProviderType.IDENTITY:
            if not data.startswith(b"k8s:enc:"):
                return data, "identity", at != 0
            continue
        own = [(key.transformer, FailureReason.KMS_UNREACHABLE) for key in provider.keys if provider.kms]
        for number, (key, cipher) in enumerate(zip(provider.keys, provider.ciphers, strict=False)):
            if data.startswith(key.prefix):
                found = cipher.read(data[len(key.prefix) :], etcd_key)
                if not isinstance(found, Attempt):
                    return found, key.transformer, at != 0 or number != 0
                own.append((key.transformer, found.reason))
        said += own or [(f"{provider.type}/v1", FailureReason.NO_KEY_MATCHED)]
    return said


@given(encrypted())
def test_round_trip(case: tuple[str, str, bytes, bytes, bytes]) -> None:
    provider, name, plaintext, etcd_key, data = case
    opened = READERS[2].from_storage(data, etcd_key)
    # Key k also matches what k:k wrote, and without authentication it may even seem to open it.
    if (provider, name) == ("aescbc", "k:k") and opened.transformer == "aescbc/v1/k":
        return
    assert opened == Plaintext(
        plaintext,
        f"{provider}/v1/{name}",
        stale=(provider, name) != ("secretbox", "k"),
        key_fingerprint=fingerprint(KEYS[NAMES.index(name)]),
        authenticated=provider != "aescbc",
    )


@given(encrypted(), st.data())
def test_damaged_values_are_read_as_the_nested_search_reads_them(
    case: tuple[str, str, bytes, bytes, bytes], data: st.DataObject
) -> None:
    *_, etcd_key, value = case
    at = data.draw(st.integers(0, len(value)))
    damage = data.draw(st.sampled_from(["cut", "flip", "insert", "none", "move"]))
    if damage == "cut":
        value = value[:at]
    elif damage == "flip" and at < len(value):
        value = value[:at] + bytes([value[at] ^ data.draw(st.integers(1, 255))]) + value[at + 1 :]
    elif damage == "insert":
        value = value[:at] + data.draw(st.binary(max_size=20)) + value[at:]
    elif damage == "move":
        etcd_key += b"x"
    for reader in READERS:
        for _ in range(2):  # the second time a failure is remembered
            assert told(reader.read(value, etcd_key)) == searched(reader, value, etcd_key)


beginnings = st.sampled_from(
    [b"", b"k8s:enc:", *(f"k8s:enc:{p}:v1:{n}:".encode() for p in ("aescbc", "aesgcm", "secretbox") for n in NAMES),
     b"k8s:enc:kms:v2:p:", b"k8s:enc:kms:v1:p:", b"k8s:enc:aescbc:v1:"]
)  # fmt: skip


@given(beginnings, st.binary(max_size=100), etcd_keys)
@example(b"k8s:enc:kms:v1:p:", b"\0\1w" + bytes(40), b"/k")
def test_anything_is_read_as_the_nested_search_reads_it(
    beginning: bytes, rest: bytes, etcd_key: bytes
) -> None:
    for reader in READERS:
        outcome = reader.read(beginning + rest, etcd_key)
        assert told(outcome) == searched(reader, beginning + rest, etcd_key)
        if isinstance(outcome, Plaintext) and outcome.transformer == "identity":
            assert outcome.data == beginning + rest
            assert not outcome.data.startswith(b"k8s:enc:")


@given(st.binary(max_size=60))
@example(b"k8s:enc:aescbc:v1:\xff\xfe:x")
def test_envelopes_of_anything(rest: bytes) -> None:
    assert parse_envelope(b"x" + rest) is None
    envelope = parse_envelope(b"k8s:enc:" + rest)
    assert envelope is not None
    assert 8 <= envelope.body_offset <= 8 + len(rest)
    assert envelope.transformer.isprintable()
    assert envelope.transformer.count("/") <= 2


@given(st.text(min_size=1, max_size=40).filter(lambda name: "\udfff" not in name), st.binary(max_size=10))
def test_configured_names_come_back(name: str, body: bytes) -> None:
    data = f"k8s:enc:aescbc:v1:{name}:".encode() + body
    envelope = parse_envelope(data, [name])
    assert envelope is not None
    assert (envelope.name, data[envelope.body_offset :]) == (name, body)
    assert envelope.transformer == transformer_name("aescbc", "v1", name)


named_bytes = st.dictionaries(st.text(max_size=20), st.binary(max_size=20), max_size=4)


@given(
    st.binary(max_size=80),
    st.text(max_size=30),
    st.binary(max_size=80),
    named_bytes,
    st.integers(-(1 << 31), (1 << 31) - 1),
)
def test_kms_v2_objects_of_the_protobuf_runtime_are_read(
    data: bytes, key_id: str, dek_source: bytes, named: dict[str, bytes], source_type: int
) -> None:
    body = encoders.kms_v2_body(
        data, key_id=key_id, dek_source=dek_source, annotations=named, source_type=source_type
    )
    assert parse_encrypted_object(body) == EncryptedObject(
        data, key_id, dek_source, tuple(sorted(named.items())), source_type
    )


@given(st.binary(max_size=200))
def test_kms_parsers_on_anything(body: bytes) -> None:
    with contextlib.suppress(KMSEnvelopeInvalid):
        wrapped, data = parse_v1_body(body)
        assert len(wrapped.ciphertext).to_bytes(2, "big") + wrapped.ciphertext + data == body
    with contextlib.suppress(KMSEnvelopeInvalid):
        encrypted = parse_encrypted_object(body)
        validate_encrypted_object(encrypted)
        assert encrypted.encrypted_data


HEADER = b"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
structure = ["- ", "  ", "\n", ", ", ": ", "? ", "{", "}", "[", "]", "\t", "---\n"]
syntax = ["&a ", "*a", "<<: ", "!!int ", "'", '"', "|", ">", "~", "y", "0x1"]
fields = [
    "resources: ", "[secrets]", "providers:", "aescbc: ", "keys: ", "name: k", "secret: AA==",
    "identity: {}", "kms: ",
]  # fmt: skip
pieces = st.sampled_from(structure + syntax + fields)


@given(st.binary(max_size=200) | st.lists(pieces, max_size=30).map(lambda p: HEADER + "".join(p).encode()))
@example(b'{"a":' * 100_000)
@example(b"[" * 100_000)
def test_configurations_of_anything(raw: bytes) -> None:
    refused: list[ConfigurationError] = []
    try:
        assert parse_configuration(raw, path="any").rules
    except ConfigurationError as error:
        refused.append(error)
    assert all(error.message.startswith("encryption configuration ") and error.hint for error in refused)


@given(st.text(max_size=30) | st.from_regex(r"-?([0-9.]{0,4}(ms|s|h|x)){1,3}", fullmatch=True))
def test_durations_and_endpoints_of_anything(text: str) -> None:
    assert (parse_duration(text) is None) is (_DURATION.fullmatch(text) is None)
    for endpoint in (text, f"unix:{text}"):
        assert socket_path(endpoint) is None or endpoint.startswith("unix:")


_DURATION = re.compile(r"[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")


LOCAL = ("aescbc", "aesgcm", "secretbox")
_WORDS = re.compile(r"bit (\d) of byte (\d+) of the (\w+)")

objects_of_kinds = st.sampled_from(
    [
        secret(),
        secret(2000),
        b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","uid":"u"}}\n',
        b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s1","namespace":"default"}}\n',
        b"apiVersion: v1\nkind: Secret\nmetadata:\n  name: s1\n  namespace: default\n  labels: {}\n",
        b"\xd9\xd9\xf7\xa4\x44kind\x46Widget\x44spec\xa0\x48metadata\xa0\x4aapiVersion\x4eexample.com/v1",
    ]
)


def configured(*keys: bytes) -> Transformers:
    listed = ", ".join(f"{{name: key1, secret: {base64.b64encode(key).decode()}}}" for key in keys)
    providers = ", ".join(f"{{{provider}: {{keys: [{listed}]}}}}" for provider in LOCAL)
    return transformers(f"- {{resources: [secrets], providers: [{providers}]}}\n")


RIGHT = configured(ONE)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes, bytes]:
    provider, plaintext = draw(st.sampled_from(LOCAL)), draw(objects_of_kinds)
    value = sealed(provider, plaintext)
    start = value.index(NONCE12)
    match draw(st.sampled_from(["bit", "byte", "cut", "text", "insert", "none"])):
        case "bit":
            at = draw(st.integers(start, len(value) - 1))
            value = value[:at] + bytes([value[at] ^ 1 << draw(st.integers(0, 7))]) + value[at + 1 :]
        case "byte":
            at = draw(st.integers(start, len(value) - 1))
            value = value[:at] + draw(st.binary(min_size=1, max_size=20)) + value[at + 1 :]
        case "cut":
            value = value[: draw(st.integers(start, len(value)))]
        case "text":
            value = value.replace(b"\n", b"\r\n")
        case "insert":
            at = draw(st.integers(start, len(value)))
            value = value[:at] + draw(st.binary(max_size=40)) + value[at:]
    return provider, plaintext, value


@given(damaged(), st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3))
def test_a_wrong_key_never_looks_right(case: tuple[str, bytes, bytes], keys: list[bytes]) -> None:
    _, _, value = case
    others = [key for key in keys if key != ONE]
    if others:
        assert peeked(configured(*others), value).state is not PeekState.RIGHT_KEY


@given(damaged())
def test_whatever_is_undone_opens(case: tuple[str, bytes, bytes]) -> None:
    provider, plaintext, value = case
    found = peeked(RIGHT, value)
    if found.undone is None:
        return
    start = len(f"k8s:enc:{provider}:v1:key1:")
    head, body = value[:start], value[start:]
    if found.undone.what is Undone.TEXT_MODE:
        body = body.replace(b"\r\n", b"\n")
    else:
        match = _WORDS.fullmatch(found.undone.detail)
        assert match is not None
        parts = {
            "aesgcm": {"nonce": 0, "ciphertext": 12, "tag": len(body) - 16},
            "secretbox": {"nonce": 0, "tag": 24, "ciphertext": 40},
        }[provider]
        body = Flip(match[3], int(match[2]), int(match[1]), parts[match[3]]).turned(body)
    opened = RIGHT.for_resource(SECRETS).from_storage(head + body, ETCD_KEY)
    assert opened.data == plaintext


@given(damaged())
def test_one_flipped_bit_behind_the_start_is_found(case: tuple[str, bytes, bytes]) -> None:
    provider, plaintext, value = case
    whole = sealed(provider, plaintext)
    if provider == "aescbc" or len(value) != len(whole):
        return
    wrong = (int.from_bytes(value) ^ int.from_bytes(whole)).bit_count()
    found = peeked(RIGHT, value)
    if wrong == 1:
        assert found.state is PeekState.RIGHT_KEY
        assert found.undone is not None
    elif wrong == 0:
        assert found.opens


@pytest.mark.parametrize("provider", LOCAL)
def test_thousands_of_wrong_keys(provider: str) -> None:
    source = random.Random(5)
    value = sealed(provider)
    body = value[value.index(NONCE12) :]
    for _ in range(5_000 if THOROUGH else 500):
        cipher = cipher_of(ProviderType(provider), source.randbytes(32))
        start = cipher.start(body)
        assert STRUCTURES.recognise_blocks(start) is None
        assert STRUCTURES.recognise(start) is None
