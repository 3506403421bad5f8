"""Commands that look at everything at once, run over a made-up cluster in memory."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from etcdfix.cli import look as module
from etcdfix.cli.root import run
from etcdfix.report.schema import SCHEMAS
from tests.support.impact_objects import Cluster
from tests.support.memory_source import MemorySource

HOSTILE = 'x"];<script>alert(1)</script>\x1b[31m\u202e\x07&amp;\\N'
"""A name that would act upon a terminal and a browser."""


class Ran(NamedTuple):
    """What a command came to."""

    command: str
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON that it wrote, which is as the published schema says."""
        found = json.loads(self.out)
        Draft202012Validator(SCHEMAS[self.command]()).validate(found)
        return found


class Runner:
    """Runs ``etcdfix COMMAND`` over a cluster, or over a source."""

    def __init__(
        self, command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        for name in list(os.environ):
            if name.startswith(("ETCDFIX_", "ETCDCTL_")):
                monkeypatch.delenv(name)
        self._words = command.split()
        self._command = self._words[-1].removeprefix("--")
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, cluster: Cluster | MemorySource, *arguments: str) -> Ran:
        source = cluster.source() if isinstance(cluster, Cluster) else cluster
        self._monkeypatch.setattr(module, "open_source", lambda _inputs, say: source)
        self._capfd.readouterr()
        code = run([*self._words, *arguments])
        captured = self._capfd.readouterr()
        assert source.closed or code == 2
        return Ran(self._command, code, captured.out, captured.err)


def assert_harmless(text: str) -> None:
    """Check that nothing in an output acts upon a terminal."""
    assert all(line.isprintable() for line in text.splitlines()), [
        line for line in text.splitlines() if not line.isprintable()
    ]
