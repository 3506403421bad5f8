"""``etcdfix impact``: the way back that it shows, taken on a real etcd."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import BROKEN as DAMAGED
from tests.support.change_runs import Registry
from tests.support.objects import aescbc, secret


@pytest.mark.etcd
def test_an_earlier_revision_can_be_put_back_by_the_command_that_is_shown(
    etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    registry = Registry(etcd, prefix, tmp_path, capfd)
    key = registry.key("shop/broken")
    whole = aescbc(secret("broken"))
    registry.etcd.put(key, whole)
    registry.etcd.put(key, DAMAGED)
    where = registry.common(places=False, reason=None)
    ran = registry.run("impact", key.decode(), *where, "-o", "json")
    remedies = json.loads(ran.out)["remedies"]
    (back,) = [remedy for remedy in remedies if " restore " in remedy["command"]]
    deleting = [remedy for remedy in remedies if " delete " in remedy["command"]]
    assert remedies.index(back) < remedies.index(deleting[0])
    program, *words = shlex.split(back["command"])
    assert (program, words[0], words[-1]) == ("etcdfix", "restore", "--dry-run")
    places = ["--backup-dir", str(registry.backups), "--audit-log", str(registry.log), "--yes"]
    ran = registry.run(*words[:-1], *places)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == whole
