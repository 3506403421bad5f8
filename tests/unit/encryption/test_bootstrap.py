"""Bootstrap data: one thing is taken out of it, and no byte of the rest is ever said."""

from __future__ import annotations

import base64
import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.encryption.bootstrap import BootstrapState, OpenedBootstrap, RecoveredFile, Stage, open_bootstrap
from etcdfix.encryption.server_token import EMPTY_TOKEN, forms_of
from tests.support.k3s_bootstrap import CA_KEY, TOKEN, aescbc_config, bootstrap, files, path, seal, stage_line

KEY = b"k" * 32
CONFIG = aescbc_config(("aescbckey", KEY))
TOKENS = (*forms_of(TOKEN.encode()), EMPTY_TOKEN)
HERE = path().encode()


def opened(value: bytes, etcd_key: bytes = HERE) -> OpenedBootstrap:
    return open_bootstrap(etcd_key, value, TOKENS)


def of_json(document: Any) -> OpenedBootstrap:
    return opened(seal(json.dumps(document).encode()))


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def taken(found: OpenedBootstrap) -> bytes:
    assert found.file is not None
    return found.file.expose()


def test_the_configuration_and_its_stage_are_taken_out() -> None:
    found = opened(bootstrap(CONFIG, stage="reencrypt_finished"))
    assert (found.state, found.reason) == (BootstrapState.RECOVERED, "")
    assert taken(found) == CONFIG
    assert found.file is not None
    assert found.file.stage == Stage("reencrypt_finished", found.file.sha256)


def test_a_value_under_the_key_of_another_token_opens_all_the_same() -> None:
    assert opened(bootstrap(CONFIG), path("").encode()).state is BootstrapState.RECOVERED
    assert opened(bootstrap(CONFIG), b"/bootstrap/").state is BootstrapState.RECOVERED


def test_another_token_is_told_from_damage() -> None:
    assert opened(bootstrap(CONFIG, "other"), path("other").encode()).state is BootstrapState.OTHER_TOKEN
    damaged = opened(bootstrap(CONFIG, "other"))
    assert damaged.state is BootstrapState.DAMAGED
    assert "tag does not fit" in damaged.reason


@pytest.mark.parametrize("config", [None, b""])
def test_encryption_may_not_have_been_enabled_then(config: bytes | None) -> None:
    assert opened(bootstrap(config)).state is BootstrapState.NOT_ENABLED


@pytest.mark.parametrize(
    "document",
    [{}, {"EncryptionConfig": None}, {"EncryptionConfig": {}}, {"EncryptionConfig": {"Content": None}}],
)
def test_nothing_is_nothing_however_it_is_written(document: Any) -> None:
    assert of_json(document).state is BootstrapState.NOT_ENABLED


def test_an_empty_value_is_a_lock() -> None:
    assert opened(b"").state is BootstrapState.LOCK


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"no colon here", "13 bytes without a colon"),
        (b"salt:not*base64", "not base64"),
        (b"salt:" + base64.b64encode(bytes(27)), "27 bytes follow the salt"),
        (b"salt:" + base64.b64encode(bytes(28)), "tag does not fit"),
        (b"salt:", "0 bytes follow"),
    ],
)
def test_what_is_no_such_value_is_said(value: bytes, reason: str) -> None:
    found = opened(value)
    assert found.state is BootstrapState.DAMAGED
    assert reason in found.reason


SECRET = "PRIVATE-KEY-OF-THE-CA"
WHOLE = files(CONFIG)


@pytest.mark.parametrize(
    "plaintext",
    [
        b"",
        CA_KEY,
        b'"' + SECRET.encode() + b'"',
        b"[1]",
        WHOLE[:-3],
        WHOLE + SECRET.encode(),
        json.dumps({"EncryptionConfig": f"{SECRET}*"}).encode(),
        json.dumps({"EncryptionConfig": {"Content": 3, "Timestamp": SECRET}}).encode(),
        json.dumps({"EncryptionConfig": {"Content": f"{SECRET}*"}}).encode(),
        json.dumps({"EncryptionConfig": [SECRET]}).encode(),
        b'{"EncryptionConfig": "\xff' + SECRET.encode() + b'"}',
        b'{"EncryptionConfig": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_was_not_understood_leaves_no_byte_of_it(plaintext: bytes) -> None:
    found = opened(seal(plaintext))
    assert found.state is BootstrapState.NOT_UNDERSTOOD
    assert found.file is None
    assert found.reason == (
        f"it opens to {len(plaintext)} bytes that are not the JSON object which k3s and RKE2 write"
    )


@pytest.mark.parametrize(
    "stage",
    [
        None,
        "not*base64",
        {"Content": 3},
        {"Content": None},
        {"Content": encoded(b"start-" + SECRET.encode())},
        {"Content": encoded(b"x" + stage_line(CONFIG))[:-4]},
    ],
)
def test_a_damaged_stage_takes_nothing_with_it(stage: Any) -> None:
    found = of_json({"EncryptionConfig": {"Content": encoded(CONFIG)}, "EncryptionHash": stage})
    assert taken(found) == CONFIG
    assert found.file is not None
    assert found.file.stage is None


def test_a_stage_is_of_the_file_that_it_names_and_a_request_may_be_of_any() -> None:
    for stage, other in (("start", False), ("reencrypt_request", True)):
        said = Stage.parse(stage_line(CONFIG, stage) + b"\n")
        assert said is not None
        assert (said.is_of(said.sha256), said.is_of("sha256:0")) == (True, other)
    assert Stage.parse(b"start") is Stage.parse(stage_line(CONFIG) + b"0") is None


def test_the_file_does_not_get_out() -> None:
    file = RecoveredFile(CONFIG, stage=None)
    assert repr(file) == f"RecoveredFile({file.sha256})"
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, RecoveredFile.__getstate__):
        with pytest.raises(TypeError):
            attempt(file)
    assert SECRET not in repr(opened(bootstrap(CONFIG)))


VALUE = bootstrap(CONFIG)


@given(st.integers(0, len(VALUE) - 1), st.integers(0, 7))
def test_a_flipped_bit_never_yields_another_configuration(byte: int, bit: int) -> None:
    damaged = VALUE[:byte] + bytes([VALUE[byte] ^ 1 << bit]) + VALUE[byte + 1 :]
    found = opened(damaged)
    # Bits of the last character before the padding may mean nothing.
    if found.state is BootstrapState.RECOVERED:
        assert taken(found) == CONFIG
    else:
        assert found.state is BootstrapState.DAMAGED


@given(st.integers(1, len(VALUE) - 1))
def test_a_cut_value_is_damaged(length: int) -> None:
    assert opened(VALUE[:length]).state is BootstrapState.DAMAGED


@given(st.binary(max_size=200))
def test_any_bytes_have_a_state(value: bytes) -> None:
    assert opened(value).state in {BootstrapState.DAMAGED, BootstrapState.LOCK}
