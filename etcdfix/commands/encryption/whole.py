"""What the passes over values share that report on encryption keys."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from etcdfix.commands.opening import nothing_examined
from etcdfix.encryption.config_model import parse_group_resource
from etcdfix.examine.all import Ending
from etcdfix.examine.one import Reading
from etcdfix.examine.verdicts.examination import KeyName
from etcdfix.examine.verdicts.plaintext import bits_off
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import ENCRYPTED_PREFIX
from etcdfix.model.storagekey import StorageLayout, display
from etcdfix.report.origin import shown_word
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.sources.base import Source
from etcdfix.text.commands import NO_COMMAND, Command

MAIN_NOT_READ: Final = "the main etcd was not read, but another one"
MOST_EXAMPLES: Final = 5
_FEW_BITS: Final = 4
R = TypeVar("R")


class DeploymentRequest(Reading, frozen=True, kw_only=True):
    """A question about all API servers of a cluster, which may have more than one etcd.

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


def why_not_whole(
    source: Source, layout: StorageLayout, ending: Ending, objects: int, *, everything: bool = True
) -> list[str]:
    """Return why a pass that saw so many objects did not see everything, or all of its scope."""
    problems = [*source.problems, *ending.problems, *ending.lost]
    if ending.ended is not None:
        problems.append(f"{ending.ended.reason} before the end")
    elif everything and not objects:
        raise nothing_examined(source, layout, problems)
    limited = source.describe().limited_to if everything else ""
    if limited:
        problems.append(f"permission denied: keys outside {limited} were not looked at")
    return problems


class ByKey(dict[KeyName, R]):
    """What is counted under each encryption key; under too many keys, the last is all others."""

    def of(self, name: KeyName, make: Callable[[KeyName], R]) -> R:
        """Return what is counted under a key, made where there is none yet."""
        if name not in self and len(self) >= MAX_NAMES:
            name = KeyName("", OTHERS, "")
        if name not in self:
            self[name] = make(name)
        return self[name]


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
