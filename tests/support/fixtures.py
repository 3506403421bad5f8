"""Short names of what pytest hands to tests."""

from __future__ import annotations

import pytest

Patch = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]
CapturedBytes = pytest.CaptureFixture[bytes]
