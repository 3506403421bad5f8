"""Every provider is whole: its row, its cipher, its place in the file format, and what others ask of them."""

from __future__ import annotations

import pytest

from etcdfix.encryption.candidates import body_offsets_of
from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.layout import envelope_layout
from etcdfix.encryption.providers import cipher_of, local_provider
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.looking import ends_inside_its_envelope
from etcdfix.examine.verdicts.damage import MEANING_OF_NOISE
from etcdfix.examine.verdicts.whole_inside import is_sealed
from etcdfix.model.model import Attempt
from etcdfix.model.providers import ENCRYPTING, PROVIDERS, ProviderFacts, facts_of

ETCD_KEY = b"/registry/secrets/shop/web"
LOCAL = [facts for facts in PROVIDERS if facts.key_sizes]


def named(facts: ProviderFacts) -> str:
    return f"{facts.provider}-{facts.version}"


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
