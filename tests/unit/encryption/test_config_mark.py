"""The mark of a file that etcdfix made: a comment, so that API servers can be given the file as it is."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from etcdfix.encryption.config import NOT_DEPLOYED, parse_configuration
from etcdfix.encryption.config_merge import merge, merged_file
from tests.support.objects import IDENTITY, KEY_1, KEY_2, configuration, configuration_yaml, provider

TODAY = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
OLDER = configuration(provider("aescbc", old=KEY_2), resources=("*.*",))
MERGED = merged_file(merge([TODAY, OLDER]), [TODAY, OLDER], made_at="now")
TREE = yaml.safe_load(MERGED)


def made_by(raw: bytes) -> str:
    return parse_configuration(raw, path="f").made_by


@pytest.mark.parametrize(
    ("changed", "maker"),
    [
        (MERGED, "merge"),
        (MERGED.replace(b"\n", b"\r\n"), "merge"),
        (re.sub(rb"(?m)^", b"  ", MERGED), "merge"),
        (MERGED.upper().partition(b"APIVERSION")[0] + MERGED[MERGED.index(b"apiVersion") :], "merge"),
        (yaml.safe_dump(TREE).encode() + b"# merge." + NOT_DEPLOYED.encode(), "merge"),
        (json.dumps(TREE).encode(), ""),
        (re.sub(rb"(?m)^#.*\n", b"", MERGED), ""),
        (configuration_yaml(provider("aesgcm", key1=KEY_1)), ""),
    ],
    ids=["as-it-is", "crlf", "indented", "capitals", "at-the-end", "json", "no-comments", "another"],
)
def test_it_stays_as_long_as_the_comments_do(changed: bytes, maker: str) -> None:
    assert made_by(changed) == maker


def test_it_is_no_part_of_what_api_servers_read() -> None:
    entries = [entry for rule in TREE["resources"] for entry in rule["resources"]]
    assert entries == ["secrets", "*.*"]
    assert NOT_DEPLOYED not in json.dumps(TREE)
