"""YAML that readers agree upon, that looks like kubectl's, and that no terminal acts upon."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.golang import goyaml
from etcdfix.golang.gojsontext import encode_json
from etcdfix.golang.yamltext import MAX_DEPTH, json_text, yaml_text

# Strings that some reader of YAML takes for something else, or that end a scalar early.
ODD = [
    "", " ", "~", "null", "yes", "No", "y", "on", "=", "<<", "1", "-1", "+1", "0x1f", "0o7", "010", "0b1", "0b-1",
    "1_000", "-_0", "1:30", "1.5", ".5", "1.", "1e3", "-.5e+1", ".inf", "-.INF", ".NaN", "2024-01-01",
    "2024-01-01T00:00:00Z", "1,000", "-", "--", "---", "...", "- a", "-a", "--v=2", "a: b", "a:", "a #b", "#a", "&a",
    "*a", "!a", "|", ">", "%a", "@a", "`a", "'a'", '"a"', "{a}", "[a]", "a, b", "?", "? a", ": a", "a\nb", "a\n",
    "a\n\n", "\na", " a\nb", "a\n b\n", "a\t", "a\r\nb", "\x00", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e",
    "\ufeff", "\U000e0001", "a" * 2000, "é", "日本",
]  # fmt: skip
texts = st.one_of(
    st.text(),
    st.sampled_from(ODD),
    st.text(alphabet=" \n\t:#-'\"ab1.0e+_~?|>%@`{}[],&*!=<xyYnN", max_size=12),
)
scalars = st.one_of(
    texts,
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),  # what YAML readers in Go keep exact
    st.floats(allow_nan=False, allow_infinity=False),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=20,
)


def agree(found: Any, meant: Any) -> bool:
    if isinstance(meant, dict):
        return (
            isinstance(found, dict) and {*found} == {*meant} and all(agree(found[k], meant[k]) for k in meant)
        )
    if isinstance(meant, list):
        return isinstance(found, list) and len(found) == len(meant) and all(map(agree, found, meant))
    if isinstance(meant, (int, float)) and not isinstance(meant, bool):
        return isinstance(found, str) or bool(found == meant)
    return type(found) is type(meant) and bool(found == meant)


def check(value: Any) -> None:
    text = yaml_text(value)
    meant = json.loads(encode_json(value))
    assert json.loads(goyaml.to_json(text.encode())) == meant
    assert agree(yaml.safe_load(text), meant)
    assert all(line.isprintable() for line in text.split("\n"))


@given(values)
def test_readers_get_what_was_written(value: Any) -> None:
    check({"key": value})


@pytest.mark.parametrize("text", ODD)
def test_odd_strings(text: str) -> None:
    check({text: text, "list": [text, [text], {text: [text]}]})


def test_the_layout_is_kubectls() -> None:
    value = {
        "kind": "Pod",
        "apiVersion": "v1",
        "spec": {
            "containers": [{"name": "c", "args": ["--v=2", "a: b"], "env": []}],
            "on": "yes",
            "nested": [[1, 2]],
            "ip": "10.0.0.1",
            "script": "#!/bin/sh\necho 1\n",
        },
    }
    assert yaml_text(value) == (
        "apiVersion: v1\nkind: Pod\nspec:\n"
        "  containers:\n  - args:\n    - --v=2\n    - 'a: b'\n    env: []\n    name: c\n"
        '  ip: 10.0.0.1\n  nested:\n  - - 1\n    - 2\n  "on": "yes"\n  script: |\n    #!/bin/sh\n    echo 1\n'
    )


def test_lone_surrogates_become_what_json_makes_of_them() -> None:
    assert yaml_text({"a": "x\udcff"}) == "a: x\N{REPLACEMENT CHARACTER}\n"


@pytest.mark.parametrize("make", [lambda inner: {"a": inner, "b c": 1}, lambda inner: [inner, "x"]])
def test_depth_does_not_multiply_the_size(make: Any) -> None:
    value: Any = {"k" * 200: "end", "n": None}
    for _ in range(5000):
        value = make(value)
    text = yaml_text(value)
    assert len(text) < 50 * 5000
    assert text.count("\n") < 3 * MAX_DEPTH
    assert json.loads(goyaml.to_json(yaml_text(_deep(150)).encode())) == _deep(150)
    assert json_text(value).count(b"\n") == 0


def _deep(levels: int) -> Any:
    value: Any = {"k" * 200: [True, 1, "a\nb", {}]}
    for _ in range(levels):
        value = {"a": [value]}
    return value


@given(values)
def test_json_text_means_the_same_and_is_printable(value: Any) -> None:
    text = json_text({"key": value}, margin="  ")
    assert json.loads(text) == json.loads(encode_json({"key": value}))
    assert all(line.isprintable() for line in text.decode().split("\n"))
