"""The catalogue is whole: reference pages and schemas are made from it."""

from __future__ import annotations

from etcdfix.examine.verdicts import catalogue
from etcdfix.examine.verdicts.catalogue import CATALOGUE

# Causes that the product's contract says a change of the configuration can cure, those of a lost key among them.
CURABLE = {
    "resource-not-configured", "provider-missing", "key-name-missing", "plaintext-not-allowed", "key-renamed",
    "wrong-key", "authentication-failed", "storage-prefix-changed", "associated-data-unknown",
    "crd-version-missing",
}  # fmt: skip


def test_causes_that_the_configuration_cures() -> None:
    assert {c.value for c, info in CATALOGUE.items() if info.curable_by_configuration} == CURABLE
    assert {c.value for c in catalogue.CURABLE_BY_CONFIGURATION} == CURABLE
