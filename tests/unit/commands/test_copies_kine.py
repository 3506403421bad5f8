"""Copies in kine's database: rows that are kept, and what a later row says of one that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.model.rules import Rule
from etcdfix.report.copies import Grade, ObjectState
from etcdfix.sources.kine import KineSource
from etcdfix.text.commands import RunOptions
from tests.support.etcd_history import KUBE_SYSTEM
from tests.support.kine import KineWriter, Release
from tests.support.objects import namespace_object
from tests.unit.commands.test_copies import CUT, KEY, WHOLE, look, only

KINE = RunOptions(source=("--kine", "state.db"), reading=("--encryption-config", "c.yaml"))


@pytest.mark.parametrize("release", list(Release))
def test_rows_and_old_values(tmp_path: Path, release: Release) -> None:
    path = tmp_path / "state.db"
    kine = KineWriter(path, release)
    kine.put(KUBE_SYSTEM, namespace_object("kube-system"))
    kine.put(KEY, WHOLE)
    whole = kine.put(KEY, WHOLE)
    broken = kine.put(KEY, CUT)
    kept = tmp_path / "before.db"
    kine.close()
    kept.write_bytes(path.read_bytes())
    with KineSource(kept) as source:
        one = only(look(source, again=KINE))
    assert (one.state, one.mod_revision) == (ObjectState.UNREADABLE, broken)
    best = one.copies[0]
    assert (best.grade, best.mod_revision, best.refused) == (Grade.GOOD, whole, Rule.KINE.value)
    assert not best.fix
    assert best.save.line(KINE).startswith("etcdfix get --kine state.db --revision")

    kine = KineWriter(path, release)
    kine.compact(broken)
    kine.close()
    with KineSource(path) as source:
        (copy,) = only(look(source, again=KINE)).copies
    assert (copy.grade, copy.mod_revision) == (Grade.GOOD, whole)


def test_what_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    kine = KineWriter(path)
    kine.put(KUBE_SYSTEM, namespace_object("kube-system"))
    kine.put(KEY, WHOLE)
    kine.delete(KEY)
    kine.close()
    with KineSource(path) as source:
        one = only(look(source, again=KINE))
    assert (one.state, one.best) == (ObjectState.DELETED, Grade.GOOD)
