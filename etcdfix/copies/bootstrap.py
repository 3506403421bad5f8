"""Every value of k3s' and RKE2's bootstrap data that is still kept somewhere, and the configurations that they hold.

They are no Kubernetes objects: nothing is judged of them but whether a token opens them. Nobody is ever told the etcd
key of one, since it is made of the token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from etcdfix.copies.finder import Finder
from etcdfix.copies.log import Log
from etcdfix.copies.model import Sameness, Wanted
from etcdfix.encryption.bootstrap import (
    BOOTSTRAP_PREFIX,
    OpenedBootstrap,
    RecoveredFile,
    ServerToken,
    open_bootstrap,
)
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Confidence, GroupResource, digest_of
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions

# There is one, and after a rotation of the token two.
_MOST_KEYS: Final = 1000
# A server writes one when it starts, and for a rotation. Each costs some milliseconds for each token.
_MOST_VALUES: Final = 10_000
_SUREST: Final = (Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE)


class KeptValue(msgspec.Struct, frozen=True):
    """One value under a bootstrap key, and what became of it.

    Attributes:
        mod_revision: Its own; 0 where a log does not tell.
        sure: How sure it is that this datastore held it.
        doubt: Why that is not certain; "" where it is.
        current: It stands there now.
    """

    opened: OpenedBootstrap
    mod_revision: int
    sure: Confidence = Confidence.CERTAIN
    doubt: str = ""
    current: bool = False

    @property
    def newness(self) -> tuple[bool, bool, int]:
        """Orders by age. What nothing shows to be of this etcd comes before everything that is."""
        return self.current, self.sure is not Confidence.POSSIBLE, self.mod_revision


class Configuration(msgspec.Struct, frozen=True):
    """One configuration, and the values that hold it, the newest last."""

    held: list[KeptValue]

    @property
    def file(self) -> RecoveredFile:
        """The file, as the newest value has it."""
        file = self.held[-1].opened.file
        assert file is not None  # else it were not among these
        return file

    @property
    def surest(self) -> KeptValue:
        """The value which shows best that the configuration was kept here, of equals the newest."""
        return max(self.held, key=lambda kept: (-_SUREST.index(kept.sure), kept.newness))


class BootstrapValues(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        keys: How many etcd keys lie under the prefix now.
        values: Every value once, the oldest first; those that are only ``possible`` come before all others.
        problems: Why that is not everything, one sentence each.
    """

    keys: int
    values: list[KeptValue]
    problems: list[str]

    @property
    def configurations(self) -> list[Configuration]:
        """Each configuration once: the newest first, and last those that are only ``possible``."""
        found: dict[str, list[KeptValue]] = {}
        for kept in reversed(self.values):
            if kept.opened.file is not None:
                found.setdefault(kept.opened.file.sha256, []).insert(0, kept)
        return [*map(Configuration, found.values())]


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


def bootstrap_values(
    source: Source, finders: Sequence[Finder], tokens: Sequence[ServerToken]
) -> BootstrapValues:
    """Find and open every value: what stands under a bootstrap key, and what the finders have of it.

    A key of one of the tokens is looked for even where it was deleted, as a rotation of the token does. A write that
    etcd may have refused counts too, as ``possible``: what opens with a token, a server wrote.

    Raises:
        SourceError: Nothing can be read under the prefix.
    """
    standing = {stored.key: stored for stored in islice(source.current(BOOTSTRAP_PREFIX), _MOST_KEYS + 1)}
    problems: list[str] = []
    if len(standing) > _MOST_KEYS:
        problems.append(
            f"more than {_MOST_KEYS} keys lie under {BOOTSTRAP_PREFIX.decode()}: the rest was not looked at"
        )
    logged = [key for finder in finders if isinstance(finder, Log) for key in finder.keys(BOOTSTRAP_PREFIX)]
    found: dict[tuple[bytes, int, str], KeptValue] = {}
    for key in dict.fromkeys([*standing, *(token.etcd_key for token in tokens), *logged]):
        now = standing.get(key)
        if now is not None:
            opened, at = open_bootstrap(key, now.value, tokens), now.mod_revision
            found[key, at, digest_of(now.value)] = KeptValue(opened, at, current=True)
        for finder in finders:
            told, most = len(finder.problems), len(found) + _MOST_VALUES
            try:
                for value, at, sure, doubt in _values_in(finder, key):
                    # The value decides: a write whose revision was guessed, or one of before a restore, may have the
                    # same revision.
                    one = key, at, digest_of(value)
                    if one in found:
                        continue
                    if len(found) >= most:
                        problems.append(
                            f"more than {_MOST_VALUES} values are in {finder.name}: not all were looked at"
                        )
                        break
                    found[one] = KeptValue(open_bootstrap(key, value, tokens), at, sure, doubt)
                lost = len(finder.problems) > told
            except SourceError:
                lost = True
            if lost:  # not in its own words: they may name the key
                problems.append(f"not every value of a bootstrap key could be read in {finder.name}")
    values = sorted(found.values(), key=lambda kept: kept.newness)
    return BootstrapValues(keys=len(standing), values=values, problems=[*dict.fromkeys(problems)])


def _values_in(finder: Finder, key: bytes) -> Iterator[tuple[bytes, int, Confidence, str]]:
    """Yield what one place has of a key: the value, and the other fields of a :class:`KeptValue`."""
    if not finder.looked:  # it looks at the value itself
        return
    looked = finder.looked[0]
    if isinstance(finder, Log):
        for write in finder.writes(key):
            if write.value is not None:
                yield write.value, write.mod_revision or 0, write.confidence, write.doubt
        return
    sure = Confidence.CERTAIN if looked.history is Sameness.SAME else Confidence.POSSIBLE
    doubt = looked.detail if sure is not Confidence.CERTAIN else ""
    for copy in finder.find(Wanted(key=key, resource=GroupResource("", ""), every=True)):
        if copy.stored is not None:
            yield copy.stored.value, copy.mod_revision, sure, doubt
