from __future__ import annotations

import math
from typing import Any

import pytest
import yaml

from etcdfix.encryption import config_yaml
from etcdfix.encryption.config_document import Mapping, Node, Number
from etcdfix.encryption.config_yaml import Loader, default_loader, read_yaml
from etcdfix.errors import ConfigurationError

LOADERS = [yaml.SafeLoader, default_loader()]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request: pytest.FixtureRequest) -> Loader:
    found: Loader = request.param
    return found


def plain(node: Node) -> Any:
    """The tree as JSON values; numbers as their text in a one-element tuple."""
    if isinstance(node, Mapping):
        return {name: plain(child) for name, child in node.pairs}
    if isinstance(node, list):
        return [plain(child) for child in node]
    return (node.text,) if isinstance(node, Number) else node


def parsed(text: str, loader: Loader) -> Any:
    document = read_yaml(text.encode(), loader)
    assert document.strict_problems == ()
    return plain(document.root)


def problem(raw: bytes | str, loader: Loader) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_yaml(raw.encode() if isinstance(raw, str) else raw, loader)
    assert caught.value.hint
    assert caught.value.__context__ is None
    return caught.value.message


def test_the_quick_loader_is_used() -> None:
    assert default_loader() is yaml.CSafeLoader


def test_without_libyaml_the_slow_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert default_loader() is yaml.SafeLoader
    assert plain(read_yaml(b"a: y").root) == {"a": True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # YAML 1.1 by go-yaml, which differs from PyYAML in the lines marked !
        ("y", True),  # !
        ("N", False),  # !
        ("yes", True),
        ("Off", False),
        ("tRue", "tRue"),
        ("~", None),
        ("Null", None),
        ("''", ""),
        ("'y'", "y"),
        ("! y", "y"),
        ("1:30", "1:30"),  # ! sexagesimal numbers are strings
        ("2024-01-01", "2024-01-01"),  # ! a time goes into JSON as it is written
        ("0", ("0",)),
        ("-0", ("0",)),
        ("+12", ("12",)),
        ("1_000", ("1000",)),
        ("010", ("8",)),
        ("0o10", ("8",)),  # !
        ("-0x1F", ("-31",)),
        ("0b11", ("3",)),
        ("08", ("8",)),  # ! no octal number, so a float
        ("0x", "0x"),
        ("18446744073709551615", ("18446744073709551615",)),
        ("18446744073709551616", ("18446744073709552000",)),  # ! a float
        ("-9223372036854775809", ("-9223372036854776000",)),
        ("123456789012345678901234567890", ("1.2345678901234568e+29",)),
        ("1.0", ("1",)),
        ("1e3", ("1000",)),  # ! a float without a dot
        ("1.50", ("1.5",)),
        (".5", ("0.5",)),
        ("1e21", ("1e+21",)),
        ("1.5e-7", ("1.5e-7",)),
        ("1e999", "1e999"),
        ("+x", "+x"),
        (".x", ".x"),
        ("0.x", "0.x"),
        ("!!str 5", "5"),
        ("!!int 5", ("5",)),
        ("!!float 5", ("5",)),
        ("!!float 5.5", ("5.5",)),
        ("!!bool y", True),
        ("!!null ~", None),
        ("!!timestamp 2024-01-01", "2024-01-01"),
        ("!!binary aGk=", "hi"),
        ("!mine 5", "5"),
        ("|\n  text\n", "text\n"),
    ],
)
def test_scalars(text: str, value: Any, loader: Loader) -> None:
    assert parsed(f"a: {text}", loader) == {"a": value}


@pytest.mark.parametrize(("text", "name"), [(".nan", "NaN"), (".inf", "+Inf"), ("-.INF", "-Inf")])
def test_json_has_no_such_numbers(text: str, name: str, loader: Loader) -> None:
    assert problem(f"a: {text}", loader) == f"json: unsupported value: {name}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!int hush", "yaml: cannot decode !!str `<4 bytes withheld>` as a !!int"),
        ("!!null 5", "yaml: cannot decode !!int `<1 bytes withheld>` as a !!null"),
        ("!!float ~", "yaml: cannot decode !!null `<1 bytes withheld>` as a !!float"),
        ("!!binary hush!", "yaml: !!binary value contains invalid base64 data"),
    ],
)
def test_tags_that_do_not_fit(text: str, message: str, loader: Loader) -> None:
    assert problem(f"a: {text}", loader) == message


def test_documents_without_content(loader: Loader) -> None:
    for text in ("", "# nothing\n", "---\n", "---\n...\n", "\n\n"):
        assert parsed(text, loader) is None


def test_only_the_first_document_counts(loader: Loader) -> None:
    assert parsed("---\na: 1\n---\n]not yaml[\n", loader) == {"a": ("1",)}


def test_keys_are_sorted_and_become_strings(loader: Loader) -> None:
    document = read_yaml(b"z: 1\n5: 2\n1.5: 3\ny: 4\na: 5\n", loader)
    assert isinstance(document.root, Mapping)
    assert [name for name, _ in document.root.pairs] == ["1.5", "5", "a", "true", "z"]


def test_anchors_and_aliases(loader: Loader) -> None:
    text = "a: &x [1, {b: &y two}]\nc: *x\nd: *y\ne: &x three\nf: *x\n"
    both = [("1",), {"b": "two"}]
    assert parsed(text, loader) == {"a": both, "c": both, "d": "two", "e": "three", "f": "three"}


