"""One document, one stream: the same findings in JSON, YAML and JSON lines."""

from __future__ import annotations

import base64
import gc
import io
import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Evidence, Outcome, ServerBehaviour
from etcdfix.report.finding import finding_from
from etcdfix.report.model import Finding
from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.scan import ScanReport
from etcdfix.report.schema import SCHEMAS, document_schema
from etcdfix.sources.base import Segment
from etcdfix.text.commands import RunOptions
from tests.support.examinations import examination, readable
from tests.support.reports import conclusion, header, source, write_form

ODD_KEYS = [
    b"/registry/secrets/shop/\xff\xfe", b"/registry/secrets/shop/\x00\x1b[2J\n",
    "/registry/secrets/shop/\u202egnp.exe".encode(), b"/registry/secrets/shop/\xc2\x9b31m\x7f",
]  # fmt: skip


def sample() -> list[Examination]:
    """Return one finding of each outcome, and keys that strangers chose."""
    return [
        readable("compact_rev_key", outcome=Outcome.NOT_AN_OBJECT),
        readable("/registry/pods/shop/fine"),
        readable("/registry/pods/shop/remark", evidence=(Evidence("unknown fields", "ignored", "spec.x"),)),
        examination(),
        examination("/registry/deployments/shop/web", lease=0x7F),
        examination("/registry/pods/shop/a", outcome=Outcome.DECODE_FAILURE, cause=Cause.PROTOBUF_DAMAGED),
        examination(
            "/registry/statefulsets/shop/db", outcome=Outcome.INCONSISTENT, cause=Cause.RAW_JSON_INVALID,
            apiserver=ServerBehaviour.BREAKS_LIST, breaks_responses=True,
        ),
        examination(
            "/registry/secrets/shop/kms", outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE,
            apiserver=ServerBehaviour.NOT_ASKED, transient=True,
        ),
        *(examination(key) for key in ODD_KEYS),
    ]  # fmt: skip


def document(found: list[Examination], output: str = "json", **end: Any) -> dict[str, Any]:
    raw = write_form(output, found, **end)
    loaded = json.loads(raw) if output == "json" else yaml.safe_load(raw)
    assert isinstance(loaded, dict)
    return loaded


def lines(found: list[Examination], **end: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in write_form("jsonl", found, **end).splitlines()]


def test_document_validates_against_the_published_schema() -> None:
    validator = Draft202012Validator(document_schema(ScanReport))
    validator.check_schema(document_schema(ScanReport))
    for found in (sample(), [], [examination(f"/registry/pods/a/{n}") for n in range(101)]):
        validator.validate(document(found))


def test_a_live_etcd_has_endpoints_and_no_path() -> None:
    live = source(
        type="etcd", path=None, endpoints=["https://a:2379"], segments=[Segment("", 1), Segment("/x", 2)]
    )
    report = document(sample(), source=live)
    Draft202012Validator(document_schema(ScanReport)).validate(report)
    assert report["source"]["endpoints"] == ["https://a:2379"]
    assert "path" not in report["source"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("outcome", "broken"), ("cause", "bad-luck"), ("value_sha256", "abc"), ("mod_revision", "7")],
)
def test_schema_refuses_what_the_contract_does_not_know(field: str, value: object) -> None:
    report = document([examination()])
    report["findings"][0][field] = value
    assert not Draft202012Validator(document_schema(ScanReport)).is_valid(report)


def test_yaml_is_the_same_document() -> None:
    found = sample()
    assert document(found, "yaml") == document(found, "json")
    assert list(document(found, "yaml")) == list(document(found, "json"))


@pytest.mark.parametrize("text", ["1e3", "12345e67", ".5e3", "0o17"])
def test_yaml_quotes_what_another_reader_takes_for_a_number(text: str) -> None:
    assert f'what: "{text}"' in write_form("yaml", [examination(message=text)]).decode().replace(
        "message", "what"
    )


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_keys_come_back_byte_for_byte(output: str) -> None:
    findings = document(sample(), output)["findings"]
    keys = [base64.b64decode(f["key_base64"]) if "key_base64" in f else f["key"].encode() for f in findings]
    assert [k for k in keys if k in ODD_KEYS] == ODD_KEYS
    assert all("key_base64" not in f for f in findings if f["key"].encode() not in ODD_KEYS and f["key"].isascii()
               and f["key"].isprintable() and "\\x" not in f["key"])  # fmt: skip


def test_lines_say_what_the_document_says() -> None:
    found = sample()
    parsed, report = lines(found, complete=False, incomplete_reasons=["lost"]), document(
        found, complete=False, incomplete_reasons=["lost"]
    )  # fmt: skip
    head = ("tool", "generated_at", "source", "encryption_config", "scope")
    ending = {
        "source", "summary", "complete", "reached_end", "incomplete_reasons", "finished_at", "interrupted",
    }  # fmt: skip
    assert list(parsed[0]) == ["apiVersion", "kind", *head]
    assert all(parsed[0][name] == report[name] for name in head)
    own = {"apiVersion", "kind"}
    findings = [
        {k: v for k, v in line.items() if k not in own} for line in parsed if line["kind"] == "Finding"
    ]
    assert findings == report["findings"]
    assert [line for line in parsed if line["kind"] == "Status"] == report["statuses"]
    assert parsed[-1] == {
        "apiVersion": "etcdfix/v1",
        "kind": "ScanSummary",
        **{name: part for name, part in report.items() if name in ending},
    }


class _Sink(io.RawIOBase):
    """Counts what is written and forgets it."""

    size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.size += len(data)
        return len(data)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["json", "jsonl", "yaml"])
def test_findings_are_not_kept_in_memory(kind: str) -> None:
    def living() -> int:
        gc.collect()
        return sum(isinstance(thing, Finding) for thing in gc.get_objects())

    sink = _Sink()
    reporter = SCAN_FORMS[kind](sink, RunOptions())  # type: ignore[arg-type]
    reporter.begin(header())
    before = living()
    for n in range(100):
        reporter.row(finding_from(examination(f"/registry/secrets/shop/web-{n}")))
    assert living() <= before + 1
    reporter.end(conclusion())
    assert sink.size > 100 * 500


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_schemas_are_schemas(name: str) -> None:
    schema = SCHEMAS[name]()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert "etcdfix/v1" in schema["title"]


def definitions(name: str) -> dict[str, Any]:
    found = SCHEMAS[name]()["$defs"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", ["report", "finding", "explain"])
def test_closed_words_are_listed(name: str) -> None:
    finding = definitions(name)["Finding"]["properties"]
    any_key = name == "explain"
    assert finding["outcome"]["enum"] == [
        o.value for o in Outcome if any_key or o is not Outcome.NOT_AN_OBJECT
    ]
    assert finding["cause"]["enum"] == [*(c.value for c in Cause), None]


def test_readers_may_meet_fields_that_they_do_not_know() -> None:
    for definition in definitions("report").values():
        assert definition.get("additionalProperties", True) is not False
