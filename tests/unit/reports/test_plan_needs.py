from __future__ import annotations

import shlex

from etcdfix.reports.plan_needs import acceptance, declaration, meaning
from etcdfix.verdicts.standing import AcceptRisk

LOST = "aescbc/v1/lost"


def test_a_declaration_names_the_key_id_of_kms() -> None:
    assert declaration(LOST, "") == f"--declare-key-lost {LOST}"
    assert declaration("kms/v2/prov", "sha256:ab") == "--declare-key-lost kms/v2/prov/sha256:ab"
    assert shlex.split(declaration("aescbc/v1/a b;c", "")) == ["--declare-key-lost", "aescbc/v1/a b;c"]


def test_each_flag_says_something_else() -> None:
    assert "gone for ever" in meaning(declaration(LOST, ""))
    said = [meaning(acceptance(risk)) for risk in AcceptRisk]
    assert "the cluster itself" in meaning(acceptance(AcceptRisk.CLUSTER_BREAKING))
    assert len({*said, meaning(declaration(LOST, ""))}) == len(AcceptRisk) + 1
    assert acceptance(AcceptRisk.MASS_DAMAGE) == "--accept-risk mass-damage"
