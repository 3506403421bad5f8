"""The catalogue is whole: reference pages and schemas are made from it."""

from __future__ import annotations

import re

import pytest

from etcdfix.examine.verdicts import catalogue
from etcdfix.examine.verdicts.catalogue import CATALOGUE, CauseInfo
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Outcome

# Causes that the product's contract says a change of the configuration can cure, those of a lost key among them.
CURABLE = {
    "resource-not-configured", "provider-missing", "key-name-missing", "plaintext-not-allowed", "key-renamed",
    "wrong-key", "authentication-failed", "storage-prefix-changed", "associated-data-unknown",
    "crd-version-missing",
}  # fmt: skip


def test_every_cause_is_in_the_catalogue_once() -> None:
    listed = [info.cause for info in catalogue._CATALOGUE]
    assert sorted(listed) == sorted(Cause)
    assert set(CATALOGUE) == set(Cause)


def test_codes_are_unique_kebab_case() -> None:
    codes = [cause.value for cause in Cause]
    assert len(set(codes)) == len(codes) == len(Cause.__members__)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in codes)


@pytest.mark.parametrize("info", CATALOGUE.values(), ids=lambda i: i.cause)
def test_every_cause_explains_itself(info: CauseInfo) -> None:
    assert info.outcomes
    assert Outcome.NOT_AN_OBJECT not in info.outcomes
    assert 0 < len(info.title) <= 60
    for sentences in (info.meaning, info.proof):
        assert len(sentences) > len(info.title)
        assert sentences.endswith(".")
        assert "  " not in sentences


def test_titles_tell_causes_apart() -> None:
    titles = [info.title for info in CATALOGUE.values()]
    assert len(set(titles)) == len(titles)


def test_causes_that_the_configuration_cures() -> None:
    assert {c.value for c, info in CATALOGUE.items() if info.curable_by_configuration} == CURABLE
    assert {c.value for c in catalogue.CURABLE_BY_CONFIGURATION} == CURABLE


@pytest.mark.parametrize("info", CATALOGUE.values(), ids=lambda i: i.cause)
def test_what_configuration_cures_is_a_proven_failure(info: CauseInfo) -> None:
    if info.curable_by_configuration:
        assert set(info.outcomes) <= {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE}
