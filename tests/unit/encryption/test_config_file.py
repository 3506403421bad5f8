"""Files that cannot be decoded, and what is said of them."""

from __future__ import annotations

import pytest

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_file import decode
from etcdfix.errors import ConfigurationError

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"KIND": "X", "APIVERSION": "v9"}', "kind is missing and apiVersion missing"),
        ('{"kind": null, "apiVersion": ["v1"]}', "kind is missing and apiVersion no text"),
        (f"kind: {KEY}", "kind is <44 bytes withheld>"),
        ("[]", "kind is missing"),
        (
            '{"apiVersion": "v1", "kind": "EncryptionConfig",\n"resources": [{"resources": 5}]}',
            "line 2, resources[0].resources: expected array, got int",
        ),
        (
            '{"apiVersion": "v1", "kind": "EncryptionConfig", "x\\ud83d\\ude00": 1}',
            "x\U0001f600: the API server knows no such field",  # not YAML, so no line is known
        ),
        (
            f'{{"apiVersion": "v1", "kind": "EncryptionConfig",\n "{KEY}": 1,\n "{KEY}": 2}}',
            "a field is given once more: <44 bytes withheld> in line 3",
        ),
        (
            "apiVersion: v1\nkind: EncryptionConfig\nresources:\n- &a\n  x: 1\n- <<: *a\n  x: 2\n",
            'a field is given once more: "x" in line 7',
        ),
        ('{"a": 1}\nx', "line 2: invalid character 'x' after top-level value"),
        ("x: 1\n- 5\n", "yaml: line 1: did not find expected key"),
    ],
)
def test_what_cannot_be_decoded(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text.encode(), path="f")
    assert problem in caught.value.message
    assert caught.value.hint
    assert "\n" not in caught.value.message
    # The causes would hold the file.
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_what_was_decoded_does_not_print_itself() -> None:
    text = f"apiVersion: v1\nkind: EncryptionConfig\nresources: [{{resources: [{KEY}]}}]"
    assert repr(decode(text.encode())) == "[<Rule>]"
