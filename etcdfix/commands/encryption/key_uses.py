"""Which encryption keys values count under, and of how many values that does not say which key they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from etcdfix.commands.encryption.whole import may_be_enveloped
from etcdfix.encryption.transformer import ResourceTransformers
from etcdfix.examine_all import View
from etcdfix.model import Outcome
from etcdfix.report.encryption import KeyUsage, key_fields
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.storagekey import ResourcePrefix, StorageCodec
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import FAILED, IDENTITY
from etcdfix.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.verdicts.plaintext import is_surely_unencrypted

EVERY_RULE: Final = "*"
_OTHER_KEYS: Final = KeyName("", OTHERS, "")
_ENVELOPE_UNSURE: Final = frozenset({Cause.UNKNOWN_ENVELOPE, Cause.ENVELOPE_DAMAGED, Cause.TEXT_MODE_DAMAGE})


class KeyUses:
    """Counts values under their encryption keys. Memory depends on keys in use, not on values."""

    def __init__(self, rules: Iterable[ResourceTransformers] = ()) -> None:
        self._configured = {(rule.rule or "", key.transformer) for rule in rules for key in rule.keys}
        self._transformers = {transformer for _rule, transformer in self._configured} - {IDENTITY}
        self.by_key: dict[KeyName, KeyUsage] = {}
        self.objects = 0
        self.undetermined = 0
        self.without_backup: list[Path] = []
        # The first in key order of which something is not written with today's write key.
        self.stale: ResourcePrefix | None = None
        # By rule: values of which it is not known which encryption key they need.
        self.unexplained: Counter[str] = Counter()

    def of(self, name: KeyName) -> KeyUsage:
        if name not in self.by_key:
            name = name if len(self.by_key) < MAX_NAMES else _OTHER_KEYS
            self.by_key.setdefault(name, KeyUsage(**key_fields(name)))
        return self.by_key[name]

    def take(self, found: Examination, _view: View) -> None:
        """Count a current value."""
        outcome = found.verdict.outcome
        if outcome is Outcome.NOT_AN_OBJECT:
            self.note(found)
            return
        self.objects += 1
        self.undetermined += outcome is Outcome.UNDETERMINED
        revision, stale = found.stored.mod_revision, found.stale and outcome is Outcome.READABLE
        for use in self._count(found.encryption_keys, found.directory, revision, revision, 1, stale=stale):
            use.failing += outcome in FAILED
            use.undetermined += outcome is Outcome.UNDETERMINED
        self.note(found)

    def take_plain(self, counts: Sequence[PlainCount]) -> None:
        """Count current values that are plain; which encryption key each needs is known."""
        for plain in counts:
            self.objects += plain.count
            names, reach = plain.encryption_keys, (plain.first, plain.last)
            self._count(names, plain.directory, *reach, plain.count, stale=plain.stale)

    def _count(
        self,
        names: Iterable[KeyName],
        directory: ResourcePrefix,
        first: int,
        last: int,
        count: int,
        *,
        stale: bool,
    ) -> list[KeyUsage]:
        if stale and (self.stale is None or directory.path < self.stale.path):
            self.stale = directory
        uses = [self.of(name) for name in names]
        for use in uses:
            use.objects += count
            use.stale += count if stale else 0
            use.first_mod_revision = min(first, use.first_mod_revision or first)
            use.last_mod_revision = max(last, use.last_mod_revision or last)
        return uses

    def note(self, found: Examination) -> None:
        """Remember where it is not known which encryption key a value needs."""
        if self._is_unexplained(found):
            unsure = found.directory.codec is StorageCodec.UNKNOWN or not found.rule
            elsewhere = found.verdict.cause is Cause.KEY_RENAMED or (
                not self.is_configured(found) and found.transformer in self._transformers
            )
            self.unexplained[EVERY_RULE if unsure or elsewhere else found.rule] += 1

    def is_configured(self, found: Examination) -> bool:
        return (found.rule, found.transformer) in self._configured

    def _is_unexplained(self, found: Examination) -> bool:
        """Say whether another encryption key than the one that it counts under may be what a value needs."""
        verdict = found.verdict
        if verdict.outcome is Outcome.NOT_AN_OBJECT:
            # Under another storage prefix, of an API server with the same keys.
            return may_be_enveloped(found.stored.value)
        if verdict.outcome not in FAILED and verdict.outcome is not Outcome.UNDETERMINED:
            return False
        if found.transformer == IDENTITY:  # stored unencrypted, or its envelope is damaged
            return not is_surely_unencrypted(found.stored.value)
        if verdict.outcome is Outcome.UNDETERMINED:
            return True
        return (
            verdict.damage is not Damage.PROVEN
            or verdict.cause in _ENVELOPE_UNSURE
            or not self.is_configured(found)
        )
