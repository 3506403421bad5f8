"""Is the value proven wrong: every rule with verdicts and counts made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.examine.maybe_newer import SimilarCounts, Similarity
from etcdfix.examine.verdicts.catalogue import CATALOGUE
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import KMS_DOUBTS, LOST_KEY
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import KeyCounts
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import Outcome, Repair, RepairKind, RepairProof
from etcdfix.model.rules import MEANINGS, Rule
from etcdfix.remediation.surroundings import SameKeyEvidence
from tests.support.checked_values import judged
from tests.support.examinations import examination

KEY1 = "aesgcm/v1/key1"
ALL_RISKS = tuple(MEANINGS)
ALONE = KeyCounts(failed=1, damaged=1)
LIKENESS = Similarity("secrets", Cause.KIND_NOT_REGISTERED, "v1 Sekret")


def broken(cause: Cause = Cause.CIPHERTEXT_DAMAGED, **settings: Any) -> Examination:
    """Return a Secret that does not open, by default one that is proven damaged."""
    defaults: dict[str, Any] = {
        "transformer": KEY1,
        "rule": "secrets",
        "key_fingerprints": ("fp:1",),
        "mod_revision": 50,
    }
    return examination(cause=cause, **(defaults | settings))


def alike(
    found: Examination,
    *counts: KeyCounts,
    likes_failed: int = 0,
    likes_read: int = 0,
    transformer_opens: bool = False,
) -> SameKeyEvidence:
    names = found.encryption_keys
    return SameKeyEvidence(
        target=found,
        counts=dict(zip(names, counts or [ALONE] * len(names), strict=True)),
        transformer_opens=transformer_opens,
        similar=SimilarCounts(LIKENESS, likes_failed, likes_read) if likes_failed else SimilarCounts(),
        unread={},
        keys=100,
    )


def proven(found: Examination, around: SameKeyEvidence | None = None, **settings: Any) -> bool:
    """Say whether a declaration was needed, where no rule refuses."""
    said = judged(found, around or alike(found), **settings)
    assert said.refusal is None, said.refusal
    return said.needed


def refusal(found: Examination, around: SameKeyEvidence | None = None, **settings: Any) -> RefusedByRule:
    said = judged(found, around or alike(found), **settings)
    assert said.refusal is not None
    return said.refusal


def test_damage_that_was_found_is_enough() -> None:
    """Also where it is the only value under its key."""
    assert proven(broken()) is False
    assert proven(broken(outcome=Outcome.DECODE_FAILURE, cause=Cause.PROTOBUF_DAMAGED)) is False
    assert proven(broken(), alike(broken(), KeyCounts(opened=500, failed=1, damaged=1))) is False


# (a) What the configuration can cure.


CURABLE = [info.cause for info in CATALOGUE.values() if info.curable_by_configuration]


@pytest.mark.parametrize("cause", CURABLE)
@pytest.mark.parametrize("opened", [0, 1, 1000])
def test_what_the_configuration_can_cure_is_refused_however_few(cause: Cause, opened: int) -> None:
    found = broken(cause)
    error = refusal(found, alike(found, KeyCounts(opened=opened, failed=1)), risks=ALL_RISKS)
    assert error.rule == Rule.CURABLE_BY_CONFIGURATION
    assert "the configuration alone can cure this" in error.message
    if cause in LOST_KEY:
        assert error.hint.startswith(
            "fix the configuration; only if that key is gone for ever: --declare-key-lost"
        )
    else:
        assert error.hint == "fix the configuration"


@pytest.mark.parametrize("cause", CURABLE)
def test_a_declaration_lifts_what_a_lost_key_explains_and_nothing_else(cause: Cause) -> None:
    found = broken(cause)
    around = alike(found, KeyCounts(failed=12))
    if cause in LOST_KEY:
        assert proven(found, around, declared=KEY1) is True
    else:
        assert refusal(found, around, declared=KEY1, risks=ALL_RISKS).rule == Rule.CURABLE_BY_CONFIGURATION


@pytest.mark.parametrize("cause", sorted(LOST_KEY))
@pytest.mark.parametrize("declared", ["", KEY1])
def test_a_key_that_stands_elsewhere_is_not_lost(cause: Cause, declared: str) -> None:
    elsewhere = "aesgcm/v1/key1 of configmaps (fp:2)"
    found = broken(cause, fitting_key=elsewhere)
    error = refusal(found, alike(found, KeyCounts(failed=12)), declared=declared, risks=ALL_RISKS)
    assert error.rule == (Rule.DECLARATION if declared else Rule.CURABLE_BY_CONFIGURATION)
    assert elsewhere in error.hint


@pytest.mark.parametrize("cause", [Cause.WRONG_KEY, Cause.AUTHENTICATION_FAILED])
@pytest.mark.parametrize("declared", ["", KEY1])
def test_a_key_that_two_servers_write_with_is_not_lost(cause: Cause, declared: str) -> None:
    """What one of them opens, the other does not: their configurations are to be compared."""
    found = broken(cause, two_writers=True)
    around = alike(found, KeyCounts(opened=20, failed=20, last_failing=49))
    error = refusal(found, around, declared=declared, risks=ALL_RISKS)
    assert error.rule == (Rule.DECLARATION if declared else Rule.CURABLE_BY_CONFIGURATION)
    assert "etcdfix encryption check" in error.hint
    assert "--declare-key-lost" not in error.hint


def test_a_key_that_could_not_be_asked_for_is_not_lost() -> None:
    found = broken(Cause.WRONG_KEY, not_asked="kms/v2/other of configmaps")
    error = refusal(found, alike(found, KeyCounts(failed=12)), declared=KEY1, risks=ALL_RISKS)
    assert error.rule == Rule.DECLARATION
    assert error.hint.startswith("the plugin of kms/v2/other of configmaps did not answer")


@pytest.mark.parametrize("cause", [Cause.DOUBLE_ENCRYPTED, Cause.ENVELOPE_DAMAGED, Cause.ALLOCATOR_DAMAGED])
def test_what_may_be_whole_is_never_deleted(cause: Cause) -> None:
    found = broken(cause)
    error = refusal(found, alike(found, KeyCounts(opened=1000, failed=1)), risks=ALL_RISKS)
    assert error.rule == Rule.NEVER_DELETABLE
    assert "is never a reason to delete" in error.message
    assert "etcdfix explain /registry/secrets/shop/web" in error.hint


@pytest.mark.parametrize("cause", [Cause.CIPHERTEXT_DAMAGED, Cause.VALUE_TRUNCATED, Cause.UNKNOWN_ENVELOPE])
def test_without_damage_no_cause_is_enough(cause: Cause) -> None:
    assert refusal(broken(cause, damage=Damage.NONE), risks=ALL_RISKS).rule == Rule.NEVER_DELETABLE


def test_a_moved_value_is_looked_at_further() -> None:
    found = broken(Cause.VALUE_MOVED)
    assert refusal(found, alike(found, KeyCounts(opened=1, failed=1))).rules == (Rule.VALUE_MOVED,)


# (b) What the others under its key do.


@pytest.mark.parametrize(
    ("counts", "refused"),
    [
        (KeyCounts(opened=0, failed=1, damaged=0), False),
        (KeyCounts(opened=0, failed=2, damaged=1), True),
        (KeyCounts(opened=0, failed=2, damaged=2), False),
        (KeyCounts(opened=1, failed=2, damaged=1), False),
        (KeyCounts(opened=1, failed=9, damaged=1), False),
        (KeyCounts(opened=10, failed=10, damaged=9), True),
        (KeyCounts(opened=11, failed=10, damaged=9), False),
    ],
)
@pytest.mark.parametrize("risks", [(), ALL_RISKS])
def test_where_so_much_fails_it_is_the_key(
    counts: KeyCounts, risks: tuple[Rule, ...], *, refused: bool
) -> None:
    """No risk that is accepted lifts that."""
    found = broken()
    if not refused:
        assert proven(found, alike(found, counts), risks=risks) is False
        return
    error = refusal(found, alike(found, counts), risks=risks)
    assert error.rule == Rule.PATTERN
    assert f"under {KEY1} of secrets {counts.failed} values fail and {counts.opened} do not" in error.message
    assert error.hint == f"find the encryption key; only if it is gone for ever: --declare-key-lost {KEY1}"


def test_a_declaration_lifts_the_pattern_where_the_key_may_be_lost() -> None:
    found = broken()
    around = alike(found, KeyCounts(opened=0, failed=2, damaged=1))
    assert proven(found, around, declared=KEY1) is True
    assert proven(found, declared=KEY1) is False


@pytest.mark.parametrize("declared", ["", KEY1])
def test_where_the_key_is_there_nothing_lifts_the_pattern(declared: str) -> None:
    """The value shows that its key is right: nobody can say that it is lost."""
    found = broken(key_proven=True)
    error = refusal(
        found, alike(found, KeyCounts(opened=3, failed=12, damaged=1)), declared=declared, risks=ALL_RISKS
    )
    if declared:
        assert error.rule == Rule.DECLARATION
        assert "does not name a key of /registry/secrets/shop/web that could be lost" in error.message
        assert error.hint == f"it was written under {KEY1}, and that key is there"
    else:
        assert error.rule == Rule.PATTERN
        assert "--declare-key-lost" not in error.hint


def test_damage_in_numbers_has_its_own_word() -> None:
    found = broken()
    around = alike(found, KeyCounts(opened=3, failed=12, damaged=12))
    for risks in ((), tuple(risk for risk in MEANINGS if risk is not Rule.MASS_DAMAGE)):
        error = refusal(found, around, risks=risks)
        assert error.rule == Rule.MASS_DAMAGE
        assert "each of them is proven damaged" in error.message
        assert error.hint.endswith("--accept mass-damage")
    assert proven(found, around, risks=(Rule.MASS_DAMAGE,)) is False


def test_a_key_that_had_other_bytes_for_a_time() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY)
    around = alike(found, KeyCounts(opened=30, failed=2, unexplained=2))
    error = refusal(found, around, risks=tuple(MEANINGS))
    assert error.rule == Rule.PATTERN
    assert error.message.endswith(
        "under aesgcm/v1/key1 of secrets 2 values do not open, and nothing proves that they are damaged: "
        "the key may have had other bytes for a time"
    )
    lost = f"find the bytes that it had then; only if they are gone for ever: --declare-key-lost {KEY1}"
    assert error.hint == lost
    risks = (Rule.UNPROVEN_DAMAGE,)
    assert proven(found, around, declared=KEY1, risks=risks) is True
    assert refusal(found, around, declared=KEY1).hint.endswith("--accept unproven-damage")
    alone = alike(found, KeyCounts(opened=30, failed=2, damaged=1, unexplained=1))
    assert proven(found, alone, risks=risks) is False


def test_two_in_between_are_declared_although_what_opens_lies_between_them() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY)
    between = KeyCounts(opened=30, failed=2, unexplained=2, last_failing=20, last_opened=30)
    risks = (Rule.UNPROVEN_DAMAGE,)
    assert proven(found, alike(found, between), declared=KEY1, risks=risks) is True


@pytest.mark.parametrize(
    ("transformer", "undetermined", "told"),
    [("kms/v2/prov", 1, True), ("kms/v2/prov", 0, False), (KEY1, 1, False)],
)
def test_where_a_plugin_may_have_been_silent_it_comes_first(
    transformer: str, undetermined: int, *, told: bool
) -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY, transformer=transformer)
    around = alike(found, KeyCounts(opened=30, failed=1, undetermined=undetermined, unexplained=2))
    assert refusal(found, around).hint.startswith("see that its KMS plugin answers, and find") is told


def test_a_plugin_that_was_not_asked_is_named() -> None:
    for cause, damage, counts in (
        (Cause.NONCE_DAMAGED, Damage.LIKELY, KeyCounts(opened=30, failed=2, unexplained=2)),
        (Cause.NONCE_DAMAGED, Damage.LIKELY, KeyCounts(failed=2, unexplained=2)),
    ):
        found = broken(cause, damage=damage, not_asked="kms/v2/elsewhere")
        hint = refusal(found, alike(found, counts), risks=tuple(MEANINGS)).hint
        assert hint.startswith("the plugin of kms/v2/elsewhere did not answer whether it opens it")


def test_many_whose_key_is_right_say_nothing_of_the_key() -> None:
    found = broken(key_proven=True)
    error = refusal(found, alike(found, KeyCounts(opened=3, failed=12, damaged=11)))
    assert error.message.endswith("that is what happened to all of them, not to this object alone")


def test_values_under_a_key_that_is_right_which_were_written_in_another_way_for_a_time() -> None:
    found = broken(Cause.CIPHERTEXT_DAMAGED, damage=Damage.LIKELY, key_proven=True)
    around = alike(found, KeyCounts(opened=30, failed=2, unfitting=2))
    error = refusal(found, around, risks=(Rule.UNPROVEN_DAMAGE,))
    assert error.rule == Rule.MASS_DAMAGE
    assert "2 values do not open although the key is right" in error.message
    assert "written with other associated data for a time" in error.message
    assert error.hint.endswith("--accept mass-damage")
    assert refusal(found, around, risks=(Rule.MASS_DAMAGE,)).hint.endswith("unproven-damage")
    assert proven(found, around, risks=(Rule.UNPROVEN_DAMAGE, Rule.MASS_DAMAGE)) is False


def test_each_key_of_a_name_is_looked_at() -> None:
    found = broken(key_fingerprints=("fp:1", "fp:2"))
    good, bad = KeyCounts(opened=90, failed=1, damaged=1), KeyCounts(failed=2, damaged=1)
    assert proven(found, alike(found, good, good)) is False
    for counts in ((good, bad), (bad, good)):
        assert refusal(found, alike(found, *counts)).rule == Rule.PATTERN


def test_in_the_clear_there_is_no_key_to_declare() -> None:
    found = broken(
        Cause.PROTOBUF_DAMAGED,
        outcome=Outcome.DECODE_FAILURE,
        transformer="identity",
        rule="",
        key_fingerprints=(),
    )
    error = refusal(found, alike(found, KeyCounts(opened=1, failed=11, damaged=10)))
    assert (error.rule, error.hint) == (Rule.PATTERN, "find out what happened to so many of them")
    assert error.message.startswith("under identity 11 values fail")
    assert refusal(found, declared="identity").rule == Rule.DECLARATION


# (c) What a newer cluster may have written.


NEWER: dict[str, Any] = {
    "cause": Cause.KIND_NOT_REGISTERED,
    "outcome": Outcome.DECODE_FAILURE,
    "maybe_newer": True,
}
OPENS = KeyCounts(opened=100, failed=1)


def test_what_may_be_newer_has_to_be_accepted() -> None:
    found = broken(**NEWER)
    others = tuple(risk for risk in MEANINGS if risk is not Rule.NEWER_THAN_KNOWN)
    for risks in ((), others):
        error = refusal(found, alike(found, OPENS), risks=risks)
        assert error.rule == Rule.NEWER_THAN_KNOWN
        assert "the cluster may be newer than this etcdfix" in error.message
        assert error.hint.endswith("--accept newer-than-known")
    assert proven(found, alike(found, OPENS), risks=(Rule.NEWER_THAN_KNOWN,)) is False


@pytest.mark.parametrize(
    ("failed", "read", "refused"), [(1, 0, False), (2, 0, True), (50, 0, True), (2, 1, False), (50, 1, False)]
)
def test_where_a_whole_kind_fails_it_is_the_tool_and_no_flag_lifts_that(
    failed: int, read: int, *, refused: bool
) -> None:
    found = broken(**NEWER)
    around = alike(found, OPENS, likes_failed=failed, likes_read=read)
    if refused:
        error = refusal(found, around, risks=ALL_RISKS)
        assert error.rule == Rule.FAILS_LIKE_OTHERS
        assert f"{failed} values like it (v1 Sekret of secrets) fail and none can be read" in error.message
    else:
        assert proven(found, around, risks=ALL_RISKS) is False


def test_what_is_no_matter_of_releases_is_not_counted_with_its_likes() -> None:
    assert proven(broken(), alike(broken(), OPENS, likes_failed=9)) is False


SECRET = "/registry/secrets/shop/web"
CRD = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
WIDGET = "/registry/example.com/widgets/shop/w-1"


@pytest.mark.parametrize("cause", [Cause.VERSION_REMOVED, Cause.WRONG_KIND_FOR_KEY])
@pytest.mark.parametrize("similar", [1, 12])
@pytest.mark.parametrize("key", [SECRET, CRD])
def test_the_nodes_vouch_for_what_our_tables_know(cause: Cause, similar: int, key: str) -> None:
    found = broken(key=key, **(NEWER | {"cause": cause}))
    around = alike(found, OPENS, likes_failed=similar)
    assert proven(found, around, release_proven=True) is False
    assert refusal(found, around, release_proven=False).rule == (
        Rule.NEWER_THAN_KNOWN if similar == 1 else Rule.FAILS_LIKE_OTHERS
    )


def test_the_nodes_do_not_vouch_for_damage() -> None:
    found = broken(**(NEWER | {"cause": Cause.VERSION_REMOVED, "damage": Damage.LIKELY}))
    error = refusal(found, alike(found, OPENS), release_proven=True)
    assert error.rule == Rule.UNPROVEN_DAMAGE
    assert error.hint.endswith(Rule.UNPROVEN_DAMAGE)


@pytest.mark.parametrize(
    "cause",
    [
        Cause.UNKNOWN_ENVELOPE,
        Cause.UNKNOWN_ENCODING,
        Cause.KIND_NOT_REGISTERED,
        Cause.CONVERSION_FAILED,
        Cause.CBOR_DAMAGED,
        Cause.MAGIC_DAMAGED,
    ],
)
@pytest.mark.parametrize("similar", [1, 12])
def test_the_nodes_vouch_for_nothing_that_no_table_knows(cause: Cause, similar: int) -> None:
    found = broken(**(NEWER | {"cause": cause}))
    around = alike(found, OPENS, likes_failed=similar)
    assert refusal(found, around, release_proven=True).rule == (
        Rule.NEWER_THAN_KNOWN if similar == 1 else Rule.FAILS_LIKE_OTHERS
    )


@pytest.mark.parametrize("similar", [1, 12])
def test_kinds_of_custom_resources_stand_in_no_table(similar: int) -> None:
    found = broken(key=WIDGET, namespaced=True, **(NEWER | {"cause": Cause.WRONG_KIND_FOR_KEY}))
    around = alike(found, OPENS, likes_failed=similar)
    assert refusal(found, around, release_proven=True).rule == (
        Rule.NEWER_THAN_KNOWN if similar == 1 else Rule.FAILS_LIKE_OTHERS
    )


# (e) Damage that is only likely.


def test_damage_that_is_likely_has_to_be_accepted() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY)
    around = alike(found, KeyCounts(opened=100, failed=1))
    others = tuple(risk for risk in MEANINGS if risk is not Rule.UNPROVEN_DAMAGE)
    for risks in ((), others):
        error = refusal(found, around, risks=risks)
        assert error.rule == Rule.UNPROVEN_DAMAGE
        assert "the damage is likely and not proven" in error.message
        assert error.hint.endswith("--accept unproven-damage")
        assert error.hint.startswith(
            "with --kubeconfig FILE, ask whether an API server has other bytes of that key"
        )
    assert proven(found, around, risks=(Rule.UNPROVEN_DAMAGE,)) is False


def test_damage_that_is_possible_has_to_be_accepted_too() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.POSSIBLE)
    around = alike(found, KeyCounts(opened=100, failed=1, unexplained=1))
    error = refusal(found, around)
    assert error.rule == Rule.UNPROVEN_DAMAGE
    assert "the damage is possible and not proven" in error.message
    assert error.hint.endswith("--accept unproven-damage")
    assert proven(found, around, risks=(Rule.UNPROVEN_DAMAGE,)) is False
    # Another one fails under the same key, in another rule.
    around = alike(found, KeyCounts(opened=100, failed=1, unexplained=2))
    assert refusal(found, around, risks=tuple(MEANINGS)).rule == Rule.PATTERN


def test_what_a_value_shows_by_itself_is_not_held_against_others() -> None:
    counts = KeyCounts(opened=100, failed=5, unfitting=4)
    likely = {"damage": Damage.LIKELY, "key_proven": True}
    by_itself = broken(Cause.CIPHERTEXT_DAMAGED, shown_by_itself=True, **likely)
    risks = (Rule.UNPROVEN_DAMAGE,)
    assert proven(by_itself, alike(by_itself, counts), risks=risks) is False
    assert refusal(by_itself, alike(by_itself, counts)).rule == Rule.UNPROVEN_DAMAGE
    on_others = broken(Cause.CIPHERTEXT_DAMAGED, **likely)
    assert refusal(on_others, alike(on_others, counts), risks=risks).rule == Rule.MASS_DAMAGE


def test_each_risk_lifts_its_own_rule_and_no_other() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY, maybe_newer=True)
    around = alike(found, KeyCounts(opened=100, failed=1))
    newer, unproven = Rule.NEWER_THAN_KNOWN, Rule.UNPROVEN_DAMAGE
    assert "unproven-damage" in refusal(found, around, risks=(newer,)).hint
    assert "newer-than-known" in refusal(found, around, risks=(unproven,)).hint
    assert proven(found, around, risks=(newer, unproven)) is False


# What is no failure.


@pytest.mark.parametrize(
    ("outcome", "rule"),
    [
        (Outcome.READABLE, Rule.READABLE),
        (Outcome.INCONSISTENT, Rule.INCONSISTENT),
        (Outcome.NOT_AN_OBJECT, Rule.NOT_AN_OBJECT),
        (Outcome.UNDETERMINED, Rule.UNDETERMINED),
    ],
)
@pytest.mark.parametrize("declared", ["", KEY1])
def test_what_is_not_broken_is_not_deleted_whatever_is_declared(
    outcome: Outcome, rule: Rule, declared: str
) -> None:
    found = broken(Cause.OWNER_UNKNOWN, outcome=outcome)
    error = refusal(found, alike(found, KeyCounts(opened=1)), declared=declared, risks=ALL_RISKS)
    assert error.rule == rule


@pytest.mark.parametrize("outcome", [Outcome.READABLE, Outcome.INCONSISTENT, Outcome.UNDETERMINED])
def test_what_is_well_once_all_others_are_seen_stays(outcome: Outcome) -> None:
    """A plugin may answer otherwise the second time."""
    again = broken(Cause.OWNER_UNKNOWN, outcome=outcome)
    assert outcome.value in refusal(broken(), alike(again, KeyCounts(opened=1)), risks=ALL_RISKS).rules


# What is declared lost.


KMS: dict[str, Any] = {"transformer": "kms/v2/prov", "kms_key_id": "kek-1", "key_fingerprints": ()}


def behind_plugin(cause: Cause = Cause.KMS_KEY_UNKNOWN, **settings: Any) -> Examination:
    return broken(cause, outcome=Outcome.UNDETERMINED, **(KMS | settings))


@pytest.mark.parametrize("cause", sorted(KMS_DOUBTS))
def test_a_kms_key_can_be_declared_lost_by_its_id(cause: Cause) -> None:
    found = behind_plugin(cause)
    around = alike(found, KeyCounts(undetermined=9), transformer_opens=True)
    assert refusal(found, around, risks=ALL_RISKS).rule == Rule.UNDETERMINED
    digest = f"kms/v2/prov/{found.kms_key_id_sha256}"
    for declared in (digest, "kms/v2/prov/kek-1"):
        assert proven(found, around, declared=declared) is True
    error = refusal(found, around, declared="kms/v2/prov")
    assert error.rule == Rule.DECLARATION
    assert error.hint == f"it was written under {digest}"


def test_a_provider_of_which_nothing_opens_can_be_declared_lost_as_a_whole() -> None:
    found = behind_plugin(Cause.KMS_UNPROVEN)
    around = alike(found, KeyCounts(undetermined=9))
    assert proven(found, around, declared="kms/v2/prov") is True
    # Where nobody was asked, nothing is known of the other key ids.
    silent = behind_plugin(Cause.KMS_UNREACHABLE)
    around = alike(silent, KeyCounts(undetermined=9))
    assert refusal(silent, around, declared="kms/v2/prov").rule == Rule.DECLARATION


def test_a_kms_key_that_is_there_under_another_name_is_not_lost() -> None:
    found = behind_plugin(fitting_key="kms/v2/other of configmaps")
    error = refusal(found, declared=f"kms/v2/prov/{found.kms_key_id_sha256}")
    assert error.rules == (Rule.UNDETERMINED, Rule.DECLARATION)
    assert "kms/v2/other of configmaps" in error.also[0].hint


@pytest.mark.parametrize(
    "declared",
    [
        "aesgcm/v1/key",
        "aesgcm/v1/key11",
        "aesgcm/v1/",
        "aesgcm/v1/key1/",
        "AESGCM/v1/key1",
        " aesgcm/v1/key1",
        "*",
    ],
)
def test_a_declaration_names_the_transformer_exactly(declared: str) -> None:
    found = broken(Cause.WRONG_KEY)
    error = refusal(found, alike(found, KeyCounts(failed=5)), declared=declared)
    assert error.rule == Rule.DECLARATION
    assert (
        error.message == f"--declare-key-lost {declared} does not name the key of /registry/secrets/shop/web"
    )
    assert error.hint == f"it was written under {KEY1}"


def test_nothing_can_be_declared_lost_of_an_envelope_that_nobody_knows() -> None:
    found = broken(Cause.UNKNOWN_ENVELOPE, transformer="", key_fingerprints=(), maybe_newer=True)
    assert refusal(found, declared="aesgcm/v1/key1").rule == Rule.DECLARATION


@pytest.mark.parametrize(
    ("last_failing", "last_opened", "holds"),
    [
        (0, 0, True),
        (28, 0, True),
        (28, 27, True),
        (80, 49, True),
        (28, 28, True),
        (28, 29, False),
        (28, 49, False),
        # It alone fails, and what came before it opens.
        (0, 49, False),
    ],
)
def test_a_key_that_opened_what_came_just_before_was_not_lost_then(
    last_failing: int, last_opened: int, *, holds: bool
) -> None:
    found = broken(Cause.WRONG_KEY)
    counts = KeyCounts(opened=5, failed=3, last_failing=last_failing, last_opened=last_opened)
    if holds:
        assert proven(found, alike(found, counts), declared=KEY1) is True
        return
    error = refusal(found, alike(found, counts), declared=KEY1)
    assert error.rule == Rule.DECLARATION
    assert f"opens under the same key (mod_revision {last_opened})" in error.message
    assert (f"from mod_revision {last_failing}" if last_failing else "there is none") in error.message


def test_that_holds_of_each_key_of_a_name() -> None:
    found = broken(Cause.WRONG_KEY, key_fingerprints=("fp:1", "fp:2"))
    lost, used = (
        KeyCounts(failed=3, last_failing=28),
        KeyCounts(opened=5, failed=3, last_failing=28, last_opened=29),
    )
    assert proven(found, alike(found, lost, lost), declared=KEY1) is True
    for counts in ((lost, used), (used, lost)):
        assert refusal(found, alike(found, *counts), declared=KEY1).rule == Rule.DECLARATION


def test_a_declaration_is_no_word_for_a_risk() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY)
    around = alike(found, KeyCounts(opened=1, failed=12))
    assert refusal(found, around, declared=KEY1).rule == Rule.UNPROVEN_DAMAGE
    newer = broken(**NEWER)
    assert refusal(newer, alike(newer, OPENS, likes_failed=2), declared=KEY1).rule == Rule.FAILS_LIKE_OTHERS


@pytest.mark.parametrize("cause", [Cause.JSON_DAMAGED, Cause.TRAILING_BYTES, Cause.PROTOBUF_DAMAGED])
def test_a_whole_object_that_may_be_found_is_the_only_copy(cause: Cause) -> None:
    found = broken(cause, outcome=Outcome.DECODE_FAILURE, opened=True, holds_whole=True)
    refused = refusal(found, risks=set(MEANINGS) - {Rule.ONLY_COPY})
    assert refused.rule == Rule.ONLY_COPY
    assert f"--accept {Rule.ONLY_COPY}" in refused.hint
    assert not proven(found, risks={Rule.ONLY_COPY})


NOT_EVEN_THEN = {
    "double-encrypted": (
        broken(Cause.DOUBLE_ENCRYPTED, outcome=Outcome.DECODE_FAILURE, opened=True),
        Rule.NEVER_DELETABLE,
    ),
    "allocator": (
        broken(Cause.ALLOCATOR_DAMAGED, outcome=Outcome.DECODE_FAILURE, transformer="identity"),
        Rule.NEVER_DELETABLE,
    ),
    "renamed": (broken(Cause.KEY_RENAMED), Rule.CURABLE_BY_CONFIGURATION),
    "its key stands elsewhere": (
        broken(Cause.KEY_NAME_MISSING, fitting_key="aesgcm/v1/b of secrets"),
        Rule.CURABLE_BY_CONFIGURATION,
    ),
}


@pytest.mark.parametrize("case", NOT_EVEN_THEN)
@pytest.mark.parametrize("repairable", [True, False])
def test_a_flag_that_would_not_help_is_not_offered(case: str, *, repairable: bool) -> None:
    """What is never deleted is refused for that, whether it can be put right or not; the repair is named still."""
    found, rule = NOT_EVEN_THEN[case]
    repair = Repair(RepairKind.BIT, "one bit", RepairProof.TAG) if repairable else None
    verdict = msgspec.structs.replace(found.verdict, holds_whole=True)
    found = msgspec.structs.replace(found, repair=repair, verdict=verdict)
    for risks in ((), ALL_RISKS):
        error = refusal(found, risks=risks)
        assert error.rule == rule
        assert "--accept" not in error.hint
        assert ("etcdfix fix" in error.hint) is repairable


def test_a_repair_comes_before_the_declaration_of_a_key() -> None:
    found = broken(Cause.KEY_NAME_MISSING)
    found = msgspec.structs.replace(found, repair=Repair(RepairKind.NAME, "one bit", RepairProof.NONE))
    error = refusal(found)
    assert error.rule == Rule.ONLY_COPY
    assert "--accept only-copy" in error.hint


def test_whole_objects_that_are_all_of_a_key_are_no_proven_damage() -> None:
    """None opens and two fail, each with something behind it: that is no damage of each."""
    found = broken(Cause.TRAILING_BYTES, outcome=Outcome.DECODE_FAILURE, opened=True, holds_whole=True)
    counts = KeyCounts()
    for _ in range(2):
        counts.add(found)
    assert refusal(found, alike(found, counts), risks=set(MEANINGS)).rule == Rule.PATTERN
