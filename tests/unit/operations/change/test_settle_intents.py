"""What the exit code says of intents that were worked through, and that nobody is asked where none is open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from etcdfix.errors import RemediationRefused
from etcdfix.operations.change.settle_intents import Settled, settle_intents
from etcdfix.remediation.audit.record import Intent, Result
from tests.support.audit_logs import own_directory, write_log


@pytest.mark.parametrize("result", Result)
def test_only_what_is_certain_is_settled(result: Result) -> None:
    found = cast("Any", SimpleNamespace(result=result))
    settled = Settled(log=Path("log"), dry_run=False, found=[found], refused=[])
    assert settled.exit_code == (3 if result in {Result.UNKNOWN, Result.ANOMALY} else 0)
    settled.refused.append((cast("Intent", None), RemediationRefused("no")))
    assert settled.exit_code == 4


def test_nobody_is_asked_where_no_intent_is_open(tmp_path: Path) -> None:
    def connect(_intents: Sequence[Intent]) -> NoReturn:
        raise AssertionError

    log = own_directory(tmp_path / "log") / "audit.jsonl"
    write_log(log)
    before = log.read_bytes()
    for dry_run in (True, False):
        settled = settle_intents(log, connect, etcd_user="", dry_run=dry_run, accept_unknown_cluster=False)
        assert (settled.exit_code, settled.found, settled.refused) == (0, [], [])
    assert log.read_bytes() == before
