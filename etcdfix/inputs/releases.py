"""The releases of Kubernetes that this version knows, and how one is named."""

from __future__ import annotations

import re
from typing import Final

from etcdfix.model.errors import ConfigurationError

FIRST_MINOR: Final = 17
LAST_MINOR: Final = 37


def parse_kubernetes_version(text: str | None) -> int | None:
    """Return the minor of ``1.36`` (``v1.36.2`` is fine too), None for none.

    Raises:
        ConfigurationError: Not a version, or one outside the tables.
    """
    if text is None:
        return None
    match = re.fullmatch(r"v?1\.(\d{1,3})(?:[.+-].*)?", text.strip())
    if match is None:
        raise ConfigurationError(f"--kubernetes-version {text!r} is not a version", hint="write it as 1.36")
    minor = int(match.group(1))
    if not FIRST_MINOR <= minor <= LAST_MINOR:
        raise ConfigurationError(
            f"--kubernetes-version 1.{minor} is outside what this version knows, 1.{FIRST_MINOR} to 1.{LAST_MINOR}",
            hint="leave the option out to accept every known release",
        )
    return minor
