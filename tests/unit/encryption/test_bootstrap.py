"""Bootstrap data: one thing is taken out of it, and no byte of the rest is ever said."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.encryption.bootstrap import (
    EMPTY_TOKEN,
    BootstrapState,
    OpenedBootstrap,
    RecoveredFile,
    ServerToken,
    Stage,
    forms_of,
    load_token,
    open_bootstrap,
    password_of,
)
from etcdfix.model.errors import ConfigurationError
from tests.support import k3s_bootstrap
from tests.support.k3s_bootstrap import (
    CA_KEY,
    PASSWORD,
    TOKEN,
    aescbc_config,
    bootstrap,
    files,
    path,
    seal,
    stage_line,
)

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


def test_another_token_is_told_from_damage() -> None:
    assert opened(bootstrap(CONFIG, "other"), path("other").encode()).state is BootstrapState.OTHER_TOKEN
    damaged = opened(bootstrap(CONFIG, "other"))
    assert damaged.state is BootstrapState.DAMAGED
    assert "tag does not fit" in damaged.reason


@pytest.mark.parametrize("config", [None, b""])
def test_encryption_may_not_have_been_enabled_then(config: bytes | None) -> None:
    assert opened(bootstrap(config)).state is BootstrapState.NOT_ENABLED


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
        None, "not*base64", {"Content": 3}, {"Content": None},
        {"Content": encoded(b"start-" + SECRET.encode())},
        {"Content": encoded(b"x" + stage_line(CONFIG))[:-4]},
    ],
)  # fmt: skip
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


HASH = "ab" * 32


@pytest.mark.parametrize(
    ("token", "password"),
    [
        (TOKEN, PASSWORD),
        (f"K10::server:{PASSWORD}", PASSWORD),
        (f"K10{HASH}::server:with:colons::in:it", "with:colons::in:it"),
        ("K10server:short", "short"),
        ("plain", "plain"),
        ("node:password", "node:password"),
        ("a::b:c", "a::b:c"),
        (f"K10{HASH[:-1]}::server:x", None),
        (f"K10{HASH}::server:", None),
        (f"K10{HASH}::abcdef.0123456789abcdef", None),
        ("K10justthis", None),
        ("", None),
    ],
)
def test_the_password_is_what_servers_take_of_a_token(token: str, password: str | None) -> None:
    assert password_of(token.encode()) == (password.encode() if password is not None else None)


def forms(raw: str) -> list[bytes]:
    return [token.etcd_key for token in forms_of(raw.encode())]


def at(token: str) -> bytes:
    return k3s_bootstrap.path(token).encode()


def test_each_form_that_was_ever_used_is_tried_once() -> None:
    assert forms(f"{TOKEN}\n") == [at(PASSWORD), at(TOKEN)]
    assert forms("plain\n\n") == [at("plain")]
    assert forms("K10odd") == [at("K10odd")]
    assert forms("") == forms("\n") == []


def test_nothing_of_a_token_gets_out() -> None:
    token = ServerToken(PASSWORD.encode())
    assert repr(token) == f"{token}" == "ServerToken"
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, ServerToken.__getstate__):
        with pytest.raises(TypeError):
            attempt(token)


def test_a_file_is_read_and_others_who_may_read_it_are_told(tmp_path: Path) -> None:
    path = tmp_path / "the token; of today"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    found = load_token(path)
    assert [token.etcd_key for token in found.tokens] == [at(PASSWORD), at(TOKEN)]
    assert (found.path, found.warnings) == (str(path), ())
    path.chmod(0o640)
    (warning,) = load_token(path).warnings
    assert "others than its owner" in warning
    assert warning.endswith(f": chmod 600 '{path}'")


@pytest.mark.parametrize("typed", [TOKEN, PASSWORD, "a" * 5000, "zero\0byte", f"{__file__}/{PASSWORD}"])
def test_a_token_in_the_place_of_its_file_is_not_repeated(typed: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_token(Path(typed))
    error = caught.value
    assert "name withheld" in error.message
    assert "a token never stands on a command line" in error.hint
    assert typed not in f"{error.message} {error.hint}"
    assert PASSWORD not in f"{error.message} {error.hint}"
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_what_is_no_file_or_too_large_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="directory") as caught:
        load_token(tmp_path)
    assert str(tmp_path) in caught.value.message
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigurationError, match="not a regular file"):
        load_token(pipe)
    large = tmp_path / "large"
    large.write_bytes(b"x" * ((1 << 16) + 1))
    with pytest.raises(ConfigurationError, match="larger than 65536 bytes"):
        load_token(large)
