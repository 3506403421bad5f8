"""The table of copies: it fits a narrow terminal, stops at its cap, and shows nothing that acts upon a terminal."""

from __future__ import annotations

import io
import shlex

import msgspec
import pytest

from etcdfix.reports.copies_model import CopiesReport, CopyPlace, Fit, Grade, PlaceKind
from etcdfix.reports.formats.of_lists import COPIES_FORMATS
from tests.unit.operations.look.test_copies import CUT, KEY, WHOLE, etcd_with, look


def table(report: CopiesReport, max_rows: int = 100) -> str:
    stream = io.BytesIO()
    COPIES_FORMATS["table"](report, stream, max_rows)
    return stream.getvalue().decode()


def test_prose_folds_and_commands_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    shown = table(look(etcd_with(WHOLE, WHOLE, CUT)))
    commands = [line for line in shown.splitlines() if "etcdfix restore" in line]
    assert len(commands) == 3  # the next step, and each of two copies
    for line in commands:
        words = shlex.split(line[line.index("etcdfix ") :])
        assert words[-1] == "--dry-run"
    prose = [line for line in shown.splitlines() if "etcdfix" not in line and "NOW" not in line]
    assert all(len(line) <= 60 for line in prose if "API SERVER" not in line), prose


def test_the_cap_is_named() -> None:
    etcd = etcd_with(WHOLE, CUT)
    for number in range(3):
        etcd.put(b"/registry/secrets/shop/s-%d" % number, b"k8s:enc:aescbc:v1:key1:")
    shown = table(look(etcd), max_rows=1)
    assert "3 of 4 objects not shown:" in shown
    assert "--max-rows 4" in shown


def test_what_could_be_named_besides_is_told_where_a_copy_is_missing() -> None:
    missing = table(look(etcd_with(CUT)))
    assert "no copy was found" in missing
    assert "older snapshots (--older-snapshot FILE)" in missing
    assert "--older-snapshot" not in table(look(etcd_with(WHOLE, CUT)))


def test_an_object_that_reads_lacks_nothing() -> None:
    asked = table(look(etcd_with(WHOLE), KEY.decode()))
    assert asked.startswith("1 object (1 readable): 1 without any other.\n")
    etcd = etcd_with(WHOLE)
    etcd.put(KEY + b"-cut", CUT)
    both = table(look(etcd, KEY.decode(), f"{KEY.decode()}-cut"))
    assert both.startswith("2 objects (1 readable, 1 cannot be read): 2 WITHOUT ANY.\n")


def test_where_it_was_not_looked_stands_in_the_first_line() -> None:
    report = look(etcd_with(CUT))
    away = CopyPlace(kind=PlaceKind.LOG, path="DIR", searched=False, detail="no such directory")
    shown = table(msgspec.structs.replace(report, places=[*report.places, away]))
    assert shown.startswith("1 object (1 cannot be read): 1 WITHOUT ANY; 1 place NOT LOOKED INTO.\n")


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
