"""Changes whose head goes to syslog too."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from etcdfix.remediation.audit.verify import ChainState, verify
from tests.support.change_runs import Registry, follow_up
from tests.support.syslogs import PlayedSyslog

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


def test_a_deletion_and_its_undo(registry: Registry, tmp_path: Path) -> None:
    key = registry.key("shop/broken")
    with PlayedSyslog(tmp_path / "socket") as syslog:
        ran = registry.delete(key, "--audit-syslog", str(syslog.path))
        assert ran.code == 0
        sent = syslog.lines()
        assert len(sent) == len(registry.records()) == 2
        assert f"audit head {verify(registry.log).head} of {registry.log}" in sent[-1]
        assert not any("broken" in line for line in sent)
        undo = follow_up(ran.out, "Undo")
        assert registry.run(*shlex.split(undo)[1:], "--yes").code == 0
        assert syslog.heads()[-1] == str(verify(registry.log).head)
    assert registry.stored(key) is not None


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_syslog_that_cannot_be_reached(registry: Registry, tmp_path: Path, more: tuple[str, ...]) -> None:
    key = registry.key("shop/broken")
    ran = registry.delete(key, "--audit-syslog", f"{tmp_path}/nothing", *more)
    assert ran.code == 0
    said = f"syslog at {tmp_path}/nothing did not take the head of the audit log: No such file or directory"
    assert (ran.out + ran.err).count(said) == 1
    assert (registry.stored(key) is None) is not bool(more)
    assert verify(registry.log).state is ChainState.WHOLE
