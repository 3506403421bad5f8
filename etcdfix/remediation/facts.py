"""A fact is found once, when somebody first asks for it; one that cannot be had is refused the same way each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Never, TypeVar

from etcdfix.model.errors import RefusedByRule

_T = TypeVar("_T")


class Facts:
    """Has facts: methods with :func:`fact` before them; ``step`` is told the name of each before it is found."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self.step = step
        self.known: dict[str, Any] = {}


class Fact(Generic[_T]):
    """A method that is called once."""

    def __init__(self, find: Callable[[Any], _T], label: str) -> None:
        self._find, self._label = find, label
        self.__doc__ = find.__doc__

    def __get__(self, having: Facts, _owner: object = None) -> _T:
        """Return what was found; raises RefusedByRule."""
        known, name = having.known, self._find.__name__
        if name not in known:
            if self._label:
                having.step(f"check: {self._label}")
            try:
                known[name] = self._find(having)
            except RefusedByRule as refusal:
                known[name] = refusal
        found: Any = known[name]
        if isinstance(found, RefusedByRule):
            raise found.with_traceback(None)
        return found  # type: ignore[no-any-return]


def fact(label: str = "") -> Callable[[Callable[[Any], _T]], Fact[_T]]:
    """Make a method a fact; ``label`` names the step that finds it out, "" for one that asks nobody."""
    return lambda find: Fact(find, label)


def must_be_had(*_facts: object) -> Iterator[Never]:
    """Yield nothing: one of these that cannot be had has refused by itself, when the call was made.

    No assertion stands in for this: an optimized Python leaves those out.
    """
    return iter(())
