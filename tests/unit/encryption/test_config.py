"""The configuration as a whole: every fixture, file problems, and what comes out."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.encryption.config import MAX_FILE_BYTES, decode_rules, load_configuration, parse_configuration
from etcdfix.encryption.config_model import KeyedProvider, parse_group_resource, socket_path
from etcdfix.encryption.transformer import Transformers
from etcdfix.model.errors import ConfigurationError

CONFIGS = Path(__file__).parents[3] / "fixtures" / "configs"
KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def manifest(folder: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = tomllib.loads((CONFIGS / folder / "MANIFEST.toml").read_text())["fixture"]
    return listed


VALID, INVALID = manifest("valid"), manifest("invalid")


def name(fixture: dict[str, Any]) -> str:
    return str(fixture["file"])


def configuration(providers: str, resources: str = "[secrets]") -> bytes:
    return f"""
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: {resources}
  providers: {providers}
""".encode()


@pytest.mark.parametrize(("folder", "listed"), [("valid", VALID), ("invalid", INVALID)])
def test_manifest_and_files_agree(folder: str, listed: list[dict[str, Any]]) -> None:
    files = {path.name for path in (CONFIGS / folder).iterdir()} - {"MANIFEST.toml"}
    assert files == {name(fixture) for fixture in listed}
    assert len(listed) == len(files)
    for fixture in listed:
        assert (
            hashlib.sha256((CONFIGS / folder / name(fixture)).read_bytes()).hexdigest() == fixture["sha256"]
        )
        assert fixture["pins"]


@pytest.mark.parametrize("fixture", VALID, ids=name)
def test_valid(fixture: dict[str, Any]) -> None:
    path = CONFIGS / "valid" / name(fixture)
    loaded = load_configuration(path)
    assert loaded.path == str(path)
    assert loaded.sha256 == f"sha256:{fixture['sha256']}"
    transformers = Transformers.from_configuration(loaded)
    for expected in fixture["serves"]:
        found = transformers.for_resource(parse_group_resource(expected["resource"]))
        assert expected["rule"] in (found.rule or "").split(",")
        assert [key.transformer for key in found.keys] == expected["transformers"]
        assert found.has_identity == ("identity" in expected["transformers"])


OF_OUR_KIND = {
    "kind-of-legacy-version.yaml", "legacy-version-with-normal-kind.yaml", "no-apiversion.yaml",
    "unknown-version.yaml", "version-with-two-slashes.yaml",
}  # fmt: skip
"""The kind is right, or nearly so: the version is what has to be corrected."""


@pytest.mark.parametrize("fixture", INVALID, ids=name)
def test_invalid(fixture: dict[str, Any]) -> None:
    path = CONFIGS / "invalid" / name(fixture)
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(path, 36)
    place = f"{fixture['place']}: " if fixture["place"] else ""
    assert caught.value.message.startswith(f'encryption configuration "{path}": {place}')
    assert fixture["trouble"] in caught.value.message
    hint = caught.value.hint
    assert hint
    assert "\n" not in hint
    assert (hint.startswith("Write kind:")) == (name(fixture) in OF_OUR_KIND)
    assert caught.value.exit_code == 2


STRICT = (
    "unknown-field.yaml",
    "unknown-fields.yaml",
    "metadata.yaml",
    "identity-with-field.yaml",
    "duplicate-key.yaml",
)


@pytest.mark.parametrize("file", STRICT)
def test_what_only_strict_servers_refuse_is_read_for_older_ones_and_where_nobody_knows(file: str) -> None:
    path = CONFIGS / "invalid" / file
    for minor in (None, 17, 30):
        (warning,) = load_configuration(path, minor).warnings
        assert ", which API servers from 1.31 on refuse: " in warning
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(path, 31)
    assert (warning in caught.value.message, "correct their names" in caught.value.hint) == (True, True)


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        ("${ENCRYPTION_KEY}", '"${ENCRYPTION_KEY}"'),
        ("$KEY", '"$KEY"'),
        ("{{ENCRYPTION_KEY}}", '"{{ENCRYPTION_KEY}}"'),
        ('\'{{ lookup("env", "K") }}\'', '"{{ lookup(\\"env\\", \\"K\\") }}"'),
        ("<BASE 64 ENCODED SECRET>", '"<BASE 64 ENCODED SECRET>"'),
        ("@KEY@ # ${BEHIND}", '"@KEY@"'),
        (f"<{KEY}>", "<46 bytes withheld>"),
    ],
)
def test_a_template_is_told_as_one(secret: str, told: str) -> None:
    text = (CONFIGS / "valid" / "normal.yaml").read_text().replace(KEY, secret)
    said = refusal(f"# {{{{ a comment }}}}\n{text}")
    assert said == f"variables are not filled in: {told} in line 12"


def test_a_configuration_does_not_print_or_encode_its_keys() -> None:
    loaded = load_configuration(CONFIGS / "valid" / "normal.yaml")
    assert "fp:" in repr(loaded)
    assert "\\x01" not in repr(loaded)
    assert KEY not in repr(loaded)
    with pytest.raises(TypeError):
        msgspec.json.encode(loaded)


def failure(path: Path) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(path)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_what_is_no_file_of_a_sensible_size_is_said(tmp_path: Path) -> None:
    empty, huge = tmp_path / "empty.yaml", tmp_path / "huge.yaml"
    empty.touch()
    with huge.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    for path, reason in (
        (tmp_path / "none.yaml", "it cannot be read: no such file or directory"),
        (tmp_path, "it cannot be read: is a directory"),
        (empty, "it is empty"),
        (huge, "it cannot be read: it is larger than 4194304 bytes"),
    ):
        assert failure(path).message.startswith(f'encryption configuration "{path}": {reason}')


def refusal(raw: bytes | str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(raw if isinstance(raw, bytes) else raw.encode(), path="f", minor=36)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix('encryption configuration "f": ')


def test_ten_problems_are_enough() -> None:
    said = refusal(configuration("[{identity: {}}]", f"[{', '.join(f'R{n}' for n in range(200))}]"))
    assert said.count("has capital letters") == 10
    assert said.endswith("; and 190 more")
    repeated = refusal(b"apiVersion: v1\nkind: EncryptionConfig\n" + b"a: 1\n" * 300)
    assert repeated.count("in line") == 11


def test_many_entries_are_checked_in_reasonable_time() -> None:
    entries = ", ".join(f"r{n}" for n in range(8_000))
    assert len(parse_configuration(configuration("[{identity: {}}]", f"[{entries}]"), path="f").rules) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"KIND": "X", "APIVERSION": "v9"}', "kind is missing and apiVersion missing"),
        ('{"kind": null, "apiVersion": ["v1"]}', "kind is missing and apiVersion no text"),
        (f"kind: {KEY}", "kind is <44 bytes withheld>"),
        ("[]", "kind is missing"),
        ('{"kind": ["x"], "apiVersion": {}}', "kind is no text and apiVersion no text"),
        (
            f"apiVersion: v1\nkind: EncryptionConfig\nresources: {'[' * 1000}{']' * 1000}",
            "expected object, got array",
        ),
        (
            '{"apiVersion": "v1", "kind": "EncryptionConfig",\n"resources": [{"resources": 5}]}',
            "line 2, resources[0].resources: expected array, got int",
        ),
        (
            '{"apiVersion": "v1", "kind": "EncryptionConfig", "x\\ud83d\\ude00": 1}',
            'refuse: "x\U0001f600"',  # not YAML, so no line is known
        ),
        (
            f'{{"apiVersion": "v1", "kind": "EncryptionConfig",\n "{KEY}": 1,\n "{KEY}": 2}}',
            "refuse: <44 bytes withheld> in line 3",
        ),
        (
            "apiVersion: v1\nkind: EncryptionConfig\nresources:\n- &a\n  x: 1\n- <<: *a\n  x: 2\n",
            'has repeated fields, which API servers from 1.31 on refuse: "x" in line 7',
        ),
        ('{"a": 1}\nx', "line 2: invalid character 'x' after top-level value"),
        ("x: 1\n- 5\n", "yaml: line 1: did not find expected key"),
    ],
)
def test_what_cannot_be_decoded(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text.encode(), path="f", minor=36)
    assert problem in caught.value.message
    assert caught.value.hint
    assert "\n" not in caught.value.message
    # The causes would hold the file.
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("AAEC", b"\x00\x01\x02"),
        ("A\r\nA=\n=\n", b"\x00"),
        ("AA=", b""),
        ("AAECA", b""),
        ("AAECAw==AA==", b""),
        ("AAEC=", b""),  # Python's own decoder lets padding through that nothing needs
        ("AAEC\t", b""),
        ("__8=", b""),
        ("\u00e4AEC", b""),
        ("\ud800", b""),
    ],
)
def test_secrets(text: str, decoded: bytes) -> None:
    key = {"aesgcm": {"keys": [{"name": "k", "secret": text}]}}
    rules = [{"resources": ["secrets"], "providers": [key]}]
    document = {"apiVersion": "v1", "kind": "EncryptionConfig", "resources": rules}
    (rule,) = decode_rules(json.dumps(document).encode(), path="f").rules
    (provider,) = rule.providers
    assert isinstance(provider, KeyedProvider)
    assert provider.keys[0].material.expose() == decoded


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("unix:///run/kms.sock", "/run/kms.sock"), ("UNIX:///run/kms.sock", "/run/kms.sock"),
        ("unix:/run/kms.sock", "/run/kms.sock"), ("unix:///@name", "@name"), ("unix:////run//x", "//run//x"),
        ("unix:///run/a%20b", "/run/a b"), ("unix:///run/%ff", "/run/\udcff"), ("unix://host/run", "/run"),
        ("unix://host", ""), ("unix://", ""), ("unix:", ""),
    ],
)  # fmt: skip
def test_endpoints(text: str, path: str) -> None:
    assert socket_path(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "", "/run/kms.sock", "//host/path", "http:///run/kms.sock", "://x", "1unix:x", "unix:///a\x00", "unix:run",
        "unix://a b/x", "unix://u:p@host:80/run", "unix:///%", "unix:///%g0", "unix:///x?y", "unix:///x#z",
    ],
)  # fmt: skip
def test_no_endpoints(text: str) -> None:
    assert socket_path(text) is None
