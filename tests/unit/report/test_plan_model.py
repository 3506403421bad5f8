from __future__ import annotations

import shlex

from etcdfix.report.plan_model import declaration, meaning
from etcdfix.rules import MEANINGS, Rule, acceptance

LOST = "aescbc/v1/lost"


def test_a_declaration_names_the_key_id_of_kms() -> None:
    assert declaration(LOST, "") == f"--declare-key-lost {LOST}"
    assert declaration("kms/v2/prov", "sha256:ab") == "--declare-key-lost kms/v2/prov/sha256:ab"
    assert shlex.split(declaration("aescbc/v1/a b;c", "")) == ["--declare-key-lost", "aescbc/v1/a b;c"]


def test_each_flag_says_something_else() -> None:
    flags = [declaration(LOST, ""), *map(acceptance, MEANINGS)]
    assert len({meaning(flag) for flag in flags}) == len(flags)
    assert "gone for ever" in meaning(declaration(LOST, ""))
    assert "the cluster may depend on it" in meaning("--accept cluster-breaking")
    assert acceptance(Rule.NEWER_THAN_KNOWN) == "--accept newer-than-known"
