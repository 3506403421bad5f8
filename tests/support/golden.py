"""Where the golden data lies: samples and verdicts of real API servers, too large for the repository."""

from __future__ import annotations

import functools
import os
import tarfile
from pathlib import Path

import pytest

VARIABLE = "ETCDFIX_GOLDEN_DIR"

needs_golden = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")


def golden_folder(name: str) -> Path:
    return Path(os.environ[VARIABLE]) / name


@functools.cache
def api_samples(release: str) -> dict[str, bytes]:
    """The ``.pb`` samples of one release (``v1.36.0``) by file name without suffix, sorted."""
    samples = {}
    with tarfile.open(golden_folder("kubernetes-api") / f"{release}.tar.xz") as archive:
        for member in archive:
            path = Path(member.name)
            content = archive.extractfile(member)
            if path.suffix == ".pb" and content is not None:
                samples[path.stem] = content.read()
    return dict(sorted(samples.items()))


def sample_kind(name: str) -> tuple[str, str, str]:
    """Group, version and kind that a sample's file name tells."""
    group, version, kind = name.removesuffix(".after_roundtrip").rsplit(".", 2)
    return ("" if group == "core" else group), version, kind
