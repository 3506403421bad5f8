"""Small inputs rebuilt from public reports: what a person gets to see first, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

CASES = Path(__file__).parents[3] / "fixtures/cases"
DEAD = ("--endpoints", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("line", "exit_code", "told"),
    [
        (f"scan --manifest {CASES}/02-manifest-1.16.15.yaml", 5, "names an image of release 1.16"),
        (f"scan --manifest {CASES}/02-manifest-1.38.0.yaml", 5, "names an image of release 1.38"),
        (f"encryption check {CASES}/09-enc-unknown-field.yaml", 1, '"metadata" in line 3'),
        (f"scan --snapshot {CASES}/12-kine-index-damaged.db", 5, "--kine"),
        (f"scan --kine {CASES}/12-kine-index-damaged.db", 0, "index kine_name_id_index is damaged"),
        (f"scan --kine {CASES}/13-kine-stale-wal/state.db", 5, "nothing was read"),
        (f"scan --snapshot {CASES}/15-version-removed.db", 0, "API servers up to 1.20"),
        (f"scan --snapshot {CASES}/19-cut-at-a-page.part", 5, "--salvage"),
        (f"scan --snapshot {CASES}/19-cut-in-a-table.part", 5, "--salvage"),
        (f"scan --snapshot {CASES}/20-unserved-custom-resource.db", 0, "widgets.example.co"),
        (f"scan --snapshot {CASES}/21-wrong-trailer.db", 5, "SHA-256 trailer"),
        (f"encryption check {CASES}/23-enc-dollar.yaml", 1, '"${ENCRYPTION_KEY}" in line 9'),
        (f"encryption check {CASES}/23-enc-template.yaml", 2, '"{{ENCRYPTION_KEY}}" in line 9'),
        (f"scan --snapshot {CASES}/24-clustername.db --kubernetes-version 1.30", 0, "unknown-fields"),
    ],
)
def test_a_reported_case_says_what_is_wrong(
    line: str, exit_code: int, told: str, command: Callable[..., tuple[int, str, str]]
) -> None:
    words = [*line.split(), *(("--no-encryption",) if " --snapshot " in line else ())]
    words += DEAD if "--manifest" in words else ()
    code, out, err = command(*words)
    assert (code, told in " ".join(f"{out} {err}".split())) == (exit_code, True), out + err
