"""The table of copies: it fits a narrow terminal, stops at its cap, and shows nothing that acts upon a terminal."""

from __future__ import annotations

import io

import msgspec

from etcdfix.report.copies_model import CopiesReport, CopyPlace, Fit, Grade, PlaceKind
from etcdfix.report.formats.of_lists import COPIES_FORMATS
from tests.unit.operations.look.test_copies import CUT, KEY, WHOLE, etcd_with, look


def table(report: CopiesReport, max_rows: int = 100) -> str:
    stream = io.BytesIO()
    COPIES_FORMATS["table"](report, stream, max_rows)
    return stream.getvalue().decode()


def test_hostile_words_are_safe() -> None:
    evil = "\x1b]0;owned\x07\u202e"
    report = look(etcd_with(WHOLE, CUT))
    place = CopyPlace(kind=PlaceKind.SNAPSHOT, path=evil, searched=False, history=Fit.OTHER, detail=evil)
    (one,) = report.objects
    copy = msgspec.structs.replace(one.copies[0], grade=Grade.UNUSABLE, why=evil, path=evil, note=evil)
    changed = msgspec.structs.replace(one, copies=[copy], uid=evil, left_out=1)
    report = msgspec.structs.replace(report, places=[place], objects=[changed])
    for form in COPIES_FORMATS.values():
        stream = io.BytesIO()
        form(report, stream, 100)
        text = stream.getvalue().decode()
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
    assert "1 older copy" in table(report)
    assert KEY.decode() in table(report)
