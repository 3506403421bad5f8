from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Outcome
from etcdfix.report.schema import SCHEMAS


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
