from __future__ import annotations

import json

import pytest

from etcdfix.cli.root import run
from etcdfix.cli.schema import audit_schema
from etcdfix.reports.schema import SCHEMAS

ALL = {**SCHEMAS, "audit": audit_schema}


@pytest.mark.parametrize(
    ("arguments", "name"),
    [([], "report"), (["report"], "report"), (["finding"], "finding"), (["audit"], "audit")],
)
def test_schema_is_printed(capfd: pytest.CaptureFixture[str], arguments: list[str], name: str) -> None:
    assert run(["schema", *arguments]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out) == ALL[name]()
    assert captured.err == ""


def test_other_names_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "audits"]) == 2
    assert capfd.readouterr().out == ""
