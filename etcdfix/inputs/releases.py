"""The releases of Kubernetes that this version knows, and how one is named."""

from __future__ import annotations

import re
from typing import Final

from etcdfix.model.errors import ConfigurationError

FIRST_MINOR: Final = 17
LAST_MINOR: Final = 37
KNOWN_RELEASES: Final = f"1.{FIRST_MINOR} to 1.{LAST_MINOR}"


def find_minor(text: str) -> int | None:
    """Return the minor of ``1.36`` (``v1.36.2`` is fine too); None for a release that the tables do not have."""
    match = re.fullmatch(r"v?1\.(\d{1,3})(?:[.+-].*)?", text.strip())
    return int(match[1]) if match and FIRST_MINOR <= int(match[1]) <= LAST_MINOR else None


def parse_kubernetes_version(text: str | None) -> int | None:
    """Return the minor of a release that somebody named, None for none.

    Raises:
        ConfigurationError: Not a version, or one outside the tables.
    """
    minor = find_minor(text or "")
    if text is not None and minor is None:
        raise ConfigurationError(
            f"--kubernetes-version {text!r} is not a release that this version knows, {KNOWN_RELEASES}",
            hint="write it as 1.36, or leave the option out to accept every known release",
        )
    return minor
