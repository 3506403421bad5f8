from __future__ import annotations

import pytest

from tests.support.impact_objects import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
