"""What every finder does, and how a person names a place: the words of ``--from`` and ``--in``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.copies.model import Copy, Place, Sameness, Wanted
from etcdfix.golang.goquote import go_quote, withheld
from etcdfix.model.closing import Closing
from etcdfix.model.errors import ConfigurationError, SourceError


class LookedInto(msgspec.Struct, frozen=True, kw_only=True):
    """A place that was looked into.

    Attributes:
        path: File, directory or address; "" for the datastore itself.
        searched: False where it could not be looked into.
        history: Whether its revisions are those of the datastore that is read.
        detail: Why that, or why it could not be looked into; "" for nothing.
    """

    place: Place
    path: str = ""
    searched: bool = True
    history: Sameness = Sameness.SAME
    detail: str = ""


class OtherHistory(SourceError):
    """Raised when nothing shows that a write-ahead log is of the history of what is stored now."""

    code = "other-history"


class Finder(Closing):
    """Looks for copies in one place. It only reads.

    Attributes:
        name: Of the place, for progress.
        looked: What it looked into; complete once every search is over.
        problems: Why not everything was seen, one sentence each.
    """

    name: str

    def __init__(self, *looked: LookedInto) -> None:
        self.looked: list[LookedInto] = [*looked]
        self.problems: list[str] = []

    @abstractmethod
    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the copies of an object, in any order.

        Raises:
            SourceError: The place cannot be read any more.
        """

    def close(self) -> None:
        """Let go of files and connections, where there are any."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A place as a person names it.

    Attributes:
        what: File, directory, revision or etcd key behind the colon; "" for none.
        entry: Raft index of an entry of a log; 0 for none.
    """

    place: Place
    what: str = ""
    entry: int = 0

    @property
    def path(self) -> Path:
        """The file or directory."""
        return Path(self.what)

    def __str__(self) -> str:
        entry = f"#{self.entry}" if self.entry else ""
        return f"{self.place}:{self.what}{entry}" if self.what else self.place.value


_BEHIND: Final = {
    Place.REVISION: "N",
    Place.KEY: "ETCDKEY",
    Place.LOG: "DIR[#ENTRY]",
    Place.SNAPSHOT: "FILE",
    Place.BACKUP: "FILE",
    Place.OBJECT: "FILE",
    Place.CANDIDATE: "FILE",
}
"""What stands behind the colon; ``bit`` and ``memory`` stand alone."""

TO_LOOK_IN: Final = (Place.LOG, Place.SNAPSHOT, Place.BACKUP, Place.OBJECT, Place.CANDIDATE)
"""What ``--in`` takes; the other places are looked into anyway, or follow from ``--kubeconfig``."""


_SHORTER_THAN_A_KEY: Final = 20
"""Somebody may have typed a key, which is not repeated."""


def grammar(places: Sequence[Place] = tuple(Place)) -> str:
    """Return the words that an option takes, for help and errors: ``bit | revision:N | …``."""
    return " | ".join(f"{place}:{_BEHIND[place]}" if place in _BEHIND else place.value for place in places)


def parse_named(word: str, places: Sequence[Place] = tuple(Place)) -> Named:
    """Return the place that a word names.

    Raises:
        ConfigurationError: It names none of these.
    """
    first, colon, what = word.partition(":")
    said = go_quote(word) if len(word) <= _SHORTER_THAN_A_KEY else withheld(word)
    if first not in [place.value for place in places]:
        raise ConfigurationError(f"{said} names no place", hint=f"it takes {grammar(places)}")
    place = Place(first)
    if bool(colon and what) != (place in _BEHIND):
        raise ConfigurationError(f"{said} is not complete", hint=f"write {grammar([place])}")
    entry = ""
    if place is Place.LOG and "#" in what:
        what, _, entry = what.rpartition("#")
    numbers = [
        *([what] if place is Place.REVISION else []),
        *([entry] if entry or word.endswith("#") else []),
    ]
    if any(not number.isascii() or not number.isdecimal() or int(number[:19]) < 1 for number in numbers):
        raise ConfigurationError(f"{said} needs a number from 1", hint=f"write {grammar([place])}")
    return Named(place=place, what=what, entry=int(entry or 0))
