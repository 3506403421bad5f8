"""Every provider is whole: its row, its cipher, its place in the file format, and what others ask of them."""

from __future__ import annotations

import pytest

from etcdfix.encryption.candidates import body_offsets_of
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import KeyedProvider
from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.layout import envelope_layout
from etcdfix.encryption.providers import cipher_of, local_provider
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.looking import ends_inside_its_envelope
from etcdfix.examine.verdicts.damage import MEANING_OF_NOISE
from etcdfix.examine.verdicts.whole_inside import is_sealed
from etcdfix.model.model import Attempt
from etcdfix.model.providers import ENCRYPTING, PROVIDERS, ProviderFacts, ProviderType, facts_of
from tests.support.objects import configuration, configuration_of_rules, provider

ETCD_KEY = b"/registry/secrets/shop/web"
LOCAL = [facts for facts in PROVIDERS if facts.key_sizes]


def named(facts: ProviderFacts) -> str:
    return f"{facts.provider}-{facts.version}"


def test_every_provider_has_a_row() -> None:
    assert {facts.provider for facts in PROVIDERS} == set(ProviderType)


@pytest.mark.parametrize("facts", LOCAL, ids=named)
def test_every_local_provider_is_read_from_a_file(facts: ProviderFacts) -> None:
    key = bytes(range(facts.key_sizes[-1]))
    file = configuration_of_rules((("secrets",), (provider(str(facts.provider), k=key),)))
    (rule,) = parse_configuration(file, path="f").rules
    (found,) = rule.providers
    assert isinstance(found, KeyedProvider)
    assert (found.type, found.keys[0].material.expose()) == (facts.provider, key)


@pytest.mark.parametrize("facts", ENCRYPTING, ids=named)
def test_every_row_is_known_wherever_a_value_is_taken_apart(facts: ProviderFacts) -> None:
    value = facts.prefix + b"name:" + b"\xff" * 64
    envelope = parse_envelope(value)
    assert envelope is not None
    assert (envelope.known, envelope.facts, envelope.transformer) == (
        True,
        facts,
        named(facts).replace("-", "/") + "/name",
    )
    assert facts_of(envelope.transformer) is facts
    place = body_offsets_of(
        value[: envelope.body_offset + facts.least_size - 1], Transformers({}, frozenset())
    )
    assert place is not None
    assert place.too_short
    assert sum(part.length for part in envelope_layout(value)) == len(value)
    assert "unknown" not in {part.name for part in envelope_layout(value)[:4]}
    assert ends_inside_its_envelope(facts.prefix + b"na")
    assert is_sealed(value)
    assert facts.noise in MEANING_OF_NOISE


@pytest.mark.parametrize("facts", LOCAL, ids=named)
def test_a_cipher_does_what_its_row_says(facts: ProviderFacts) -> None:
    assert facts.provider is not None
    assert facts.no_key_error
    for size in facts.key_sizes:
        cipher = cipher_of(facts.provider, bytes(range(size)))
        assert (cipher.authenticated, cipher.bound) == (facts.authenticated, facts.bound)
        body = cipher.seal(b"", ETCD_KEY)
        assert len(body) == facts.least_size
        assert cipher.read(body, ETCD_KEY) == b""
        assert isinstance(cipher.read(body[:-1], ETCD_KEY), Attempt)
        assert isinstance(cipher.read(body, b"/other"), Attempt) == facts.bound
    parts = local_provider(facts.provider).PARTS
    assert [size for _, size in parts].count(0) == 1


@pytest.mark.parametrize("facts", LOCAL, ids=named)
def test_a_configuration_takes_every_key_of_a_row(facts: ProviderFacts) -> None:
    assert facts.provider is not None
    keys = {f"k{size}": bytes(range(size)) for size in facts.key_sizes}
    loaded = configuration(provider(str(facts.provider), **keys))
    assert [key.facts for rule in Transformers.from_configuration(loaded).rules for key in rule.keys] == [
        facts
    ] * len(keys)


def test_what_is_no_provider_has_a_row_that_promises_nothing() -> None:
    for transformer in ("", "unknown", "rot13/v1/key1", "aescbc/v9/key1"):
        facts = facts_of(transformer)
        assert (facts.provider, facts.authenticated, facts.bound, facts.under_kms) == (
            None,
            False,
            False,
            False,
        )
