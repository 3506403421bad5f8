"""Every value of k3s' and RKE2's bootstrap data that a datastore still keeps.

They are no Kubernetes objects: nothing is judged of them but whether a token opens them. Nobody is ever told the etcd
key of one, since it is made of the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from etcdfix.encryption.bootstrap import BOOTSTRAP_PREFIX, OpenedBootstrap, ServerToken, open_bootstrap
from etcdfix.model.errors import SourceError
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions

# There is one, and after a rotation of the token two.
_MOST_KEYS: Final = 1000
# A server writes one when it starts, and for a rotation. Each costs some milliseconds for each token.
_MOST_VALUES: Final = 10_000


class KeptValue(msgspec.Struct, frozen=True):
    """One value under a bootstrap key, and what a token makes of it; ``current``: it stands there now."""

    opened: OpenedBootstrap
    mod_revision: int
    current: bool


class BootstrapValues(msgspec.Struct, frozen=True, kw_only=True):
    """How many keys lie under the prefix now, every value with the oldest first, and what could not be read."""

    keys: int
    values: list[KeptValue]
    problems: list[str]


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


def bootstrap_values(source: Source, tokens: Sequence[ServerToken]) -> BootstrapValues:
    """Find and open every value that stands under a bootstrap key, or that is still kept of one.

    A key of one of the tokens is looked for even where it was deleted, as a rotation of the token does.

    Raises:
        SourceError: Nothing can be read under the prefix.
    """
    standing = {stored.key: stored for stored in islice(source.current(BOOTSTRAP_PREFIX), _MOST_KEYS + 1)}
    problems: list[str] = []
    if len(standing) > _MOST_KEYS:
        problems.append(
            f"more than {_MOST_KEYS} keys lie under {BOOTSTRAP_PREFIX.decode()}: the rest was not looked at"
        )
    values: list[KeptValue] = []
    for key in dict.fromkeys([*standing, *(token.etcd_key for token in tokens)]):
        now, told = standing.get(key), len(source.problems)
        stored = {now.mod_revision: now} if now is not None else {}
        try:
            kept = (one.stored for one in source.history(key) if one.stored is not None)
            stored |= {one.mod_revision: one for one in islice(kept, _MOST_VALUES + 1)}
            lost = len(source.problems) > told
        except SourceError:
            lost = True
        if lost:  # not in its own words: they may name the key
            problems.append("not every earlier value of a bootstrap key could be read")
        if len(stored) > _MOST_VALUES:
            problems.append(f"a bootstrap key has more than {_MOST_VALUES} values: not all were looked at")
        for at, one in stored.items():
            opened = open_bootstrap(key, one.value, tokens)
            values.append(KeptValue(opened, at, current=now is not None and at == now.mod_revision))
    values.sort(key=lambda one: (one.current, one.mod_revision))
    return BootstrapValues(keys=len(standing), values=values, problems=[*dict.fromkeys(problems)])
