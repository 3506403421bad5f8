"""Whatever a saved report of a fleet holds: it has a row or is named, and the whole can be written."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcdfix.operations.look.fleet import ExpectedReport, merge_fleet
from etcdfix.reports.formats.of_lists import FLEET_FORMATS
from tests.support.fleets import BASELINE, findings, kms_key, transformer, write_report

_WORDS = st.sampled_from(
    [b"", b"null", b"-1", b"1e400", b"18446744073709551615", b"9" * 40, b'"', b"\\", b"{", b"]", b"\xff", b"\n",
     b'"\\ud800"', b"true", b"[[[", b",", b'{"kind":"ScanHeader"}\n']
)  # fmt: skip


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("reports")
    return {
        form: write_report(
            folder / f"r.{form}",
            findings(2, known=1),
            name="north",
            head={"baseline": BASELINE},
            transformers=[transformer()],
            kms_keys=[kms_key()],
            reasons=["undetermined: 1 key"],
        ).read_bytes()
        for form in ("json", "jsonl")
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(form=st.sampled_from(["json", "jsonl"]), place=st.floats(0, 1), size=st.integers(0, 40), word=_WORDS)
def test_a_changed_report_has_a_row_or_is_named(
    form: str, place: float, size: int, word: bytes, reports: dict[str, bytes], tmp_path: Path
) -> None:
    raw = reports[form]
    at = int(place * len(raw))
    path, whole = tmp_path / f"r.{form}", tmp_path / "whole.json"
    path.write_bytes(raw[:at] + word + raw[at + size :])
    whole.write_bytes(reports["json"])
    assert_written([path, whole])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    number=st.integers(-(2**70), 2**70),
    field=st.sampled_from([b'"keys":', b'"keys": ', b'"revision":', b'"mod_revision":', b'"opened": ']),
)
def test_no_number_is_too_large_to_be_added_up(
    number: int, field: bytes, reports: dict[str, bytes], tmp_path: Path
) -> None:
    path, whole = tmp_path / "r.json", tmp_path / "whole.json"
    whole.write_bytes(reports["json"])
    before, found, after = reports["json"].partition(field)
    assert found
    path.write_bytes(before + found + b"%d" % number + after.lstrip(b"0123456789"))
    assert_written([path, whole])


def assert_written(paths: list[Path]) -> None:
    merged = merge_fleet([ExpectedReport(path) for path in paths])
    assert len(merged.clusters) + len(merged.left_out) == len(paths)
    assert len(merged.clusters) >= 1
    for form in ("wide", "json"):
        FLEET_FORMATS[form](merged, io.BytesIO(), 100)
