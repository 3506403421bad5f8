"""How a release of Kubernetes is named."""

from __future__ import annotations

import pytest

from etcdfix.inputs.releases import parse_kubernetes_version
from etcdfix.model.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "minor"),
    [
        (None, None),
        ("1.36", 36),
        ("v1.36", 36),
        ("1.36.2", 36),
        ("v1.31.4+k3s1", 31),
        (" 1.20 ", 20),
        ("1.30-rc.1", 30),
    ],
)
def test_kubernetes_version(text: str | None, minor: int | None) -> None:
    assert parse_kubernetes_version(text) == minor


@pytest.mark.parametrize("text", ["", "1", "2.0", "1.x", "latest", "1.36 2", "1.1234", "1.16", "1.38"])
def test_what_is_no_version_that_is_known(text: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"'{text}' is not a release that .* knows, 1\.17 to 1\.37"):
        parse_kubernetes_version(text)
