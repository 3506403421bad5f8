"""May a value ever be deleted: what its verdict alone says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.examine.verdicts import catalogue
from etcdfix.examine.verdicts.catalogue import CATALOGUE
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import (
    FAILED,
    KMS_DOUBTS,
    LOST_KEY,
    Deletability,
    deletability_of,
    is_repairable,
    key_may_be_lost,
    protected_reason,
    risks_of,
)
from etcdfix.examine.verdicts.key_loss import KeyDoubt, Needed, needed_for
from etcdfix.model.model import Outcome, Repair, RepairKind, RepairProof
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout
from tests.support.examinations import examination

KEY = b"/registry/secrets/shop/web"


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        ({"outcome": Outcome.READABLE, "cause": None}, Deletability.NOT_BROKEN),
        ({"outcome": Outcome.INCONSISTENT, "cause": Cause.IDENTITY_MISMATCH}, Deletability.NOT_BROKEN),
        ({"outcome": Outcome.NOT_AN_OBJECT, "cause": None}, Deletability.NOT_BROKEN),
        ({"outcome": Outcome.UNDETERMINED, "cause": Cause.OWNER_UNKNOWN}, Deletability.UNPROVEN),
        ({"outcome": Outcome.UNDETERMINED, "cause": Cause.NO_CONFIGURATION}, Deletability.UNPROVEN),
        ({"outcome": Outcome.UNDETERMINED, "cause": Cause.KMS_KEY_UNKNOWN}, Deletability.DECLARABLE),
        ({"outcome": Outcome.UNDETERMINED, "cause": Cause.KMS_DENIED}, Deletability.DECLARABLE),
        ({"outcome": Outcome.UNDETERMINED, "cause": Cause.KMS_UNPROVEN}, Deletability.DECLARABLE),
        ({"cause": Cause.PROVIDER_MISSING}, Deletability.DECLARABLE),
        ({"cause": Cause.RESOURCE_NOT_CONFIGURED}, Deletability.DECLARABLE),
        ({"cause": Cause.KEY_NAME_MISSING}, Deletability.DECLARABLE),
        ({"cause": Cause.KEY_NAME_MISSING, "transformer": "identity"}, Deletability.CURABLE),
        ({"cause": Cause.KEY_NAME_MISSING, "transformer": ""}, Deletability.CURABLE),
        ({"cause": Cause.KEY_NAME_MISSING, "fitting_key": "aesgcm/v1/b of secrets"}, Deletability.CURABLE),
        ({"cause": Cause.WRONG_KEY}, Deletability.DECLARABLE),
        ({"cause": Cause.WRONG_KEY, "key_proven": True}, Deletability.CURABLE),
        ({"cause": Cause.AUTHENTICATION_FAILED}, Deletability.DECLARABLE),
        ({"cause": Cause.KEY_RENAMED}, Deletability.CURABLE),
        ({"cause": Cause.ASSOCIATED_DATA_UNKNOWN}, Deletability.CURABLE),
        ({"cause": Cause.STORAGE_PREFIX_CHANGED}, Deletability.CURABLE),
        ({"cause": Cause.PLAINTEXT_NOT_ALLOWED, "transformer": "identity"}, Deletability.CURABLE),
        # Not even damage lifts what the configuration can cure.
        ({"cause": Cause.KEY_RENAMED, "damage": Damage.PROVEN}, Deletability.CURABLE),
        ({"cause": Cause.VALUE_MOVED}, Deletability.MOVED),
        (
            {"outcome": Outcome.UNDETERMINED, "cause": Cause.KMS_UNREACHABLE, "transformer": "kms/v2/p"},
            Deletability.DECLARABLE,
        ),
        (
            {
                "outcome": Outcome.UNDETERMINED, "cause": Cause.KMS_UNPROVEN, "transformer": "kms/v2/p",
                "fitting_key": "kms/v2/other of secrets",
            },
            Deletability.UNPROVEN,
        ),
        ({"cause": Cause.VALUE_TRUNCATED}, Deletability.DELETABLE),
        ({"cause": Cause.NONCE_DAMAGED, "damage": Damage.LIKELY}, Deletability.DELETABLE),
        ({"cause": Cause.VALUE_TRUNCATED, "damage": Damage.NONE}, Deletability.NEVER),
        ({"outcome": Outcome.DECODE_FAILURE, "cause": Cause.DOUBLE_ENCRYPTED}, Deletability.NEVER),
        ({"outcome": Outcome.DECODE_FAILURE, "cause": Cause.ENVELOPE_DAMAGED}, Deletability.NEVER),
        ({"outcome": Outcome.DECODE_FAILURE, "cause": Cause.ALLOCATOR_DAMAGED}, Deletability.NEVER),
        ({"outcome": Outcome.DECODE_FAILURE, "cause": Cause.PROTOBUF_DAMAGED}, Deletability.DELETABLE),
    ],
)  # fmt: skip
def test_standing(change: dict[str, Any], standing: Deletability) -> None:
    assert deletability_of(examination(KEY, **change)) is standing


@pytest.mark.parametrize("cause", [info.cause for info in CATALOGUE.values()])
def test_every_cause_has_one(cause: Cause) -> None:
    for outcome in CATALOGUE[cause].outcomes:
        found = deletability_of(examination(KEY, outcome=outcome, cause=cause))
        assert (found is Deletability.NOT_BROKEN) == (outcome not in FAILED | {Outcome.UNDETERMINED})
        if outcome in FAILED and CATALOGUE[cause].curable_by_configuration:
            assert found is (Deletability.DECLARABLE if cause in LOST_KEY else Deletability.CURABLE)
        if cause in KMS_DOUBTS:
            assert found is Deletability.DECLARABLE


def test_a_loss_can_be_declared_for_what_the_configuration_could_cure_by_that_key() -> None:
    assert {cause for cause in LOST_KEY if not CATALOGUE[cause].curable_by_configuration} == set()


@pytest.mark.parametrize(
    ("change", "may"),
    [
        ({}, True),
        ({"transformer": "identity"}, False),
        ({"transformer": ""}, False),
        ({"fitting_key": "aesgcm/v1/b of secrets"}, False),
        ({"key_proven": True}, False),
        ({"cause": Cause.WRONG_KEY, "two_writers": True}, False),
    ],
)
def test_only_a_key_that_nothing_shows_to_be_there_can_be_declared_lost(
    change: dict[str, Any], *, may: bool
) -> None:
    assert key_may_be_lost(examination(KEY, **change)) is may


def test_a_key_that_could_not_be_asked_is_not_declared_lost() -> None:
    found = examination(KEY)
    verdict = msgspec.structs.replace(found.verdict, not_asked="kms/v2/other of configmaps")
    assert not key_may_be_lost(msgspec.structs.replace(found, verdict=verdict))


def test_of_what_is_never_deleted_no_copy_can_be_given_up() -> None:
    never = examination(
        KEY, outcome=Outcome.DECODE_FAILURE, cause=Cause.DOUBLE_ENCRYPTED, holds_whole=True, opened=True
    )
    assert deletability_of(never) is Deletability.NEVER
    assert risks_of(never) == ()


@pytest.mark.parametrize(
    ("change", "risks"),
    [
        ({"damage": Damage.PROVEN}, ()),
        ({"damage": Damage.LIKELY}, (Rule.UNPROVEN_DAMAGE,)),
        ({"damage": Damage.PROVEN, "maybe_newer": True}, (Rule.NEWER_THAN_KNOWN,)),
        ({"damage": Damage.LIKELY, "maybe_newer": True}, (Rule.UNPROVEN_DAMAGE, Rule.NEWER_THAN_KNOWN)),
    ],
)
def test_what_has_to_be_accepted(change: dict[str, Any], risks: tuple[Rule, ...]) -> None:
    assert risks_of(examination(KEY, cause=Cause.NONCE_DAMAGED, **change)) == risks


@pytest.mark.parametrize(
    ("repair", "repairable"),
    [
        (None, False),
        (Repair(RepairKind.BIT, "a bit", RepairProof.TAG), True),
        (Repair(RepairKind.TRAILING_BYTES, "the rest", RepairProof.DECODES), True),
        (Repair(RepairKind.TEXT_MODE, "CR LF", RepairProof.NONE), True),
        (Repair(RepairKind.PREFIX, "a bit", RepairProof.NONE), True),
        (Repair(RepairKind.NAME, "a bit", RepairProof.NONE), True),
        (Repair(RepairKind.BIT, "a bit", RepairProof.NONE), False),
    ],
)
def test_what_can_be_had_back_whole_is_the_only_copy(repair: Repair | None, repairable: bool) -> None:
    found = msgspec.structs.replace(examination(KEY, cause=Cause.CIPHERTEXT_DAMAGED), repair=repair)
    assert is_repairable(found) is repairable
    assert (Rule.ONLY_COPY in risks_of(found)) is repairable
    assert Rule.ONLY_COPY in risks_of(msgspec.structs.replace(found, keys_untried=True))
    lost = msgspec.structs.replace(examination(KEY, cause=Cause.KEY_NAME_MISSING), repair=repair)
    needed = needed_for(lost, {KeyDoubt.NONE})
    assert needed.declaration
    assert needed.risks == ((Rule.ONLY_COPY,) if repairable else ())


@pytest.mark.parametrize(
    ("change", "doubts", "needed"),
    [
        ({}, {KeyDoubt.NONE}, Needed()),
        ({}, {KeyDoubt.NONE, KeyDoubt.MASS_DAMAGE}, Needed(risks=(Rule.MASS_DAMAGE,))),
        ({}, {KeyDoubt.UNFITTING}, Needed(risks=(Rule.MASS_DAMAGE,))),
        ({}, {KeyDoubt.MASS_DAMAGE, KeyDoubt.MOST_FAIL}, Needed(declaration=True)),
        ({"key_proven": True}, {KeyDoubt.MOST_FAIL}, Needed(refused=True)),
        ({"cause": Cause.WRONG_KEY, "damage": Damage.LIKELY}, {KeyDoubt.NONE}, Needed(declaration=True)),
    ],
)
def test_what_others_under_the_key_ask_for(
    change: dict[str, Any], doubts: set[KeyDoubt], needed: Needed
) -> None:
    found = examination(KEY, **{"cause": Cause.NONCE_DAMAGED, "damage": Damage.PROVEN, **change})
    assert needed_for(found, doubts) == needed


# Causes that the product's contract says a change of the configuration can cure, those of a lost key among them.
CURABLE = {
    "resource-not-configured", "provider-missing", "key-name-missing", "plaintext-not-allowed", "key-renamed",
    "wrong-key", "authentication-failed", "storage-prefix-changed", "associated-data-unknown",
    "crd-version-missing",
}  # fmt: skip


def test_causes_that_the_configuration_cures() -> None:
    assert {c.value for c, info in CATALOGUE.items() if info.curable_by_configuration} == CURABLE
    assert {c.value for c in catalogue.CURABLE_BY_CONFIGURATION} == CURABLE


LAYOUT = StorageLayout()


@pytest.mark.parametrize(
    ("path", "namespace", "words"),
    [
        ("namespaces/shop", "", "namespaces are what the cluster depends on"),
        ("minions/node-1", "", "nodes are what"),
        ("persistentvolumes/pv", "", "persistentvolumes are what"),
        ("persistentvolumeclaims/shop/pvc", "shop", "persistentvolumeclaims are what"),
        (
            "apiextensions.k8s.io/customresourcedefinitions/a.b",
            "",
            "customresourcedefinitions.apiextensions.k8s.io",
        ),
        ("apiregistration.k8s.io/apiservices/v1.apps", "", "apiservices.apiregistration.k8s.io are"),
        ("clusterroles/admin", "", "clusterroles.rbac.authorization.k8s.io are"),
        ("roles/shop/admin", "shop", "roles.rbac.authorization.k8s.io are"),
        ("rolebindings/shop/admin", "shop", "rolebindings.rbac.authorization.k8s.io are"),
        ("clusterrolebindings/admin", "", "clusterrolebindings.rbac.authorization.k8s.io are"),
        ("flowschemas/exempt", "", "flowschemas.flowcontrol.apiserver.k8s.io are"),
        (
            "prioritylevelconfigurations/exempt",
            "",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io are",
        ),
        ("secrets/kube-system/token", "kube-system", "everything in kube-system"),
        ("example.com/widgets/kube-system/w", "kube-system", "everything in kube-system"),
        ("secrets/kube-systems/token", "kube-systems", ""),
        ("secrets/shop/web", "shop", ""),
        ("pods/shop/web", "shop", ""),
        ("example.com/namespaces/shop", "", ""),
    ],
)
def test_what_is_protected(path: str, namespace: str, words: str) -> None:
    directory, _ = LAYOUT.locate(f"/registry/{path}".encode())
    found = protected_reason(directory.group_resource, namespace)
    assert words in found
    assert bool(words) == bool(found)
