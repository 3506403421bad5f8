"""Compares what two trees said, key by key and field by field."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# Other on every run, or advice in words.
NOT_COMPARED = frozenset(
    {
        "at_stake", "auditID", "cause_page", "command", "content_sha256", "do_not_restart", "endpoint", "endpoints",
        "etcdfix.io/previous", "file_modified_at", "finished_at", "follow_ups", "generated_at", "next", "next_step",
        "note", "path", "remedies", "remedies_when_gone", "report", "tool",
    }
)  # fmt: skip
WORD_BY_WORD = frozenset({"evidence", "statuses", "upstream_message"})
"""Their texts stay word by word; of other texts with a blank in them it counts only that there is one."""
_NAMES = ("key_base64", "key", "cause", "name", "id")
"""Fields by which the entries of a list are told apart, where no two have the same."""
_ABSENT = "(none)"
_SHOWN = 5


def facts(value: Any, at: str = "", *, words: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield what has to stay of a JSON value: the path of each field and what stands there."""
    match value:
        case None:  # a field that is left out says the same
            return
        case dict():
            for name, part in value.items():
                if name not in NOT_COMPARED:
                    yield from facts(part, f"{at}.{name}", words=words or name in WORD_BY_WORD)
        case list() if at.endswith("accepted"):  # in the order of the options, or of the rules
            yield at, sorted(value)
        case list():
            names = _names_of(value)
            for name, part in zip(names, value, strict=True):
                yield from facts(part, f"{at}[{name}]", words=words)
            yield f"{at}#", len(value)
        case str() if value.startswith(("{", '["')):
            yield from facts(json.loads(value), at, words=words)
        case str() if re.search(r"\s", value) and not words:
            yield at, "*"
        case _:
            yield at, value


def _names_of(entries: list[Any]) -> list[str]:
    for name in _NAMES:
        found = [str(entry.get(name)) for entry in entries if isinstance(entry, dict)]
        if len(set(found)) == len(entries) and "None" not in found:
            return found
    return [str(number) for number in range(len(entries))]


@dataclass
class Group:
    """What a group of comparisons came to.

    Attributes:
        name: What is compared.
        compared: How many cases.
        differing: Those in which anything differs.
        differences: Each one: case, field, old and new.
    """

    name: str
    compared: int = 0
    differing: int = 0
    differences: list[tuple[str, str, Any, Any]] = field(default_factory=list)

    def compare(self, case: str, old: Any, new: Any) -> None:
        """Compare what two trees said of one case."""
        before, after = dict(facts(old)), dict(facts(new))
        found: dict[str, tuple[str, str, Any, Any]] = {}
        for at in sorted(before.keys() | after.keys()):
            then, now = before.get(at, _ABSENT), after.get(at, _ABSENT)
            if then != now:
                place = at if _ABSENT not in {then, now} else _whole(at, after if now == _ABSENT else before)
                found.setdefault(place, (case, place, then, now))
        real = [one for one in found.values() if not (_by_chance(one[2]) and _by_chance(one[3]))]
        self.compared += 1
        self.differing += bool(found)
        self.differences += real or found.values()

    def report(self, *, every: bool = False) -> str:
        """Return a line of numbers, and the differences: of each field the first ones, or every one."""
        lines = [f"{self.name}: {self.compared} compared, {self.compared - self.differing} equal"]
        counts: Counter[str] = Counter()
        for case, at, old, new in self.differences:
            kind = re.sub(r"\[.*?\](?=[.#\[]|$)", "[]", at)
            counts[kind] += 1
            if every or counts[kind] <= _SHOWN:
                lines.append(f"  {case}: {at.lstrip('.')}: {old!r} -> {new!r}")
        lines += [
            f"  {kind}: {count} in all" for kind, count in counts.items() if count > _SHOWN and not every
        ]
        return "\n".join(lines)


def _whole(at: str, others: dict[str, Any]) -> str:
    """Return the outermost place around a field that the other tree has nothing of."""
    places = [at[: match.start()] for match in re.finditer(r"[.#\[]", at)]
    return next((place for place in places if place and not any(o.startswith(place) for o in others)), at)


def _by_chance(value: Any) -> bool:
    """Say whether a value is a name for something made by chance: those count in the order in which they are met."""
    return re.search(r"<(sha256|id|file|value)-\d+>", str(value)) is not None
