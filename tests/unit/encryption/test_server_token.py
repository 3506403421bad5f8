"""Tokens: which forms of one were ever used, where its data lies, and that none of it is ever shown."""

from __future__ import annotations

import copy
import io
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from etcdfix.encryption.server_token import ServerToken, forms_of, load_token, password_of
from etcdfix.errors import ConfigurationError
from tests.support import k3s_bootstrap
from tests.support.k3s_bootstrap import PASSWORD, TOKEN

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


def test_the_key_is_derived_as_rfc_6070_has_it() -> None:
    derived = ServerToken(b"password").cipher_key(b"salt")
    assert derived[:20].hex() == "4b007901b765489abead49d926f721d065a429c1"
    assert len(derived) == 32


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


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("\n")
    path.chmod(0o600)
    found = load_token(path)
    assert found.tokens == ()
    assert "the empty one alone" in found.warnings[0]


def test_standard_input_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(TOKEN.encode())))
    found = load_token(Path("-"))
    assert (len(found.tokens), found.warnings) == (2, ())


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
    with pytest.raises(ConfigurationError, match="no regular file"):
        load_token(pipe)
    large = tmp_path / "large"
    large.write_bytes(b"x" * ((1 << 16) + 1))
    with pytest.raises(ConfigurationError, match="larger than 65536 bytes"):
        load_token(large)
