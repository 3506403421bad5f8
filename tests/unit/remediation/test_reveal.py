"""What is looked at leaves a record, and nothing is looked at without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.errors import UnsafePlace
from etcdfix.remediation.audit.record import Operator, Subject
from etcdfix.remediation.audit.verify import read_records, verify
from etcdfix.remediation.reveal import record_reveal

SUBJECT = Subject(
    key=b"/registry/secrets/shop/web", group="", api_version="v1", resource="secrets", namespace="shop", name="web"
)  # fmt: skip
OPERATOR = Operator(os_user="root", host="node-1")


def test_a_reveal_is_a_record_of_its_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    log = tmp_path / "audit.jsonl"
    link = record_reveal(log, SUBJECT, OPERATOR, detail="as yaml, from snapshot old.db")
    ((found, event),) = read_records(log)
    assert found == link
    assert (event.verb, event.annotations.type) == ("reveal", "reveal")
    assert event.annotations.detail == "as yaml, from snapshot old.db"
    assert event.object_ref is not None
    assert event.object_ref.name == "web"
    assert verify(log).exit_code == 0


def test_no_record_no_reveal(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafePlace):
        record_reveal(tmp_path / "audit.jsonl", SUBJECT, OPERATOR, detail="")
