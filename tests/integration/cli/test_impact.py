"""``etcdfix impact``: the way back that it shows, taken on a real etcd."""

from __future__ import annotations

import json
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
    assert back["command"].endswith(" --dry-run")
    ran = registry.paste(back["command"].removesuffix(" --dry-run"))
    assert ran.code == 0, ran.err
    assert registry.stored(key) == whole
