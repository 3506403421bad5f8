"""A fact that says no by itself says so in an optimized Python too, which leaves every assertion out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etcdfix.apiserver.objects import Answer
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import Rule, refuse
from etcdfix.remediation.checks import cached_reads, copy, key, memory, servers


class Refusing(SimpleNamespace):
    """Stands for whatever has facts: one of them cannot be had."""

    def __getattr__(self, _name: str) -> Any:
        raise refuse(Rule.GONE, "it cannot be had")


@pytest.mark.parametrize(
    ("module", "check", "present", "change"),
    [
        (key, "no_configuration", {}, {}),
        (key, "gone", {"absent": True}, {"request": None, "takes_what_is_there": True}),
        (copy, "moved", {}, {}),
        (cached_reads, "ends_cached_reads", {}, {}),
        (servers, "configuration_wrong", {}, {"put": None}),
        (memory, "not_from_memory", {}, {"held": Refusing()}),
        (
            memory,
            "no_api_server",
            {},
            {"held": Refusing(answers=[SimpleNamespace(answer=Answer.READ_ERROR)])},
        ),
    ],
)
def test_it_refuses_in_an_optimized_python(
    module: Any, check: str, present: dict[str, Any], change: dict[str, Any]
) -> None:
    source = Path(module.__file__).read_text(encoding="utf-8")
    optimized: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source, module.__file__, "exec", optimize=1), optimized)
    with pytest.raises(RefusedByRule, match="it cannot be had"):
        list(optimized[check](Refusing(**present), Refusing(**change)))
