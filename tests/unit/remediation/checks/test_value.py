"""Is the value proven wrong: every rule with verdicts and counts made by hand."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from etcdfix.examine.maybe_newer import SimilarCounts, Similarity
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
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
GOES, DECLARED = "goes", "goes because its key is declared lost"
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
    alone = KeyCounts(failed=1, damaged=1)
    return SameKeyEvidence(
        target=found,
        counts=dict(zip(names, counts or [alone] * len(names), strict=True)),
        transformer_opens=transformer_opens,
        similar=SimilarCounts(LIKENESS, likes_failed, likes_read) if likes_failed else SimilarCounts(),
        unread={},
        keys=100,
    )


def said(found: Examination, around: SameKeyEvidence | None = None, **settings: Any) -> str:
    """Return the rule that refuses first, or how it goes."""
    found_out = judged(found, around or alike(found), **settings)
    if found_out.refusal is not None:
        return found_out.refusal.rule
    return DECLARED if found_out.needed else GOES


def refusal(found: Examination, around: SameKeyEvidence | None = None, **settings: Any) -> RefusedByRule:
    found_out = judged(found, around or alike(found), **settings)
    assert found_out.refusal is not None
    return found_out.refusal


def all_but(rule: Rule) -> tuple[Rule, ...]:
    return tuple(risk for risk in MEANINGS if risk is not rule)


def test_damage_that_was_found_is_enough() -> None:
    """Also where it is the only value under its key."""
    assert said(broken()) == GOES
    assert said(broken(outcome=Outcome.DECODE_FAILURE, cause=Cause.PROTOBUF_DAMAGED)) == GOES
    assert said(broken(), alike(broken(), KeyCounts(opened=500, failed=1, damaged=1))) == GOES


@pytest.mark.parametrize("cause", [Cause.CIPHERTEXT_DAMAGED, Cause.VALUE_TRUNCATED, Cause.UNKNOWN_ENVELOPE])
def test_without_damage_no_cause_is_enough(cause: Cause) -> None:
    assert said(broken(cause, damage=Damage.NONE), risks=ALL_RISKS) == Rule.NEVER_DELETABLE


def test_a_moved_value_whose_home_does_not_hold_it_stays() -> None:
    found = broken(Cause.VALUE_MOVED)
    assert said(found, alike(found, KeyCounts(opened=1, failed=1))) == Rule.VALUE_MOVED


@pytest.mark.parametrize("cause", [Cause.DOUBLE_ENCRYPTED, Cause.ENVELOPE_DAMAGED, Cause.ALLOCATOR_DAMAGED])
def test_what_may_be_whole_is_never_deleted(cause: Cause) -> None:
    found = broken(cause)
    error = refusal(found, alike(found, KeyCounts(opened=1000, failed=1)), risks=ALL_RISKS)
    assert error.rule == Rule.NEVER_DELETABLE
    assert "etcdfix explain /registry/secrets/shop/web" in error.hint


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
    opened = alike(found, KeyCounts(opened=1))
    assert said(found, opened, declared=declared, risks=ALL_RISKS) == rule
    # A plugin may answer otherwise the second time, once all others are seen.
    if outcome is not Outcome.NOT_AN_OBJECT:
        assert outcome.value in refusal(broken(), opened, risks=ALL_RISKS).rules


# (a) What the configuration can cure.


@pytest.mark.parametrize(("cause", "may_be_lost"), [(Cause.WRONG_KEY, True), (Cause.KEY_RENAMED, False)])
def test_what_the_configuration_can_cure_is_refused_however_few(cause: Cause, *, may_be_lost: bool) -> None:
    """A declaration lifts what a lost key explains, and nothing else."""
    found = broken(cause)
    for opened in (0, 1, 1000):
        error = refusal(found, alike(found, KeyCounts(opened=opened, failed=1)), risks=ALL_RISKS)
        assert error.rule == Rule.CURABLE_BY_CONFIGURATION
        assert ("--declare-key-lost" in error.hint) == may_be_lost
    declared = said(found, alike(found, KeyCounts(failed=12)), declared=KEY1, risks=ALL_RISKS)
    assert declared == (DECLARED if may_be_lost else Rule.CURABLE_BY_CONFIGURATION)


@pytest.mark.parametrize(
    ("shown", "instead"),
    [
        ({"fitting_key": "aesgcm/v1/key1 of configmaps (fp:2)"}, "aesgcm/v1/key1 of configmaps (fp:2)"),
        # What one server opens, another does not: their configurations are to be compared.
        ({"two_writers": True}, "etcdfix encryption check"),
        ({"not_asked": "kms/v2/other"}, "the plugin of kms/v2/other did not answer"),
    ],
)
def test_a_key_that_may_be_there_is_not_lost(shown: dict[str, Any], instead: str) -> None:
    found = broken(Cause.WRONG_KEY, **shown)
    around = alike(found, KeyCounts(opened=20, failed=20, last_failing=49))
    error = refusal(found, around, declared=KEY1, risks=ALL_RISKS)
    assert (error.rule, instead in error.hint) == (Rule.DECLARATION, True)
    assert said(found, around, risks=ALL_RISKS) == Rule.CURABLE_BY_CONFIGURATION


# (b) What the others under its key do.


def test_where_so_much_fails_it_is_the_key() -> None:
    """No risk that is accepted lifts that."""
    found = broken()
    around = alike(found, KeyCounts(opened=10, failed=10, damaged=9))
    assert said(found, around) == said(found, around, risks=ALL_RISKS) == Rule.PATTERN
    assert f"--declare-key-lost {KEY1}" in refusal(found, around).hint
    assert said(found, alike(found, KeyCounts(opened=11, failed=10, damaged=9))) == GOES


def test_a_declaration_lifts_the_pattern_where_the_key_may_be_lost() -> None:
    """Where the value shows that its key is right, nobody can say that it is lost."""
    found, proven = broken(), broken(key_proven=True)
    counts = KeyCounts(opened=0, failed=2, damaged=1)
    assert said(found, alike(found, counts), declared=KEY1) == DECLARED
    assert said(found, declared=KEY1) == GOES
    counts = KeyCounts(opened=3, failed=12, damaged=1)
    error = refusal(proven, alike(proven, counts), risks=ALL_RISKS)
    assert (error.rule, "--declare-key-lost" in error.hint) == (Rule.PATTERN, False)
    assert said(proven, alike(proven, counts), declared=KEY1, risks=ALL_RISKS) == Rule.DECLARATION


def test_damage_in_numbers_has_its_own_word() -> None:
    found = broken()
    around = alike(found, KeyCounts(opened=3, failed=12, damaged=12))
    assert said(found, around) == said(found, around, risks=all_but(Rule.MASS_DAMAGE)) == Rule.MASS_DAMAGE
    assert refusal(found, around).hint.endswith("--accept mass-damage")
    assert said(found, around, risks=(Rule.MASS_DAMAGE,)) == GOES


def test_a_key_that_had_other_bytes_for_a_time() -> None:
    """Also where what opens lies between them."""
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY)
    for more in ({}, {"last_failing": 20, "last_opened": 30}):
        around = alike(found, KeyCounts(opened=30, failed=2, unexplained=2, **more))
        error = refusal(found, around, risks=ALL_RISKS)
        assert (error.rule, f"--declare-key-lost {KEY1}" in error.hint) == (Rule.PATTERN, True)
        risks = (Rule.UNPROVEN_DAMAGE,)
        assert said(found, around, declared=KEY1, risks=risks) == DECLARED
        assert said(found, around, declared=KEY1) == Rule.UNPROVEN_DAMAGE
    alone = alike(found, KeyCounts(opened=30, failed=2, damaged=1, unexplained=1))
    assert said(found, alone, risks=risks) == GOES


def test_a_plugin_that_was_not_asked_is_named() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY, not_asked="kms/v2/elsewhere")
    for counts in (KeyCounts(opened=30, failed=2, unexplained=2), KeyCounts(failed=2, unexplained=2)):
        hint = refusal(found, alike(found, counts), risks=ALL_RISKS).hint
        assert hint.startswith("the plugin of kms/v2/elsewhere did not answer whether it opens it")


def test_values_under_a_key_that_is_right_which_were_written_in_another_way_for_a_time() -> None:
    found = broken(Cause.CIPHERTEXT_DAMAGED, damage=Damage.LIKELY, key_proven=True)
    around = alike(found, KeyCounts(opened=30, failed=2, unfitting=2))
    assert said(found, around, risks=(Rule.UNPROVEN_DAMAGE,)) == Rule.MASS_DAMAGE
    assert said(found, around, risks=(Rule.MASS_DAMAGE,)) == Rule.UNPROVEN_DAMAGE
    assert said(found, around, risks=(Rule.UNPROVEN_DAMAGE, Rule.MASS_DAMAGE)) == GOES


def test_each_key_of_a_name_is_looked_at() -> None:
    found = broken(key_fingerprints=("fp:1", "fp:2"))
    good, bad = KeyCounts(opened=90, failed=1, damaged=1), KeyCounts(failed=2, damaged=1)
    assert said(found, alike(found, good, good)) == GOES
    assert said(found, alike(found, good, bad)) == said(found, alike(found, bad, good)) == Rule.PATTERN
    lost = broken(Cause.WRONG_KEY, key_fingerprints=("fp:1", "fp:2"))
    gone, used = (
        KeyCounts(failed=3, last_failing=28),
        KeyCounts(opened=5, failed=3, last_failing=28, last_opened=29),
    )
    assert said(lost, alike(lost, gone, gone), declared=KEY1) == DECLARED
    for counts in ((gone, used), (used, gone)):
        assert said(lost, alike(lost, *counts), declared=KEY1) == Rule.DECLARATION


def test_in_the_clear_there_is_no_key_to_declare() -> None:
    clear = {"outcome": Outcome.DECODE_FAILURE, "transformer": "identity", "rule": "", "key_fingerprints": ()}
    found = broken(Cause.PROTOBUF_DAMAGED, **clear)
    error = refusal(found, alike(found, KeyCounts(opened=1, failed=11, damaged=10)))
    assert (error.rule, "--declare-key-lost" in error.hint) == (Rule.PATTERN, False)
    assert said(found, declared="identity") == Rule.DECLARATION


# (c) What a newer cluster may have written.


NEWER: Final[dict[str, Any]] = {
    "cause": Cause.KIND_NOT_REGISTERED,
    "outcome": Outcome.DECODE_FAILURE,
    "maybe_newer": True,
}
OPENS = KeyCounts(opened=100, failed=1)


def test_what_may_be_newer_has_to_be_accepted() -> None:
    found = broken(**NEWER)
    around = alike(found, OPENS)
    for risks in ((), all_but(Rule.NEWER_THAN_KNOWN)):
        error = refusal(found, around, risks=risks)
        assert error.rule == Rule.NEWER_THAN_KNOWN
        assert error.hint.endswith("--accept newer-than-known")
    assert said(found, around, risks=(Rule.NEWER_THAN_KNOWN,)) == GOES


@pytest.mark.parametrize(
    ("failed", "read", "rule"),
    [
        (1, 0, GOES),
        (2, 0, Rule.FAILS_LIKE_OTHERS),
        (50, 1, GOES),
    ],
)
def test_where_a_whole_kind_fails_it_is_the_tool_and_no_flag_lifts_that(
    failed: int, read: int, rule: str
) -> None:
    found = broken(**NEWER)
    assert said(found, alike(found, OPENS, likes_failed=failed, likes_read=read), risks=ALL_RISKS) == rule
    # What is no matter of releases is not counted with its likes.
    assert said(broken(), alike(broken(), OPENS, likes_failed=failed, likes_read=read)) == GOES


SECRET = "/registry/secrets/shop/web"
CRD = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
WIDGET = "/registry/example.com/widgets/shop/w-1"


@pytest.mark.parametrize(
    ("key", "cause", "vouched"),
    [
        (SECRET, Cause.VERSION_REMOVED, True),
        (CRD, Cause.WRONG_KIND_FOR_KEY, True),
        *((SECRET, cause, False) for cause in (Cause.UNKNOWN_ENVELOPE, Cause.KIND_NOT_REGISTERED)),
        *((SECRET, cause, False) for cause in (Cause.CONVERSION_FAILED, Cause.MAGIC_DAMAGED)),
        # Kinds of custom resources stand in no table.
        (WIDGET, Cause.WRONG_KIND_FOR_KEY, False),
    ],
)
@pytest.mark.parametrize(("similar", "rule"), [(1, Rule.NEWER_THAN_KNOWN), (12, Rule.FAILS_LIKE_OTHERS)])
def test_the_nodes_vouch_for_what_our_tables_know(
    key: str, cause: Cause, vouched: bool, similar: int, rule: Rule
) -> None:
    found = broken(key=key, namespaced=key == WIDGET, **(NEWER | {"cause": cause}))
    around = alike(found, OPENS, likes_failed=similar)
    assert said(found, around, release_proven=True) == (GOES if vouched else rule)
    assert said(found, around, release_proven=False) == rule


def test_the_nodes_do_not_vouch_for_damage() -> None:
    found = broken(**(NEWER | {"cause": Cause.VERSION_REMOVED, "damage": Damage.LIKELY}))
    assert said(found, alike(found, OPENS), release_proven=True) == Rule.UNPROVEN_DAMAGE


# (d) Damage that is only likely or possible.


@pytest.mark.parametrize("damage", [Damage.LIKELY, Damage.POSSIBLE])
def test_damage_that_is_not_proven_has_to_be_accepted(damage: Damage) -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=damage)
    around = alike(found, KeyCounts(opened=100, failed=1))
    for risks in ((), all_but(Rule.UNPROVEN_DAMAGE)):
        error = refusal(found, around, risks=risks)
        assert error.rule == Rule.UNPROVEN_DAMAGE
        assert error.hint.startswith("with --kubeconfig FILE")
        assert error.hint.endswith("--accept unproven-damage")
    assert said(found, around, risks=(Rule.UNPROVEN_DAMAGE,)) == GOES
    if damage is Damage.POSSIBLE:
        # Another one fails under the same key, in another rule.
        around = alike(found, KeyCounts(opened=100, failed=1, unexplained=2))
        assert said(found, around, risks=ALL_RISKS) == Rule.PATTERN


def test_each_risk_lifts_its_own_rule_and_no_other() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY, maybe_newer=True)
    around = alike(found, KeyCounts(opened=100, failed=1))
    newer, unproven = Rule.NEWER_THAN_KNOWN, Rule.UNPROVEN_DAMAGE
    assert said(found, around, risks=(newer,)) == unproven
    assert said(found, around, risks=(unproven,)) == newer
    assert said(found, around, risks=(newer, unproven)) == GOES


# (e) What is declared lost.


def behind_plugin(cause: Cause = Cause.KMS_KEY_UNKNOWN, **settings: Any) -> Examination:
    kms: dict[str, Any] = {"transformer": "kms/v2/prov", "kms_key_id": "kek-1", "key_fingerprints": ()}
    return broken(cause, outcome=Outcome.UNDETERMINED, **(kms | settings))


@pytest.mark.parametrize("cause", [Cause.KMS_UNREACHABLE, Cause.KMS_KEY_UNKNOWN])
def test_a_kms_key_can_be_declared_lost_by_its_id(cause: Cause) -> None:
    found = behind_plugin(cause)
    around = alike(found, KeyCounts(undetermined=9), transformer_opens=True)
    assert said(found, around, risks=ALL_RISKS) == Rule.UNDETERMINED
    digest = f"kms/v2/prov/{found.kms_key_id_sha256}"
    for declared in (digest, "kms/v2/prov/kek-1"):
        assert said(found, around, declared=declared) == DECLARED
    error = refusal(found, around, declared="kms/v2/prov")
    assert (error.rule, error.hint) == (Rule.DECLARATION, f"it was written under {digest}")
    # A provider of which nothing opens can be declared lost as a whole, where it was asked.
    whole = said(found, alike(found, KeyCounts(undetermined=9)), declared="kms/v2/prov")
    assert whole == (Rule.DECLARATION if cause is Cause.KMS_UNREACHABLE else DECLARED)


def test_a_kms_key_that_is_there_under_another_name_is_not_lost() -> None:
    found = behind_plugin(fitting_key="kms/v2/other of configmaps")
    error = refusal(found, declared=f"kms/v2/prov/{found.kms_key_id_sha256}")
    assert error.rules == (Rule.UNDETERMINED, Rule.DECLARATION)
    assert "kms/v2/other of configmaps" in error.also[0].hint


@pytest.mark.parametrize(
    "declared",
    ["aesgcm/v1/key", "aesgcm/v1/key11", "aesgcm/v1/", f"{KEY1}/", "AESGCM/v1/key1", f" {KEY1}", "*"],
)
def test_a_declaration_names_the_transformer_exactly(declared: str) -> None:
    found = broken(Cause.WRONG_KEY)
    error = refusal(found, alike(found, KeyCounts(failed=5)), declared=declared)
    assert (error.rule, error.hint) == (Rule.DECLARATION, f"it was written under {KEY1}")
    unknown = broken(Cause.UNKNOWN_ENVELOPE, transformer="", key_fingerprints=(), maybe_newer=True)
    assert said(unknown, declared=declared) == Rule.DECLARATION


@pytest.mark.parametrize(
    ("last_failing", "last_opened", "holds"),
    [
        (0, 0, True),
        (28, 28, True),
        (28, 29, False),
        # It alone fails, and what came before it opens.
        (0, 49, False),
    ],
)
def test_a_key_that_opened_what_came_just_before_was_not_lost_then(
    last_failing: int, last_opened: int, *, holds: bool
) -> None:
    found = broken(Cause.WRONG_KEY)
    counts = KeyCounts(opened=5, failed=3, last_failing=last_failing, last_opened=last_opened)
    assert said(found, alike(found, counts), declared=KEY1) == (DECLARED if holds else Rule.DECLARATION)


def test_a_declaration_is_no_word_for_a_risk() -> None:
    found = broken(Cause.NONCE_DAMAGED, damage=Damage.LIKELY)
    around = alike(found, KeyCounts(opened=1, failed=12))
    assert said(found, around, declared=KEY1) == Rule.UNPROVEN_DAMAGE
    newer = broken(**NEWER)
    assert said(newer, alike(newer, OPENS, likes_failed=2), declared=KEY1) == Rule.FAILS_LIKE_OTHERS


# (f) What can be had back.


def test_a_whole_object_that_may_be_found_is_the_only_copy() -> None:
    """A repair comes before the declaration of a key."""
    found = broken(Cause.KEY_NAME_MISSING)
    repair = Repair(RepairKind.NAME, "one bit", RepairProof.NONE)
    assert said(msgspec.structs.replace(found, repair=repair)) == Rule.ONLY_COPY
    found = broken(Cause.JSON_DAMAGED, outcome=Outcome.DECODE_FAILURE, opened=True, holds_whole=True)
    error = refusal(found, risks=all_but(Rule.ONLY_COPY))
    assert (error.rule, "--accept only-copy" in error.hint) == (Rule.ONLY_COPY, True)
    assert said(found, risks=(Rule.ONLY_COPY,)) == GOES


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
