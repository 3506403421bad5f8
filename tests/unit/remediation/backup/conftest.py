"""Directories to write backups to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.durable import SafeDirectory, open_directory
from tests.support.audit_logs import own_directory
from tests.support.backups import Ground


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = own_directory(tmp_path / "state")
    for name in ("one", "two"):
        own_directory(made / name)
    return made


@pytest.fixture
def directories(folder: Path) -> Iterator[list[SafeDirectory]]:
    with ExitStack() as stack:
        yield [stack.enter_context(open_directory(folder / name)) for name in ("one", "two")]


@pytest.fixture
def log(folder: Path) -> Iterator[AuditLog]:
    with AuditLog.open(folder / "audit.jsonl") as opened:
        yield opened


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(own_directory(tmp_path / "ground"))
