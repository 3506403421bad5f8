"""What every archive for machines without internet is tried with: a scan of alpha, and a deletion on a live etcd."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from etcdfix.testing.places import READY, Wanted, clean_environment, find_tools
from etcdfix.testing.servers import unpacked
from tests.support.change_runs import ACKNOWLEDGED

REPOSITORY = Path(__file__).parents[2]
ALPHA = Path("fixtures/snapshots/alpha")
CONFIGURATION = str(ALPHA / "config-lost.yaml")
SCAN = (
    "scan",
    "--snapshot",
    str(ALPHA / "snapshot.db.gz"),
    "--encryption-config",
    CONFIGURATION,
    "-o",
    "json",
)
ALPHA_UID = "be3430c1-c96c-4ada-a35d-bd352a4caa1f"
BROKEN = "/registry/pods/infra/dep-0-abc-1"
ENDPOINT = "127.0.0.1:2379"

Run = Callable[..., subprocess.CompletedProcess[str]]
"""Runs etcdfix with these arguments, in a directory where ``fixtures`` is."""


def timeless(report: str) -> Any:
    """Return a report without what differs from one run to the next; a release has a version of its own."""
    found = json.loads(report)
    return {name: value for name, value in found.items() if name != "tool" and not name.endswith("_at")}


@cache
def expected_scan() -> Any:
    """What this source tree says of alpha."""
    done = subprocess.run(
        [sys.executable, "-m", "etcdfix", *SCAN],
        cwd=REPOSITORY, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    return timeless(done.stdout)


def check_the_scan(run: Run, *options: str) -> None:
    """Scan alpha, and find what the source tree finds."""
    done = run(*SCAN, *options)
    assert done.returncode == 3, done
    assert timeless(done.stdout) == expected_scan()


def check_a_deletion(run: Run, folder: str) -> None:
    """Delete one object of a live etcd that holds alpha.

    Args:
        run: See above; an etcd answers at ``ENDPOINT``.
        folder: Where the backup and the record go.
    """
    live = ("--endpoints", f"http://{ENDPOINT}", "--encryption-config", CONFIGURATION, "--no-kms")
    log = f"{folder}/audit.jsonl"
    delete = (
        "delete", BROKEN, *live, "--reason", "tried", "--backup-dir", folder, "--audit-log", log,
        ACKNOWLEDGED, "--accept-no-api-server",
    )  # fmt: skip

    def broken() -> set[str]:
        found = run("scan", *live, "pods", "-o", "name")
        assert found.returncode == 1, found
        return {line.split()[0] for line in found.stdout.splitlines()}

    before = broken()
    assert BROKEN in before
    tried = run(*delete, "--dry-run")
    assert tried.returncode == 0, tried
    assert tried.stdout.startswith(f"DRY RUN: {BROKEN} would be deleted. Nothing was changed.\n")
    assert broken() == before
    assert run(*delete).returncode == 4  # nobody is there to confirm it
    assert broken() == before
    done = run(*delete, "--yes")
    assert done.returncode == 0, done
    assert broken() == before - {BROKEN}
    verified = run("audit", "verify", log, "--backup-dir", folder)
    assert verified.returncode == 0, verified
    assert "whole" in verified.stdout
    records = [line.split() for line in run("audit", "show", log).stdout.splitlines()]
    assert [record[2] for record in records if BROKEN in record] == ["dry-run", "intent", "outcome"]
    assert records[-1][4] == "deleted"


def restored_alpha(folder: Path) -> None:
    """Make an etcd's data directory out of alpha, ``folder/data``."""
    with unpacked(REPOSITORY / ALPHA / "snapshot.db.gz") as snapshot:
        Wanted(tools=find_tools(), folder=folder, snapshot=snapshot).restore()


def etcd_arguments(folder: str) -> list[str]:
    """Return the arguments of an etcd that serves such a directory at ``ENDPOINT``."""
    wanted = Wanted(tools=find_tools(), folder=Path(folder))
    return wanted.arguments(folder, listen=ENDPOINT, advertise=ENDPOINT, peer="127.0.0.1:2380")


@contextlib.contextmanager
def running(command: Sequence[str | Path], log: Path) -> Iterator[None]:
    """Run an etcd, once it is ready, until the block ends."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + 60
            while READY not in log.read_text(errors="replace"):
                assert process.poll() is None, log.read_text(errors="replace")
                assert time.monotonic() < deadline, log.read_text(errors="replace")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
