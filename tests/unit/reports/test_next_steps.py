from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.model import Outcome
from etcdfix.reports.model import CauseSummary, KMSPluginSummary, KMSSummary, Summary, TransformerSummary
from etcdfix.reports.next_steps import awaited_plugins, doubt_in, next_for_undetermined, next_steps
from etcdfix.reports.tally import OTHERS
from etcdfix.text.commands import RepeatedOptions
from etcdfix.verdicts.causes import CATALOGUE, Cause
from etcdfix.verdicts.key_loss import KeyDoubt


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


@pytest.mark.parametrize(
    ("keys", "failures", "damaged", "undetermined", "doubt"),
    [
        (1, 1, 0, 0, KeyDoubt.NONE),
        (2, 2, 0, 0, KeyDoubt.NONE_OPENS),
        (2, 2, 2, 0, KeyDoubt.NONE),
        (2, 1, 0, 0, KeyDoubt.NONE),
        (20, 10, 0, 0, KeyDoubt.MOST_FAIL),
        (20, 10, 10, 0, KeyDoubt.MASS_DAMAGE),
        (21, 10, 0, 0, KeyDoubt.NONE),
        (18, 9, 0, 0, KeyDoubt.NONE),
        (1000, 999, 0, 0, KeyDoubt.MOST_FAIL),
        (30, 10, 0, 10, KeyDoubt.MOST_FAIL),
        (5, 2, 0, 3, KeyDoubt.NONE_OPENS),
        (5, 0, 0, 5, KeyDoubt.NONE),
        (5, 0, 0, 0, KeyDoubt.NONE),
    ],
)
def test_what_failures_point_at(
    keys: int, failures: int, damaged: int, undetermined: int, doubt: KeyDoubt
) -> None:
    entry = transformer(keys=keys, failures=failures, damaged=damaged, undetermined=undetermined)
    assert doubt_in(entry) is doubt


def test_nothing_wrong_needs_no_steps() -> None:
    assert next_steps(summary(keys=10, readable=10)) == []
    assert next_steps(summary(cause(Cause.OWNER_UNKNOWN, outcome=Outcome.READABLE), keys=1, readable=1)) == []


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


def test_single_curable_findings_are_counted() -> None:
    steps = next_steps(
        summary(
            cause(Cause.KEY_NAME_MISSING, 1),
            cause(Cause.PLAINTEXT_NOT_ALLOWED, 2),
            cause(Cause.ZEROED_VALUE, 4),
            transformers=(transformer(keys=50, failures=1),),
            decrypt_failures=3,
        )
    )
    assert steps[0].startswith("The configuration alone can cure 3 findings")


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


def test_owners_that_wait_for_kms_are_left_alone() -> None:
    steps = next_steps(
        summary(
            cause(Cause.OWNER_UNKNOWN, outcome=Outcome.UNDETERMINED),
            cause(Cause.KMS_UNREACHABLE, outcome=Outcome.UNDETERMINED),
            undetermined=2,
        )
    )
    assert steps[-1].endswith("may come back with the KMS. Touch nothing.")


def test_unknown_owners_point_at_their_definitions() -> None:
    steps = next_steps(summary(cause(Cause.OWNER_UNKNOWN, outcome=Outcome.UNDETERMINED), undetermined=1))
    assert "CustomResourceDefinitions first" in steps[0]


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


def test_one_name_in_two_rules_is_said_apart() -> None:
    steps = next_steps(
        summary(
            cause(Cause.WRONG_KEY, 12),
            transformers=(
                transformer(keys=13, failures=0, resources=("configmaps",)),
                transformer(keys=12, failures=12, resources=("secrets",)),
            ),
            decrypt_failures=12,
        )
    )
    assert steps[0].startswith("12 of 12 values under aescbc/v1/key2 of secrets do not open")
    assert not any("configmaps" in step for step in steps)


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


def test_what_a_plugin_answers_is_proven_by_a_scan_of_everything() -> None:
    """A scan of the one value has nothing beside it that could open."""
    unproven = next_for_undetermined({Cause.KMS_UNPROVEN}, ["/registry/secrets/shop/web"], RepeatedOptions())
    silent = next_for_undetermined({Cause.KMS_UNREACHABLE}, ["/registry/secrets/shop/web"], RepeatedOptions())
    assert unproven is not None
    assert silent is not None
    assert unproven.command == "etcdfix scan"
    assert silent.command == "etcdfix scan /registry/secrets/shop/web"


@pytest.mark.parametrize(
    ("name", "undetermined", "which", "awaited"),
    [
        ("kms/v1/prov", 1, Cause.KMS_UNREACHABLE, True),
        ("kms/v1/prov", 0, Cause.PROVIDER_MISSING, False),
        ("kms/v1/other", 1, Cause.KMS_UNREACHABLE, False),
        ("identity", 0, Cause.OWNER_UNKNOWN, True),
        (OTHERS, 1, Cause.KMS_UNREACHABLE, True),
    ],
)
def test_a_plugin_is_awaited_by_what_cannot_be_judged_without_it(
    name: str, undetermined: int, which: Cause, *, awaited: bool
) -> None:
    plugin = KMSPluginSummary("kms/v1/prov", "unix:///x", "no-socket", "", 1, 0, 0, 0, None)
    entry = transformer(name, keys=1, failures=0, undetermined=undetermined)
    found = awaited_plugins(summary(cause(which), transformers=(entry,), kms=KMSSummary([plugin], [])))
    assert found is not None
    assert bool(found.plugins) is awaited


def test_without_plugins_none_is_awaited() -> None:
    assert awaited_plugins(Summary()) is None
