from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.audit_logs import own_directory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"
