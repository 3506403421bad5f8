"""No test sees the machine that it runs on."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from etcdfix.inputs import machine
from etcdfix.inputs.on_this_machine import find_distributions
from etcdfix.remediation.durable import default_directory
from tests.support.empty_machine import FOR_TESTS

PACKAGE = Path(machine.__file__).parent


def test_variables_of_this_machine_are_gone() -> None:
    there = {name for name in os.environ if name.startswith("ETCD") and not name.startswith(FOR_TESTS)}
    assert there == set()
    assert not Path(os.environ["KUBECONFIG"]).exists()


@pytest.mark.parametrize("root", [True, False])
def test_nothing_is_kept_on_the_machine_of_a_test(monkeypatch: pytest.MonkeyPatch, *, root: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    assert default_directory().is_relative_to(machine.ROOT)
    assert not machine.ROOT.exists()
    assert find_distributions(machine.ROOT) == []


def test_only_one_module_names_places_of_the_machine() -> None:
    """A place that another module named itself would be seen by every test."""
    named = re.compile(r"""Path\(f?["']/(?:etc|var|root|home)/""")
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for text in [path.read_text()]
        if named.search(text)
    }
    assert found == set()
