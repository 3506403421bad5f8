"""Kinds of examinations: told apart by all that is not one value's own, and never more than a bounded number."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import msgspec
import pytest

from etcdfix.examine.verdicts import kinds
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.kinds import AlikeExaminations
from etcdfix.model.model import Evidence, Repair, RepairKind, RepairProof
from tests.support.examinations import examination
from tests.support.fixtures import Patch


def failing(name: str = "web", **fields: Any) -> Examination:
    fields.setdefault("evidence", (Evidence("decrypt", "failed", "no such key"),))
    return examination(f"/registry/secrets/shop/{name}", **fields)


def test_a_repair_is_a_values_own() -> None:
    repair = Repair(RepairKind.BIT, "bit 1 of byte 2 is turned back", RepairProof.TAG)
    assert AlikeExaminations().compact(msgspec.structs.replace(failing(), repair=repair)).kind is None


def test_the_number_of_kinds_is_bounded(monkeypatch: Patch) -> None:
    monkeypatch.setattr(kinds, "MOST_KINDS", 1)
    told = AlikeExaminations()
    assert [told.compact(failing(message=text)).kind for text in ("a", "b", "a")] == [0, None, 0]


@pytest.mark.parametrize("moment", range(1, 8))
def test_after_a_signal_no_value_is_taken_for_one_of_another_kind(moment: int) -> None:
    """It is heard when a function begins, or has come back from C."""
    left = moment

    def signal(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal left
        if event in {"call", "c_return"} and frame.f_code.co_filename == kinds.__file__:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    told, one, other = AlikeExaminations(), failing(), failing(rule="configmaps")
    sys.setprofile(signal)
    try:
        told.compact(one)
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    for found in (other, one):
        part = told.compact(found)
        assert part.kind is not None
        assert told.expand(part) == found
