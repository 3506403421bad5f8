"""Every value of k3s' and RKE2's bootstrap data that is still kept somewhere, and the configurations that they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from etcdfix.encryption.bootstrap import OpenedBootstrap, RecoveredFile, open_bootstrap
from etcdfix.encryption.server_token import BOOTSTRAP_PREFIX, ServerToken
from etcdfix.errors import SourceError
from etcdfix.model import Confidence
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions

# There is one, and after a rotation of the token two.
_MOST_KEYS: Final = 1000
# A server writes one when it starts, and for a rotation. Each costs some milliseconds for each token.
_MOST_VALUES: Final = 10_000
_SUREST: Final = (Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE)


class KeptValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value under a bootstrap key, and what became of it.

    Attributes:
        mod_revision: Its own; None where a log does not tell.
        log_index: Raft index of the entry of a write-ahead log that it comes from; None for one that etcd holds.
    """

    opened: OpenedBootstrap
    mod_revision: int | None
    current: bool = False
    log_index: int | None = None
    confidence: Confidence = Confidence.CERTAIN
    doubt: str = ""


class BootstrapValues(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        keys: How many etcd keys lie under the prefix now.
        values: Every value, those of each key from the oldest to the newest.
    """

    keys: int
    values: tuple[KeptValue, ...]
    problems: tuple[str, ...]

    @property
    def files(self) -> dict[str, RecoveredFile]:
        """Each configuration once, by its digest: the newest first, and last those that are only ``possible``."""
        holding = [(kept, kept.opened.file) for kept in self.values if kept.opened.file is not None]
        holding.sort(key=lambda pair: _newness(pair[0]), reverse=True)
        found: dict[str, RecoveredFile] = {}
        for _, file in holding:
            found.setdefault(file.sha256, file)
        return found

    def of(self, sha256: str) -> list[KeptValue]:
        """Return the values that hold one configuration, the newest last."""
        holding = [
            kept for kept in self.values if kept.opened.file is not None and kept.opened.file.sha256 == sha256
        ]
        return sorted(holding, key=_newness)

    def surest_of(self, sha256: str) -> KeptValue:
        """Return the value which shows best that one configuration was kept here, of equals the newest."""
        return max(self.of(sha256), key=lambda kept: (-_SUREST.index(kept.confidence), _newness(kept)))


def _newness(kept: KeptValue) -> tuple[bool, bool, int, int]:
    """Order by age. What nothing shows to be of this etcd comes before everything that is, whatever its revision."""
    shown = kept.confidence is not Confidence.POSSIBLE
    return kept.current, shown, kept.mod_revision or 0, kept.log_index or 0


class LoggedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a write-ahead log has of a bootstrap key; see :class:`KeptValue` for the rest."""

    etcd_key: bytes
    value: bytes
    mod_revision: int | None
    log_index: int
    confidence: Confidence
    doubt: str = ""


def with_what_it_keeps(run: RunOptions, source: Source) -> RunOptions:
    """Return the options with a note whether the source keeps a configuration of k3s or RKE2: remedies then say so."""
    if "--no-encryption" in run.reading:
        return run
    limited_to = source.describe().limited_to
    if limited_to and not display(BOOTSTRAP_PREFIX).startswith(limited_to):
        return run  # a refusal there would count as something in scope that was not seen
    try:
        kept = any(True for _ in source.current(BOOTSTRAP_PREFIX))
    except SourceError:  # nobody may read there, or what is wrong is told by whoever reads more
        return run
    return msgspec.structs.replace(run, keeps_configuration=kept)


def read_values(
    source: Source, tokens: Sequence[ServerToken], logged: Iterable[LoggedValue] = ()
) -> BootstrapValues:
    """Find and open every value: what stands under a bootstrap key, and what stood there before.

    A key of one of the tokens is looked for even where it was deleted, as a rotation of the token does.

    Raises:
        SourceError: Nothing can be read under the prefix.
    """
    standing = {stored.key: stored for stored in islice(source.current(BOOTSTRAP_PREFIX), _MOST_KEYS + 1)}
    problems: list[str] = []
    known: dict[tuple[bytes, int | None], bytes] = {}
    if len(standing) > _MOST_KEYS:
        problems.append(
            f"more than {_MOST_KEYS} keys lie under {BOOTSTRAP_PREFIX.decode()}: the rest was not looked at"
        )
    values: list[KeptValue] = []
    for etcd_key in dict.fromkeys([*standing, *(token.etcd_key for token in tokens)]):
        now = standing.get(etcd_key)
        at = now.mod_revision if now is not None else 0
        try:
            for kept in source.history(etcd_key):
                if kept.stored is None:
                    continue
                revision, value = kept.revision.main, kept.stored.value
                if len(values) >= _MOST_VALUES:
                    problems.append(
                        f"more than {_MOST_VALUES} values are kept: not all earlier ones were looked at"
                    )
                    break
                known[etcd_key, revision] = hashlib.sha256(value).digest()
                opened = open_bootstrap(etcd_key, value, tokens)
                values.append(KeptValue(opened=opened, mod_revision=revision, current=revision == at))
        except SourceError as problem:
            # Not its message: it may name the key.
            problems.append(f"the earlier values of a bootstrap key could not be read ({problem.code})")
        if now is not None and (etcd_key, at) not in known:
            known[etcd_key, at] = hashlib.sha256(now.value).digest()
            opened = open_bootstrap(etcd_key, now.value, tokens)
            values.append(KeptValue(opened=opened, mod_revision=at, current=True))
    # The value decides: a write whose revision was guessed, or one of before a restore, may have the same revision.
    new = [
        one
        for one in logged
        if known.get((one.etcd_key, one.mod_revision)) != hashlib.sha256(one.value).digest()
    ]
    if len(new) > _MOST_VALUES:
        problems.append(f"more than {_MOST_VALUES} values are in the log: the newest were looked at")
    values += (
        KeptValue(
            opened=open_bootstrap(one.etcd_key, one.value, tokens),
            mod_revision=one.mod_revision,
            log_index=one.log_index,
            confidence=one.confidence,
            doubt=one.doubt,
        )
        for one in new[-_MOST_VALUES:]
    )
    return BootstrapValues(keys=len(standing), values=tuple(values), problems=tuple(problems))
