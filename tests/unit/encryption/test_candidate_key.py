"""A key that was found somewhere: what its file may mean, and that it is nowhere shown."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from etcdfix.encryption.candidate_key import load_candidate_key
from etcdfix.encryption.config import EncryptionConfiguration, KeyedProvider, ProviderType
from etcdfix.encryption.keyring import fingerprint
from etcdfix.errors import ConfigurationError

SECRET = bytes(range(200, 232))


def keys(config: EncryptionConfiguration) -> dict[ProviderType, list[str]]:
    (rule,) = config.rules
    assert rule.resources == ("*.*",)
    return {
        provider.type: [key.material.fingerprint for key in provider.keys]
        for provider in rule.providers
        if isinstance(provider, KeyedProvider)
    }


def written(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("size", [16, 24, 32])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"  \n"])
def test_base64_as_in_a_configuration(tmp_path: Path, size: int, end: bytes) -> None:
    found = keys(load_candidate_key("k", written(tmp_path, base64.b64encode(SECRET[:size]) + end)))
    assert fingerprint(SECRET[:size]) in found[ProviderType.AESCBC]
    assert found[ProviderType.AESCBC] == found[ProviderType.AESGCM]


def test_a_text_that_is_a_key_both_ways_is_tried_both_ways(tmp_path: Path) -> None:
    text = base64.b64encode(SECRET[:24])
    assert len(text) == 32
    found = keys(load_candidate_key("k", written(tmp_path, text)))
    assert found[ProviderType.AESCBC] == [fingerprint(SECRET[:24]), fingerprint(text)]
    assert found[ProviderType.SECRETBOX] == [fingerprint(text)]


def test_secretbox_takes_32_bytes_only(tmp_path: Path) -> None:
    assert ProviderType.SECRETBOX not in keys(load_candidate_key("k", written(tmp_path, SECRET[:16])))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"x" * 15, b"not a key, but a sentence of some length", b"x" * 5000]
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_candidate_key("k", written(tmp_path, content))
    assert (
        content.decode().strip() == "" or content.decode().strip() not in f"{caught.value}{caught.value.hint}"
    )


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_file_that_others_can_read_is_warned_of(tmp_path: Path, mode: int, warned: bool) -> None:
    assert bool(load_candidate_key("k", written(tmp_path, SECRET, mode)).warnings) is warned


def test_no_key_in_any_representation(tmp_path: Path) -> None:
    found: Any = load_candidate_key("k", written(tmp_path, base64.b64encode(SECRET)))
    shown = repr(found) + str(found)
    assert base64.b64encode(SECRET).decode() not in shown
    assert repr(SECRET)[2:20] not in shown
    assert fingerprint(SECRET) in shown


@pytest.mark.parametrize("size", [16, 24, 32])
def test_a_key_that_was_typed_in_the_place_of_its_file_is_not_repeated(size: int) -> None:
    text = base64.b64encode(SECRET[:size]).decode()
    for name, path in (("key1", Path(text)), (text.rstrip("="), Path("="))):
        with pytest.raises(ConfigurationError) as caught:
            load_candidate_key(name, path)
        assert text.rstrip("=") not in f"{caught.value.message}{caught.value.hint}"
