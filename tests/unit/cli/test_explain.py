"""``etcdfix explain``: the page of a cause, and the list of causes, from what is installed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from etcdfix.cli.root import run
from etcdfix.commands.explaining import cause as explain_cause
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.report.schema import SCHEMAS
from tests.support.fixtures import Captured, Patch

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_is_shown_as_plain_text(cause: Cause, capfd: Captured) -> None:
    assert run(["explain", cause.value]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith(f"{cause}: ")
    assert len(shown.splitlines()) <= 24
    assert run(["explain", cause.value, "-o", "wide"]) == 0
    shown = capfd.readouterr().out
    assert "**" not in shown
    assert "```" not in shown
    assert "<!--" not in shown
    assert "](" not in shown


@pytest.mark.parametrize(("word", "schema"), [("wrong-key", "cause"), ("", "cause-list")])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_document_keeps_to_its_schema(word: str, schema: str, form: str, capfd: Captured) -> None:
    import yaml

    assert run(["explain", *([word] if word else []), "-o", form]) == 0
    shown = capfd.readouterr().out
    document = json.loads(shown) if form == "json" else yaml.safe_load(shown)
    jsonschema.validate(document, SCHEMAS[schema]())


def test_a_strangers_word_is_shown_safely(capfd: Captured) -> None:
    assert run(["explain", "\x1b[2Jkey" + "x" * 1000]) == 2
    told = capfd.readouterr().err
    assert "\x1b" not in told
    assert len(told) < 200


def test_installation_has_its_own_copy_of_pages(tmp_path: Path, monkeypatch: Patch, capfd: Captured) -> None:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"docs/causes": f"etcdfix/{explain_cause._INSTALLED.name}"}
    (tmp_path / "wrong-key.md").write_text("# wrong-key\n\n## What you see\n\nthe installed page\n")
    monkeypatch.setattr(explain_cause, "_INSTALLED", tmp_path)
    assert run(["explain", "wrong-key", "-o", "wide"]) == 0
    assert "the installed page" in capfd.readouterr().out


def test_a_key_without_its_slash_is_no_cause(capfd: Captured) -> None:
    assert run(["explain", "registry/secrets/shop/web"]) == 2
    assert "an etcd key, which starts with /" in capfd.readouterr().err
