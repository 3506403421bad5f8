from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.model import Outcome
from etcdfix.report.model import CauseSummary, Summary, TransformerSummary
from etcdfix.report.next_steps import next_steps
from etcdfix.verdicts.causes import CATALOGUE, Cause


def transformer(
    name: str = "aescbc/v1/key2",
    *,
    keys: int,
    failures: int,
    damaged: int = 0,
    undetermined: int = 0,
    resources: tuple[str, ...] = ("secrets", "configmaps"),
) -> TransformerSummary:
    return TransformerSummary(name, [*resources], "fp:1", keys, failures, damaged, undetermined, 0, 1, 9)


def cause(which: Cause, count: int = 1, outcome: Outcome | None = None) -> CauseSummary:
    return CauseSummary(which.value, (outcome or CATALOGUE[which].outcomes[0]).value, count, "/registry/x")


def summary(
    *causes: CauseSummary, transformers: tuple[TransformerSummary, ...] = (), **counts: Any
) -> Summary:
    return Summary(by_cause=list(causes), by_transformer=list(transformers), **counts)


@pytest.mark.parametrize(("doubts", "told"), [([], False), (["unfitting"], False), (["in-between"], True)])
def test_a_key_that_had_other_bytes_for_a_time(doubts: list[str], *, told: bool) -> None:
    entry = msgspec.structs.replace(transformer(keys=50, failures=2), likely_damaged=2, likely_doubts=doubts)
    found = next_steps(summary(cause(Cause.NONCE_DAMAGED, 2), transformers=(entry,), decrypt_failures=2))
    words = (
        "2 values under aescbc/v1/key2 of secrets, configmaps do not open, and values written before and after them "
        "do: the key may have had other bytes for a time. Do not delete any of them; find those bytes."
    )
    assert (words in found) == told


def test_a_lost_key_is_said_once_and_deletion_is_warned_off() -> None:
    steps = next_steps(
        summary(
            cause(Cause.KEY_NAME_MISSING, 5000),
            transformers=(transformer(keys=5000, failures=5000), transformer("identity", keys=9, failures=0)),
            decrypt_failures=5000,
        )
    )
    assert steps[0].startswith(
        "5000 of 5000 values under aescbc/v1/key2 of secrets, configmaps do not open: that is the configuration"
    )
    assert "Do not delete any" in steps[0]
    assert len([s for s in steps if "aescbc" in s]) == 1
    assert not any("configuration alone" in s for s in steps)


def test_no_configuration_asks_for_one_first() -> None:
    steps = next_steps(
        summary(
            cause(Cause.NO_CONFIGURATION, 30),
            transformers=(transformer(keys=30, failures=0, undetermined=30),),
            undetermined=30,
        )
    )
    assert len(steps) == 1
    assert "--encryption-config" in steps[0]


def test_a_plugin_that_was_not_asked_proves_nothing() -> None:
    steps = next_steps(
        summary(
            cause(Cause.KMS_UNREACHABLE, 30),
            transformers=(transformer("kms/v2/prov", keys=30, failures=0, undetermined=30),),
            undetermined=30,
        )
    )
    assert len(steps) == 1
    assert "Delete none of them" in steps[0]


@pytest.mark.parametrize("which", [Cause.RAW_JSON_INVALID, Cause.INT_OR_STRING_INVALID])
def test_what_breaks_lists_is_healed_first(which: Cause) -> None:
    steps = next_steps(summary(cause(which), inconsistent=1))
    assert "heal these first" in steps[0]


@pytest.mark.parametrize("count", ["decrypt_failures", "decode_failures", "inconsistent"])
def test_a_snapshot_comes_before_any_change(count: str) -> None:
    steps = next_steps(summary(**dict[str, Any]({count: 1})))
    assert "snapshot" in steps[-2]
    assert "-o yaml" in steps[-1]


def test_refused_plaintext_is_no_lost_key() -> None:
    """Nothing under identity has a key that could be found; the configuration refuses it."""
    steps = next_steps(
        summary(
            cause(Cause.PLAINTEXT_NOT_ALLOWED, 40),
            transformers=(transformer("identity", keys=40, failures=40),),
            decrypt_failures=40,
        )
    )
    assert steps[0].startswith("The configuration alone can cure 40 findings")
    assert not any("find the key" in step for step in steps)


def test_damage_in_numbers_is_no_fault_of_the_configuration() -> None:
    steps = next_steps(
        summary(
            cause(Cause.CIPHERTEXT_DAMAGED, 10),
            transformers=(transformer(keys=10, failures=10, damaged=10, resources=()),),
            decrypt_failures=10,
        )
    )
    assert steps[0].startswith("10 of 10 values under aescbc/v1/key2 are damaged, and the key is right")
    assert not any("find the key" in step or "Do not restart" in step for step in steps)


def test_the_file_of_kine_is_copied_while_k3s_runs() -> None:
    """A stop of k3s would end what its API server has in memory, and that may be the last copy."""
    broken = summary(cause(Cause.VALUE_TRUNCATED), decode_failures=1)
    assert any("etcdctl snapshot save" in step for step in next_steps(broken))
    steps = next_steps(broken, of_kine=True)
    assert not any("etcdctl" in step for step in steps)
    assert any("sqlite3 .backup" in step and "Do not stop k3s" in step for step in steps)
    assert not any("stop k3s first" in step for step in steps)
