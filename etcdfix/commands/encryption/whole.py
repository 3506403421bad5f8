"""What is known once everything in an etcd was looked at, for reports on its encryption keys."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec

from etcdfix.encryption.config_rules import parse_group_resource
from etcdfix.encryption.envelope import ENCRYPTED_PREFIX
from etcdfix.errors import EndedEarly
from etcdfix.examine import Reading
from etcdfix.examine_all import Ending
from etcdfix.model import GroupResource
from etcdfix.report.origin import shown_word
from etcdfix.sources.base import Source
from etcdfix.storagekey import display, likely_prefixes
from etcdfix.text.commands import NO_COMMAND, Command
from etcdfix.text.words import counted
from etcdfix.verdicts.plaintext import bits_off

_SAMPLE = 200
MOST_EXAMPLES = 5


class DeploymentRequest(Reading, frozen=True, kw_only=True):
    """What is read is to answer for all API servers of a cluster, which may have more than one etcd.

    Attributes:
        overrides: Resources that have an etcd of their own, which is not read here, to its endpoints.
        overrides_known: A manifest said which there are.
        main_not_read: Not the main etcd is read, but another one.
    """

    overrides: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    overrides_known: bool = False
    main_not_read: bool = False

    @property
    def unread_etcds(self) -> Iterator[tuple[GroupResource, str]]:
        """Each resource that has an etcd of its own, and a sentence that says so."""
        for resource, endpoints in self.overrides.items():
            said = f"the etcd of {shown_word(resource)} was not read: {shown_word(', '.join(endpoints))}"
            yield parse_group_resource(resource), said


MAIN_NOT_READ: Final = "the main etcd was not read, but another one"
_FEW_BITS: Final = 4


def may_be_enveloped(value: bytes) -> bool:
    """Say whether a value that is no object begins as one does that an API server encrypted, or nearly so."""
    return bits_off(value, ENCRYPTED_PREFIX) <= _FEW_BITS


def keep_example(examples: list[str], key: bytes) -> None:
    """Keep an etcd key among the first few."""
    shown = display(key)
    if len(examples) < MOST_EXAMPLES or shown < examples[-1]:
        insort(examples, shown)
        del examples[MOST_EXAMPLES:]


def write_again(resources: str) -> Command:
    """Return the command that has an API server write all objects of some resources again; none for ""."""
    words = ("kubectl", "get", resources, "-A", "-o", "json")
    return Command(words, feeds=("kubectl", "replace", "-f", "-")) if resources else NO_COMMAND


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
        problems = [*source.problems, *ending.problems, *ending.lost]
        if ending.ended is not None:
            problems.append(_before_the_end(ending.ended))
        # What could not be read is not absent.
        sample = () if objects or problems or not everything else islice(source.current(b""), _SAMPLE)
        return cls(
            below_prefix=objects > 0 or not everything,
            problems=tuple(problems),
            ended=ending.ended,
            suggested_prefixes=tuple(likely_prefixes(stored.key for stored in sample)),
            limited_to=source.describe().limited_to if everything else "",
        )

    def ended_by(self, ended: EndedEarly) -> Whole:
        """Return the same for a look that was ended early once this pass was done."""
        return msgspec.structs.replace(self, ended=ended, problems=(*self.problems, _before_the_end(ended)))

    def incomplete_reasons(self, undetermined: int, others: Iterable[str] = ()) -> list[str]:
        """Return why a report is not everything."""
        reasons = [*self.problems, *others]
        if self.limited_to:
            reasons.append(f"permission denied: keys outside {self.limited_to} were not looked at")
        if undetermined:
            reasons.append(f"undetermined: {counted(undetermined, 'key')}")
        return reasons


def _before_the_end(ended: EndedEarly) -> str:
    return f"{ended.reason} before the end"


R = TypeVar("R")


class Looked(msgspec.Struct, Generic[R], frozen=True):
    """A report, and how the look at everything went."""

    report: R
    whole: Whole
