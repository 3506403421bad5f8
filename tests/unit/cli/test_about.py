"""``etcdfix schema`` and ``etcdfix version``."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from etcdfix import __version__
from etcdfix.cli.about import audit_schema
from etcdfix.cli.root import run
from etcdfix.report.schema import SCHEMAS
from tests.support.fixtures import Captured

ALL = {**SCHEMAS, "audit": audit_schema}


@pytest.mark.parametrize(("words", "name"), [([], "report"), (["finding"], "finding"), (["audit"], "audit")])
def test_schema_is_printed(capfd: Captured, words: list[str], name: str) -> None:
    assert run(["schema", *words]) == 0
    assert json.loads(capfd.readouterr().out) == json.loads(msgspec.json.encode(ALL[name]()))


def test_help_names_each_schema_and_no_other(capfd: Captured) -> None:
    assert run(["schema", "--help"]) == 0
    (names,) = re.findall(r"\n\n((?: {4}[a-z].*\n)+)", capfd.readouterr().out)
    assert "".join(names.split()).split(",") == list(ALL)


def test_what_it_says(capfd: Captured, no_variables: None) -> None:
    assert run(["version"]) == 0
    first, _python, *knows = capfd.readouterr().out.splitlines()
    assert first == f"etcdfix {__version__}"
    assert knows == ["Kubernetes: knows 1.17 to 1.37", "reports: writes and reads etcdfix/v1"]
