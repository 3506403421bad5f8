"""What is known once everything in an etcd was looked at, for reports on its encryption keys."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from etcdfix.errors import EndedEarly
from etcdfix.examine import Reading
from etcdfix.examine_all import Ending
from etcdfix.sources.base import Source
from etcdfix.storagekey import likely_prefixes
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.words import counted

_SAMPLE = 200


class WholeRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is read and how.

    Attributes:
        same_again: Options that a command in a report must repeat.
    """

    same_again: RepeatedOptions = msgspec.field(default_factory=RepeatedOptions)


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """How one look at everything went.

    Attributes:
        below_prefix: Whether any object's key was seen below the storage prefix.
        problems: Why not everything was seen; empty where it was.
        ended: What ended the look early; None where nothing did.
        suggested_prefixes: Where Kubernetes' keys seem to be instead, when none lies below the prefix.
        limited_to: All that the etcd user may read, where everything was asked for; "" otherwise.
    """

    below_prefix: bool
    problems: tuple[str, ...]
    ended: EndedEarly | None
    suggested_prefixes: tuple[str, ...]
    limited_to: str = ""

    @classmethod
    def of(cls, source: Source, ending: Ending, objects: int, *, everything: bool = True) -> Whole:
        """Return how a pass went that examined so many objects: of everything, or of a scope that may hold none."""
        problems = [*source.problems, *ending.problems]
        if ending.ended is not None:
            problems.append(f"{ending.ended.reason} before the end")
        # What could not be read is not absent.
        sample = () if objects or problems or not everything else islice(source.current(b""), _SAMPLE)
        return cls(
            below_prefix=objects > 0 or not everything,
            problems=tuple(problems),
            ended=ending.ended,
            suggested_prefixes=tuple(likely_prefixes(stored.key for stored in sample)),
            limited_to=source.describe().limited_to if everything else "",
        )

    def incomplete_reasons(self, undetermined: int, others: Iterable[str] = ()) -> list[str]:
        """Return why a report is not everything."""
        reasons = [*self.problems, *others]
        if self.limited_to:
            reasons.append(f"permission denied: keys outside {self.limited_to} were not looked at")
        if undetermined:
            reasons.append(f"undetermined: {counted(undetermined, 'key')}")
        return reasons
