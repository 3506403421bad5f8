"""Short names of what fixtures hand to tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etcdfix.testing.servers import EtcdServer

Patch = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]
CapturedBytes = pytest.CaptureFixture[bytes]
StartEtcd = Callable[..., EtcdServer]
