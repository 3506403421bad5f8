"""YAML to JSON like the API server's; expectations come from running ``sigs.k8s.io/yaml`` over go-yaml v2."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etcdfix.golang import goyaml
from etcdfix.golang.document import read_document
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojsontext import encode_json
from etcdfix.golang.goyaml import to_json
from etcdfix.golang.yamltext import MAX_DEPTH, json_text, yaml_text

CONVERTED = [
    (b"", "null"),
    (b"# nothing\n", "null"),
    (b"a: b", '{"a":"b"}'),
    (b"- 1\n- [a, {b: c}]\n- []\n- {}\n", '[1,["a",{"b":"c"}],[],{}]'),
    # the first document only
    (b"---\na: 1\n---\nb: [\n", '{"a":1}'),
    (b"x\n---\ny\n", '"x"'),
    # YAML 1.1
    (b"[y, Yes, on, TRUE, n, NO, Off, 'yes', ~, null, Null]",
     '[true,true,true,true,false,false,false,"yes",null,null,null]'),
    (b"[0x1F, 017, 0o17, 08, 0b11, -0b11, 1_000, +5, -0, 0]", "[31,15,15,8,3,-3,1000,5,0,0]"),
    (b"[18446744073709551615, 99999999999999999999, -9223372036854775809]",
     "[18446744073709551615,100000000000000000000,-9223372036854776000]"),
    (b"[1.5, .5, 1., 1e3, 3.0, 1e21, 1e100, 1.5e-7, -0.0, 0.00001]",
     "[1.5,0.5,1,1000,3,1e+21,1e+100,1.5e-7,-0,0.00001]"),
    (b"[., .e3, 1e999, -.5.5, 1:30, =, '<<', .5_5]", '[".",".e3","1e999","-.5.5","1:30","=","\\u003c\\u003c",0.55]'),
    (b"[0x" + b"0" * 70 + b"1, " + b"9" * 70 + b"]", "[1,1e+70]"),
    (b"[2001-01-01, 2001-01-01T00:00:00Z]", '["2001-01-01","2001-01-01T00:00:00Z"]'),
    (b"\"\\x41\\u00e9\": 'it''s'", '{"Aé":"it\'s"}'),
    # tags
    (b'[!!str 5, !!int "7", !!float 3, !!bool yes, !!null ~, !!str ~, !foo 5, ! 5]', '["5",7,3,true,null,"~","5","5"]'),
    (b"[!!binary aGVsbG8=, !!binary /w==]", '["hello","\\ufffd"]'),
    (b"!!timestamp 2001-01-01", '"2001-01-01"'),
    (b"!!map {a: !!seq [b]}", '{"a":["b"]}'),
    # keys
    (b"{1: a, true: b, 1.5: c, 2.0: d, .inf: e, -.inf: f, .nan: g}",
     '{"-.inf":"f",".inf":"e",".nan":"g","1":"a","1.5":"c","2":"d","true":"b"}'),
    (b"{a: 1, a: 2}", '{"a":2}'),
    # aliases and merges
    (b"a: &x {k: v}\nb: *x\nc: [*x, *x]\n", '{"a":{"k":"v"},"b":{"k":"v"},"c":[{"k":"v"},{"k":"v"}]}'),
    (b"a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\n", '{"a":{"k":1,"l":2},"b":{"k":3,"l":2}}'),
    (b"b: {<<: [{k: 1}, {k: 2, m: 3}], l: 4}\n", '{"b":{"k":1,"l":4,"m":3}}'),
    (b"b: {<<: {k: 1}}\n", '{"b":{"k":1}}'),
    (b"b: {'<<': 1}\n", '{"b":{"\\u003c\\u003c":1}}'),
    (b"&a x: *a\n", '{"x":"x"}'),
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), CONVERTED)
def test_conversion_gives_gos_json(data: bytes, expected: str) -> None:
    converted = to_json(data).decode()
    assert converted == expected  # as text, where 2.0 is 2
    json.loads(converted)


REFUSED = [
    (b"\xff\xff", "yaml: invalid leading UTF-8 octet"),
    (b"\xd9\xd9\xf7\xa0", "yaml: invalid trailing UTF-8 octet"),
    (b"a: b: c", "yaml: mapping values are not allowed in this context"),
    (b"kind: x\n bad: [\n", "yaml: line 2: mapping values are not allowed in this context"),
    (b"a: [\nb: c", "yaml: line 2: did not find expected ',' or ']'"),
    (b"a: 1\n- b\n", "yaml: line 1: did not find expected key"),
    (b'"abc', "yaml: found unexpected end of stream"),
    (b"- *x", "yaml: unknown anchor '<1 bytes withheld>' referenced"),
    (b"&a [*a]", "yaml: anchor '<1 bytes withheld>' value contains itself"),
    (b"&a {<<: *a}", "yaml: anchor '<1 bytes withheld>' value contains itself"),
    (b"{[a]: b}", "yaml: invalid map key: <value withheld>"),
    (b"{<<: 5}", "yaml: map merge requires map or sequence of maps as the value"),
    (b"a: &x [1]\nb: {<<: *x}", "yaml: map merge requires map or sequence of maps as the value"),
    (b"!!int secret", "yaml: cannot decode !!str `<6 bytes withheld>` as a !!int"),
    (b"!!bool 5", "yaml: cannot decode !!int `<1 bytes withheld>` as a !!bool"),
    (b"!!float 18446744073709551615", "yaml: cannot decode !!int `<20 bytes withheld>` as a !!float"),
    (b"!!binary a", "yaml: !!binary value contains invalid base64 data"),
    (b"a: .nan", "json: unsupported value: NaN"),
    (b"a: -.INF", "json: unsupported value: -Inf"),
    (b"~: a", "Unsupported map key of type: %!s(<nil>), key: <value withheld>, value: <value withheld>"),
    (
        b"18446744073709551615: a",
        "Unsupported map key of type: uint64, key: <value withheld>, value: <value withheld>",
    ),
]


@pytest.mark.parametrize(("data", "message"), REFUSED)
def test_refusals_are_worded_like_go_yaml(data: bytes, message: str) -> None:
    with pytest.raises(JSONMalformed) as caught:
        to_json(data)
    assert caught.value.message == message
    assert caught.value.__cause__ is None


BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (letter, letter, b",".join([b"*%c" % (letter - 1)] * 9)) for letter in b"bcdefgh"
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (BOMB, "yaml: document contains excessive aliasing"),
        (
            b'a: &a "' + b"x" * 200_000 + b'"\nb: [' + b"*a," * 900 + b"]",
            "yaml: document contains excessive aliasing",
        ),
        (b"[" * 20_000, "yaml: exceeded max depth of 10000"),
        (b"- " * 10_001, "yaml: exceeded max depth of 10000"),
    ],
)
def test_bombs_are_refused_quickly(data: bytes, message: str) -> None:
    with pytest.raises(JSONMalformed) as caught:
        to_json(data)
    assert caught.value.message == message


def _events_of(loader: goyaml._Events) -> list[tuple[type, object, int | None]] | str:
    events = []
    try:
        while (event := loader.get_event()) is not None:
            events.append(
                (
                    type(event),
                    getattr(event, "value", None),
                    event.start_mark.index if event.start_mark else None,
                )
            )
    except yaml.YAMLError as error:
        return str(error)
    return events


@pytest.mark.thorough
@settings(max_examples=15)
@given(
    st.text("[]{},:?-&*!|>'\"# \nab", max_size=60)
    | st.sampled_from(["a" * 1_020, "[" * 40]).map("{}: [b]".format)
)
@example("[" + "a" * 1_030 + ": b]")
@example("a\n" + "b" * 1_030 + "\nc: d")
@example("- " * 20 + "[" * 1_040 + "a: 1" + "]" * 1_040)
def test_the_parser_for_deep_documents_is_pyyamls_own(text: str) -> None:
    assert _events_of(goyaml._DeepLoader(text)) == _events_of(yaml.SafeLoader(text))


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        (b"a: 1\nb: 2\na:\n  - 3\n", [("a", 3)]),
        (b"y: 1\nyes: 2\n", [("yes", 2)]),
        (b"1: 1\n0x1: 2\n", [("0x1", 2)]),
        (b"1: 1\n'1': 2\n", []),
        (b"b: {a: 1, a: 2}\nb: 3\n", [("a", 1), ("b", 2)]),
        (b"b: &b {a: 1}\nc: {<<: *b,\n a: 2}\n", [("a", 3)]),
        (b"c: {<<: [{a: 1}, {a: 2}]}", [("a", 1)]),
    ],
)
def test_keys_that_stand_twice_are_listed(text: bytes, repeated: list[tuple[str, int]]) -> None:
    found: list[goyaml.Field] = []
    to_json(text, found)
    assert found == repeated


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1), (("a", 0), 2), (("a", 1), 3), (("a", 1, "b"), 4), (("a", 1, "b", "none"), 4),
        (("a", 2), 1), (("c", "b"), 4), (("d", "b"), 7), (("none", "b"), 0),
    ],
)  # fmt: skip
def test_lines_of_members(path: tuple[str | int, ...], line: int) -> None:
    assert goyaml.line_of(b"a:\n- 1\n- &x\n  b: 2\n\nc: *x\nd: {<<: *x}\n", path) == line


@pytest.mark.parametrize("data", [b"", b"a: [", b"5"])
def test_what_has_no_members_has_no_lines(data: bytes) -> None:
    assert goyaml.line_of(data, ("a", 0)) == 0


@pytest.mark.parametrize("text", [b'a: "\\UFFFFFFFF"', b"a: !hush!secret 5", b"a: *hush"])
@pytest.mark.parametrize("loader", [goyaml._DeepLoader, yaml.CSafeLoader])
def test_syntax_errors_quote_nothing(text: bytes, loader: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goyaml, "_parser", loader)
    with pytest.raises(JSONMalformed) as caught:
        to_json(text)
    assert caught.value.message.startswith("yaml: ")
    assert "hush" not in caught.value.message
    assert caught.value.__context__ is None


def test_pythons_own_scanner_serves_where_libyaml_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goyaml, "_parser", goyaml._DeepLoader)
    for data in (b"", b"a: &x [1, *x]\n", b"a: [b, 'c']\n---\nd", b"\x00", b"a: ["):
        try:
            ours = to_json(data).decode()
        except JSONMalformed as error:
            ours = error.message.partition(":")[0]
        assert ours in ("null", "yaml", '{"a":["b","c"]}')


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
    for _ in range(2000):
        value = make(value)
    text = yaml_text(value)
    assert len(text) < 50 * 2000
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


@pytest.mark.parametrize(
    ("data", "root", "repeated"),
    [
        (b'\n{"a": 1, "b": [{"c": "\xff",\n"c": null}], "a": true}', {"a": True, "b": [{"c": None}]},
         [("c", 3), ("a", 3)]),
        (b"a: 1.0\nb: y\na: 2\n", {"a": 2, "b": True}, [("a", 3)]),
        (b"[{a: 1}]", [{"a": 1}], []),
        (b"\xef\xbb\xbf{a: 1}", {"a": 1}, []),
        (b"", None, []),
    ],
)  # fmt: skip
def test_documents(data: bytes, root: object, repeated: list[tuple[str, int]]) -> None:
    assert read_document(data) == (root, repeated)


def test_json_begins_behind_white_space_of_any_kind() -> None:
    with pytest.raises(JSONMalformed, match="line 2: invalid character"):
        read_document(b" \t\r\n\v\f{}")


@pytest.mark.parametrize("data", [b'{"a": ' + b"[" * 20_000, b"{", b'{"a": NaN}', b"a: ["])
def test_neither_json_nor_yaml(data: bytes) -> None:
    with pytest.raises(JSONMalformed):
        read_document(data)
