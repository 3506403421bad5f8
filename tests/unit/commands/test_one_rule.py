"""Scan, plan, impact and deletion judge the same values: what one says of an encryption key, the others act upon."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.commands.plan import build_plan
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.examine.all import no_progress
from etcdfix.examine.one import Reading
from etcdfix.examine.verdicts.key_loss import BY_NUMBERS
from etcdfix.graph.cluster import index_cluster
from etcdfix.model.providers import IDENTITY as UNENCRYPTED
from etcdfix.model.rules import MEANINGS, Rule
from etcdfix.remediation.surroundings import look_at_all
from etcdfix.report.advice.whole import doubt_in
from etcdfix.report.model import TransformerSummary
from etcdfix.report.plan import DECLARE_KEY_LOST
from tests.support.checked_values import judged
from tests.support.impact_objects import Cluster
from tests.support.lost_key import base, examiner_of, request_for, scan_to
from tests.support.objects import IDENTITY, KEY_1, aesgcm, configuration, provider

CONFIG = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
NOWHERE = b"0" * 16
Written = tuple[str, int, Callable[[bytes, str], bytes]]


def secrets(cluster: Cluster, name: str, count: int, write: Callable[[bytes, str], bytes]) -> None:
    """Add Secrets that are written in a certain way."""
    for number in range(count):
        key = cluster.secret(f"{name}-{number}")
        cluster.values[key] = write(cluster.values[key], key)


def cut(value: bytes, key: str) -> bytes:
    return aesgcm(value, key)[:-40]


def under_another_key(value: bytes, key: str) -> bytes:
    return aesgcm(value, key, NOWHERE)


def under_a_name_that_is_gone(value: bytes, key: str) -> bytes:
    return aesgcm(value, key, NOWHERE, name="gone")


def elsewhere(value: bytes, _key: str) -> bytes:
    return aesgcm(value, "/registry/secrets/elsewhere/x")


def zeroed(value: bytes, _key: str) -> bytes:
    return bytes(len(value))


LOST: list[Written] = [("gone", 12, under_a_name_that_is_gone)]
CASES: dict[str, tuple[list[Written], set[str]]] = {
    "a lost key": (LOST, {"declared"}),
    "one of many is damaged": ([("good", 5, aesgcm), ("cut", 1, cut)], {"nothing"}),
    "many are damaged": ([("good", 5, aesgcm), ("cut", 10, cut)], {"mass-damage"}),
    "other bytes": ([("other", 12, under_another_key)], {"declared"}),
    "many under other bytes and one whose key is right": (
        [("other", 10, under_another_key), ("cut", 1, cut)], {"declared", "refused"},
    ),
    "other bytes for a time": (
        [("a", 3, aesgcm), ("other", 2, under_another_key), ("z", 3, aesgcm)], {"declared, unproven-damage"},
    ),
    "other associated data for a time": (
        [("a", 3, aesgcm), ("moved", 2, elsewhere), ("z", 3, aesgcm)], {"mass-damage, unproven-damage"},
    ),
    "one that is likely damaged": (
        [("a", 3, aesgcm), ("other", 1, under_another_key), ("z", 3, aesgcm)], {"unproven-damage"},
    ),
    "many unencrypted are zeroed": ([("zero", 10, zeroed)], {"mass-damage"}),
    "a few unencrypted are zeroed": ([("good", 12, aesgcm), ("zero", 3, zeroed)], {"nothing"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_they_agree(name: str, tmp_path: Path) -> None:
    written, expected = CASES[name]
    cluster = base()
    for group, count, write in written:
        secrets(cluster, group, count, write)
    source = cluster.source()
    report = scan_to(tmp_path / "report.json", cluster, config=CONFIG)
    plan = build_plan(source, examiner_of(cluster, source, CONFIG), request_for(report, CONFIG))
    found = index_cluster(
        source, Reading(layout=cluster.layout, configuration=CONFIG), keep=lambda _found: True
    )
    patterns = lost_by(json.loads(report.read_text()))
    asked = set()
    for entry in plan.entries:
        examined = found.kept[entry.key.encode()]
        key_looks_lost = found.key_looks_lost(examined)
        needs = dict(word.split(" ") for word in entry.needs if word.startswith(DECLARE_KEY_LOST))
        declared = needs.get(DECLARE_KEY_LOST, "")
        risks = {word.split(" ")[1] for word in entry.needs if not word.startswith(DECLARE_KEY_LOST)}
        risks.discard(Rule.ENDS_CACHED_READS)  # it is asked of the others of a kind, and of no value
        words = sorted(risks) if not declared else ["declared", *sorted(risks)]
        asked.add("refused" if entry.refused else ", ".join(words) or "nothing")
        if entry.transformer != UNENCRYPTED:
            assert key_looks_lost >= (entry.transformer in patterns), entry.name
            assert key_looks_lost <= (bool(declared) or bool(entry.refused)), entry.name
        deletable = deletion(cluster, CONFIG, entry.key)
        if entry.refused:
            assert not deletable(f"{entry.transformer}", set(MEANINGS))
            continue
        assert deletable(declared, risks), entry.name
        if declared:
            assert not deletable("", set(MEANINGS)), entry.name
        for fewer in combinations(sorted(risks), max(len(risks) - 1, 0)):
            if risks:
                assert not deletable(declared, set(fewer)), entry.name
    assert asked == expected


def lost_by(report: dict[str, Any]) -> set[str]:
    """Return the transformers whose key or configuration a scan blames."""
    entries = msgspec.convert(report["summary"]["by_transformer"], list[TransformerSummary])
    return {
        one.transformer for one in entries if one.transformer != "identity" and doubt_in(one) in BY_NUMBERS
    }


def deletion(
    cluster: Cluster, config: EncryptionConfiguration, key: str
) -> Callable[[str, set[str] | set[Rule]], bool]:
    """Return what says whether a deletion finds its proof, with a declaration and accepted risks."""
    source = cluster.source()
    examiner = examiner_of(cluster, source, config)
    stored = source.get(key.encode())
    assert stored is not None
    alike = look_at_all(source, examiner, examiner.examine(stored), no_progress, see=lambda _found: None)
    target = alike.target
    assert target is not None

    def passes(declared: str, risks: set[str] | set[Rule]) -> bool:
        return judged(target, alike, declared=declared, risks=risks).refusal is None

    return passes
