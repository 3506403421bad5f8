"""The mark of a file that etcdfix made: whatever a tool does to the file, it is still for reading only."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from etcdfix.encryption.config import NOT_FOR_WRITING, UNKNOWN_MAKER, is_mark, mark_of, parse_configuration
from etcdfix.encryption.config_merge import merge, merged_file
from tests.support.objects import IDENTITY, KEY_1, KEY_2, configuration, configuration_yaml, provider

TODAY = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
OLDER = configuration(provider("aescbc", old=KEY_2), resources=("*.*",))
MERGED = merged_file(merge([TODAY, OLDER]), [TODAY, OLDER], made_at="now")


def made_by(raw: bytes) -> str:
    return parse_configuration(raw, path="f").made_by


def tree() -> Any:
    return yaml.safe_load(MERGED)


def test_a_merged_file_is_marked_and_no_other() -> None:
    assert made_by(MERGED) == "merge"
    assert made_by(configuration_yaml(provider("aesgcm", key1=KEY_1))) == ""
    assert is_mark(mark_of("merge"))
    assert is_mark(NOT_FOR_WRITING)
    assert not is_mark("secrets")


@pytest.mark.parametrize(
    "changed",
    [
        re.sub(rb"(?m)^\s*#.*\n", b"", MERGED),
        re.sub(rb"(?m)^[ ]*#.*$", b"", MERGED).replace(b"\n\n", b"\n"),
        MERGED.replace(b"\n", b"\r\n"),
        json.dumps(tree()).encode(),
        json.dumps(tree(), separators=(",", ":")).encode(),
        json.dumps(tree(), indent=4).encode(),
        yaml.safe_dump(tree(), default_flow_style=None).encode(),
        yaml.safe_dump(tree(), sort_keys=True).encode(),
        json.dumps(tree()).replace("not-for-writing.etcdfix.io", "not-for-writing\\u002eetcdfix.io").encode(),
        re.sub(rb"merge\.(?=not-for-writing)", b"", MERGED),
    ],
    ids=[
        "no-comments", "blank", "crlf", "json", "dense-json", "wide-json", "flow", "sorted", "escaped",
        "no-maker",
    ],
)  # fmt: skip
def test_it_survives_what_tools_do_to_a_file(changed: bytes) -> None:
    assert changed != MERGED
    assert made_by(changed) in {"merge", UNKNOWN_MAKER}


def test_it_survives_the_loss_of_the_marking_rule() -> None:
    without = re.sub(rb"- resources:\n  - \"merge[^\n]*\n  providers:\n  - identity: \{\}\n", b"", MERGED)
    assert b'"merge.' not in without
    assert made_by(without) == "merge"


def test_it_is_no_resource() -> None:
    found = parse_configuration(MERGED, path="f")
    assert all(not is_mark(entry) for rule in found.rules for entry in rule.resources)
    beside = configuration_yaml(provider("aesgcm", key1=KEY_1), resources=("secrets", mark_of("recover")))
    read = parse_configuration(beside, path="f")
    assert read.made_by == "recover"
    assert read.rules[0].resources == ("secrets",)
