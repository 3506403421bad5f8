"""``-v`` on a real etcd: what is asked and when, of a look and of a change; never contents or passwords."""

from __future__ import annotations

import re

import pytest

from tests.support.change_runs import PLAINTEXT, Registry

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


def asked(err: str) -> list[str]:
    return re.findall(r"^etcdfix: \S+Z \S+ (.*)$", err, re.MULTILINE)


def test_a_scan_says_what_it_asks(registry: Registry) -> None:
    words = ["scan", *registry.common(places=False, reason=None)]
    plain, told = (registry.run(*words, *flag) for flag in ([], ["-v"]))
    assert asked(plain.err) == []
    assert re.sub("(?m)^etcdfix: .* ms\n", "", told.err) == plain.err
    pages = [line for line in asked(told.err) if line.startswith("KV/Range every key at revision ")]
    assert any(re.search(r" \d+ at most \d+: \d+ keys(, more follow)?, [\d.]+ ms$", line) for line in pages)
    stored = registry.stored(registry.key("shop/good-0"))
    assert stored is not None
    for hidden in (PLAINTEXT.decode(), stored[-16:].hex(), "k8s:enc"):
        assert hidden not in told.err


def test_a_change_says_its_one_transaction(registry: Registry) -> None:
    key = registry.key("shop/broken")
    ran = registry.delete(key, "-v")
    assert ran.code == 0, ran.err
    (transaction,) = (line for line in asked(ran.err) if " KV/Txn " in f" {line}")
    assert transaction.startswith(f"KV/Txn {key.decode()}: ")
    assert "key1:short" not in ran.err  # what stood there
    assert "What a deletion means" in ran.err


def test_a_change_that_cannot_say_anything_is_made_all_the_same(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_exchange: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("etcdfix.cli.command.say_exchange", broken)
    ran = registry.delete(registry.key("shop/broken"), "-v")
    assert ran.code == 0, ran.err
    assert registry.stored(registry.key("shop/broken")) is None
