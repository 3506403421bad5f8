"""What a scan counts: by outcome, resource, cause, encryption key and KMS plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from etcdfix.model import Outcome


class Counts(msgspec.Struct, kw_only=True):
    """How many keys had which outcome. ``stale`` keys are readable ones too."""

    keys: int = 0
    readable: int = 0
    stale: int = 0
    decrypt_failures: int = 0
    decode_failures: int = 0
    inconsistent: int = 0
    undetermined: int = 0


COUNTED: Final[Mapping[str, str]] = {
    Outcome.DECRYPT_FAILURE: "decrypt_failures",
    Outcome.DECODE_FAILURE: "decode_failures",
    Outcome.INCONSISTENT: "inconsistent",
    Outcome.UNDETERMINED: "undetermined",
}
"""Field of the counts for each outcome of findings."""


class ResourceSummary(msgspec.Struct, kw_only=True):
    """Counts of one resource."""

    group: str
    resource: str
    keys: int = 0
    readable: int = 0
    stale: int = 0
    decrypt_failures: int = 0
    decode_failures: int = 0
    inconsistent: int = 0
    undetermined: int = 0


class CauseSummary(msgspec.Struct):
    """How often a cause was found, with the first key as an example."""

    cause: str
    outcome: str
    count: int
    example: str


class TransformerSummary(msgspec.Struct):
    """How many values were written under one encryption key of one rule, and what became of them.

    A key's name is local to its rule: one name in two rules gives two entries. ``resources`` are those of the rule,
    empty for none. ``key_fingerprint`` is null under KMS, unencrypted, and where no key of that name is configured.
    ``failures`` do not open or do not decode; of ``damaged`` it is proven that the value is wrong, not the key.
    """

    transformer: str
    resources: list[str]
    key_fingerprint: str | None
    keys: int
    failures: int
    damaged: int
    undetermined: int
    stale: int
    first_mod_revision: int
    last_mod_revision: int


class DoubtfulNames(msgspec.Struct, frozen=True):
    """Keys whose own name may be damaged: how many, the first of them, and what was seen of that."""

    count: int
    first: str
    detail: str


class KMSPluginSummary(msgspec.Struct, frozen=True):
    """What a KMS plugin did in this run.

    ``state`` is ``ok``, ``not-asked`` (no value needed it), ``no-socket``, ``unreachable``, ``socket-denied``,
    ``denied``, ``wrong-version``, ``unhealthy`` or ``gave-up`` (it stopped answering); ``message`` says more.
    ``calls`` are all requests, repeated ones included; ``unwrapped`` data keys came back, ``refused`` did not by the
    plugin's word, ``failed`` for want of an answer.
    """

    transformer: str
    endpoint: str
    state: str
    message: str
    calls: int
    unwrapped: int
    refused: int
    failed: int


class NewFindings(msgspec.Struct, frozen=True):
    """What a baseline did not know: keys that cannot be read, are inconsistent or undetermined.

    So many ``findings``, ``undetermined`` of them; ``first`` is the first of their keys, null where nothing is new.
    """

    findings: int
    undetermined: int
    first: str | None
