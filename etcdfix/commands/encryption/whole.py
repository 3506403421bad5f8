"""What is known once everything in an etcd was looked at, for reports on its encryption keys."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec

from etcdfix.encryption.config_rules import parse_group_resource
from etcdfix.examine.all import Ending
from etcdfix.examine.one import Reading
from etcdfix.examine.verdicts.plaintext import bits_off
from etcdfix.model.errors import EndedEarly
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import ENCRYPTED_PREFIX
from etcdfix.model.storagekey import display, likely_prefixes
from etcdfix.report.origin import shown_word
from etcdfix.sources.base import Source
from etcdfix.text.commands import NO_COMMAND, Command

MAIN_NOT_READ: Final = "the main etcd was not read, but another one"
_SAMPLE: Final = 200
MOST_EXAMPLES: Final = 5
_FEW_BITS: Final = 4
R = TypeVar("R")


class DeploymentRequest(Reading, frozen=True, kw_only=True):
    """What is read is to answer for all API servers of a cluster, which may have more than one etcd.

    Attributes:
        overrides: Resources that have an etcd of their own, which is not read here, to its endpoints.
        main_not_read: Not the main etcd is read, but another one.
    """

    overrides: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    main_not_read: bool = False

    @property
    def unread_etcds(self) -> Iterator[tuple[GroupResource, str]]:
        """Each resource that has an etcd of its own, and a sentence that says so."""
        for resource, endpoints in self.overrides.items():
            said = f"the etcd of {shown_word(resource)} was not read: {shown_word(', '.join(endpoints))}"
            yield parse_group_resource(resource), said


class Whole(msgspec.Struct, frozen=True):
    """How one look at everything went.

    Attributes:
        below_prefix: Whether any object's key was seen below the storage prefix.
        problems: Why not everything was seen; empty where it was.
        ended: What ended the look early; None where nothing did.
        suggested_prefixes: Where Kubernetes' keys seem to be instead, when none lies below the prefix.
    """

    below_prefix: bool
    problems: tuple[str, ...]
    ended: EndedEarly | None
    suggested_prefixes: tuple[str, ...]

    @classmethod
    def of(cls, source: Source, ending: Ending, objects: int, *, everything: bool = True) -> Whole:
        """Return how a pass went that examined so many objects: of everything, or of a scope that may hold none."""
        problems = [*source.problems, *ending.problems, *ending.lost]
        if ending.ended is not None:
            problems.append(f"{ending.ended.reason} before the end")
        limited = source.describe().limited_to if everything else ""
        if limited:
            problems.append(f"permission denied: keys outside {limited} were not looked at")
        # What could not be read is not absent.
        sample = () if objects or problems or not everything else islice(source.current(b""), _SAMPLE)
        prefixes = tuple(likely_prefixes(stored.key for stored in sample))
        return cls(objects > 0 or not everything, tuple(problems), ending.ended, prefixes)

    def ended_by(self, exc: KeyboardInterrupt, when: str = "before the end") -> Whole:
        """Return the same for a look that was ended early once this pass was done."""
        ended = EndedEarly.of(exc)
        return msgspec.structs.replace(self, ended=ended, problems=(*self.problems, f"{ended.reason} {when}"))


class Looked(msgspec.Struct, Generic[R], frozen=True):
    """A report, and how the look at everything went."""

    report: R
    whole: Whole


def may_be_enveloped(value: bytes) -> bool:
    """Say whether a value that is no object begins as one does that an API server encrypted, or nearly so."""
    return bits_off(value, ENCRYPTED_PREFIX) <= _FEW_BITS


def keep_example(examples: list[str], key: bytes) -> None:
    """Keep an etcd key among the first few."""
    insort(examples, display(key))
    del examples[MOST_EXAMPLES:]


def write_again(resources: str) -> Command:
    """Return the command that has an API server write all objects of some resources again; none for ""."""
    words = ("kubectl", "get", resources, "-A", "-o", "json")
    return Command(words, feeds=("kubectl", "replace", "-f", "-")) if resources else NO_COMMAND