def test_merge_keys(loader: Loader) -> None:
    text = (
        "a: &a {x: 1, y: [2]}\nb: &b {z: 3}\nc: {<<: *a, w: 0}\nd:\n  <<: [*a, *b]\n"
        "e: {'<<': 5}\nf: {!!merge <<: *b}\n"
    )
    assert parsed(text, loader) == {
        "a": {"x": ("1",), "true": [("2",)]},
        "b": {"z": ("3",)},
        "c": {"x": ("1",), "true": [("2",)], "w": ("0",)},
        "d": {"x": ("1",), "true": [("2",)], "z": ("3",)},
        "e": {"<<": ("5",)},
        "f": {"z": ("3",)},
    }


@pytest.mark.parametrize("value", ["5", "[5]", "[[5]]"])
def test_merge_needs_mappings(value: str, loader: Loader) -> None:
    message = "yaml: map merge requires map or sequence of maps as the value"
    assert problem(f"<<: {value}", loader) == message


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a: 1\nb: 2\na: 3\n", ['line 3: key "a" already set in map']),
        ("a: 1\na:\n  - 3\n", ['line 3: key "a" already set in map']),
        ("y: 1\nyes: 2\n", ["line 2: key true already set in map"]),
        ("1: 1\n0x1: 2\n", ["line 2: key 1 already set in map"]),
        ("b: {a: 1, a: 2}\nb: 3\n", ['line 1: key "a" already set in map', 'line 2: key "b" already set in map']),
        ("b: &b {a: 1}\nc: {<<: *b, a: 2}\n", ['line 2: key "a" already set in map']),
        ("AAECAwQFBgcICQoLDA0ODw==: 1\n" * 2, ["line 2: key <24 bytes withheld> already set in map"]),
    ],
)  # fmt: skip
def test_duplicate_keys(text: str, problems: list[str], loader: Loader) -> None:
    document = read_yaml(text.encode(), loader)
    assert document.strict_problems == ("yaml: unmarshal errors:\n  " + "\n  ".join(problems),)


def test_a_hundred_duplicate_keys_are_enough(loader: Loader) -> None:
    (strict,) = read_yaml(b"a: 1\n" * 300, loader).strict_problems
    assert strict.count("already set in map") == 100


def test_the_last_of_duplicate_keys_wins(loader: Loader) -> None:
    assert plain(read_yaml(b"a: 1\na: 2\n", loader).root) == {"a": ("2",)}


def test_key_text_that_is_equal_but_of_another_type_is_no_duplicate(loader: Loader) -> None:
    assert read_yaml(b"1: 1\n'1': 2\n", loader).strict_problems == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]: 1", "yaml: invalid map key: a collection"),
        ("{a: 1}: 1", "yaml: invalid map key: a collection"),
        ("~: 1", "unsupported map key of type: null"),
        ("a: *b", "yaml: unknown anchor 'b' referenced"),
        ("a: *AAECAwQFBgcICQoLDA0ODw", "yaml: unknown anchor '<22 bytes withheld>' referenced"),
        ("a: &b [*b]", "yaml: anchor 'b' value contains itself"),
        ("[a", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("x: 1\n\ty: 2", "yaml: line 2: found a tab character that violates indentation"),
        ("x:\n\ty: 2", "yaml: line 2: found character that cannot start any token"),
        ("x: 1\ny: 'open", "yaml: line 2: found unexpected end of stream"),
        ("x: 1\nz\n", "yaml: line 2: could not find expected ':'"),
        ("x: 1\n y: 2\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("x: 1\n- 5\n", "yaml: line 1: did not find expected key"),
    ],
)
def test_messages_of_libyaml(text: str, message: str) -> None:
    assert problem(text, yaml.CSafeLoader) == message


@pytest.mark.parametrize(
    "text", ["[a", "a: b: c", "\ty: 2", "x: 'open", "x: 1\n- 5\n", 'a: "\\UFFFFFFFF"', "a: !hush!secret 5", '"\\q"']
)  # fmt: skip
def test_syntax_errors_end_in_one_sentence_and_quote_little(text: str, loader: Loader) -> None:
    message = problem(text, loader)
    assert message.startswith("yaml: ")
    assert "hush" not in message
    assert "\n" not in message


@pytest.mark.parametrize("raw", [b"a: \x00", b"a: \xff\xff", b"\xff\xfea"])
def test_what_is_no_text(raw: bytes, loader: Loader) -> None:
    assert problem(raw, loader).startswith("yaml: ")


@pytest.mark.parametrize("text", ["[" * 101 + "]" * 101, "{a: " * 101 + "1" + "}" * 101, "- " * 101 + "x"])
def test_depth_is_bounded(text: str, loader: Loader) -> None:
    assert problem(text, loader) == "yaml: exceeded max depth of 100"


def test_depth_is_bounded_for_megabytes_of_brackets(loader: Loader) -> None:
    assert problem("[" * (1 << 20), loader) == "yaml: exceeded max depth of 100"


def test_depth_counts_through_aliases(loader: Loader) -> None:
    text = "- &a " + "[" * 60 + "]" * 60 + "\n- " + "[" * 60 + "*a" + "]" * 60
    assert problem(text, loader) == "yaml: exceeded max depth of 100"


def test_alias_bombs_do_not_go_off(loader: Loader) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert problem("\n".join(lines), loader) == "yaml: document contains excessive aliasing"


def test_scalar_keys_of_every_type_have_a_text(loader: Loader) -> None:
    assert parsed("{n: 1, 2.50: 2, 0x10: 3}", loader) == {"false": ("1",), "2.5": ("2",), "16": ("3",)}


def test_numbers_as_go_prints_them() -> None:
    assert config_yaml._number_text(0.0) == "0"
    assert config_yaml._number_text(1e-6) == "0.000001"
    assert config_yaml._number_text(9.5e-7) == "9.5e-7"
    assert config_yaml._number_text(math.pi) == "3.141592653589793"
