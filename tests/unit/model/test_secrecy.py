"""A crash leaves no core file: nothing in the memory of a command is for others."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from etcdfix.model import secrecy
from tests.support.collecting import ALPHA

# A command that says what holds for its process while it runs.
PROBE = textwrap.dedent(
    """
    import ctypes, json, os, resource, sys, types
    import click
    from etcdfix.cli import root

    @click.command("probe")
    def probe():
        if "abort" in os.environ:
            os.abort()
        dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
        print(json.dumps([resource.getrlimit(resource.RLIMIT_CORE), dumpable]))

    module = types.ModuleType("probe_module")
    module.version = probe
    sys.modules["etcdfix.cli.about"] = module
    sys.argv = ["etcdfix", "version"]
    root.main()
    """
)


# As large a core file as may be, for what follows.
ALLOWED = ["sh", "-c", 'ulimit -c "$(ulimit -H -c)"; exec "$@"', "sh", sys.executable]


def test_no_core_dumps_while_a_command_runs() -> None:
    done = subprocess.run([*ALLOWED, "-c", PROBE], capture_output=True, check=True)
    assert json.loads(done.stdout) == [[0, 0], 0]


def test_a_crash_leaves_no_core(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*ALLOWED, "-c", PROBE],
        cwd=tmp_path,
        env={**os.environ, "abort": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.DEVNULL,
    )
    _, status = os.waitpid(process.pid, 0)
    process.returncode = status
    assert os.WIFSIGNALED(status)
    assert not os.WCOREDUMP(status)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["prctl", "library", "limit"])
def test_what_a_system_does_not_have_is_no_error(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    called = []

    class Library:
        def __getattr__(self, name: str) -> Any:
            if missing == "prctl":
                raise AttributeError(name)
            return lambda *args: called.append(args)

    def library(_name: None) -> Library:
        if missing == "library":
            raise OSError
        return Library()

    def limit(*_: object) -> None:
        if missing == "limit":
            raise ValueError
        called.append("limit")

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(resource, "setrlimit", limit)
    secrecy.forbid_core_dumps()
    assert called == ([(4, 0, 0, 0, 0)] if missing == "limit" else ["limit"])


def test_devices_can_be_named_by_who_may_not_dump_core() -> None:
    """/proc/self belongs to root then, and these names lead there."""
    words = ["scan", "pods", "--snapshot", "/dev/fd/0", "-o", "name", "--output-file", "/dev/stdout"]
    with (ALPHA / "snapshot.db.gz").open("rb") as snapshot:
        done = subprocess.run(
            [sys.executable, "-m", "etcdfix", *words], stdin=snapshot, capture_output=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.startswith(b"/registry/pods/")
