"""Whether what a plan found out still holds: what was written since, and whether that matters to one value.

A plan is minutes old, and a cluster writes all the time. So before a deletion rests on it, the changes since its
revision are looked at, as a watch of the past tells them. Whatever matters, or cannot be told, means that everything
is looked at again; that costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from etcdfix.deferred import Deferrable, Examining
from etcdfix.errors import SourceError
from etcdfix.impact.builder import IndexBuilder
from etcdfix.impact.uses import SECRETS
from etcdfix.model import GroupResource, Outcome, StoredValue
from etcdfix.pipeline import Examiner
from etcdfix.remediation.pattern import Pattern, Tally, is_alike, marker_of
from etcdfix.sources.live import LiveSource
from etcdfix.verdicts.examination import Examination

_MOST_KEYS: Final = 50_000
_MOST_BYTES: Final = 64 << 20

_SECRETS: Final = GroupResource("", SECRETS)

# What lies in them is counted by the key alone, and no reference leads to them.
_HOLDING: Final = frozenset(
    {
        GroupResource("", "namespaces"),
        GroupResource("apiextensions.k8s.io", "customresourcedefinitions"),
    }
)
# They may name a Secret by a template that stands in an object which was not written since.
_BY_TEMPLATE: Final = frozenset(
    {
        GroupResource("", "persistentvolumeclaims"),
        GroupResource("storage.k8s.io", "storageclasses"),
        GroupResource("snapshot.storage.k8s.io", "volumesnapshots"),
        GroupResource("snapshot.storage.k8s.io", "volumesnapshotclasses"),
        GroupResource("snapshot.storage.k8s.io", "volumesnapshotcontents"),
    }
)


class Since(msgspec.Struct, frozen=True):
    """What was written between two revisions.

    Attributes:
        source: Where.
        examiner: Says what each value is.
        plugins: Behind the examiner; None where none is asked.
        since: Revision of the count.
        until: Revision of now.
        broken: Keys whose values were known not to open then.
    """

    source: LiveSource
    examiner: Examiner
    plugins: Deferrable | None
    since: int
    until: int
    broken: Collection[bytes] = ()

    def changed(self, target: Examination, pattern: Pattern) -> str:
        """Return why what was counted does not hold any more; "" where it holds.

        Args:
            target: The value in question, which was not written in between.
            pattern: As counted.
        """
        if target.directory.group_resource in _HOLDING:
            return "what lies in it is counted anew"
        if self.since > self.until:
            return f"it was made at revision {self.since}, and etcd stands at {self.until}"
        marker = marker_of(target, self._names)
        try:
            written, lost = self._changes(target.stored.key, marker)
        except SourceError as exc:
            return f"what was written since cannot be told: {exc.message}"
        if written is None:
            return "too much was written since"
        if _without(pattern.all, lost) or _without(pattern.same_key_id, lost):
            return "values that opened were deleted since, or written under another key"
        return self._matters(target, marker, written.values())

    @property
    def _names(self) -> Collection[str]:
        return self.examiner.transformers.names if self.examiner.transformers is not None else ()

    def _changes(self, key: bytes, marker: bytes) -> tuple[dict[bytes, StoredValue] | None, int]:
        """Return the newest value of every other key that was written, None if they are too many.

        And how many were written under the target's transformer before, and are not any more: those may have opened.
        """
        written: dict[bytes, StoredValue] = {}
        alike: dict[bytes, bool] = {}
        size = 0
        prefix = self.examiner.layout.prefix_bytes
        for before, now in self.source.changes(prefix, since=self.since, until=self.until):
            known = before if before is not None else now
            assert known is not None  # a change is from something or to something
            changed = known.key
            if changed == key:
                continue
            opened = before is not None and changed not in self.broken and is_alike(before, marker)
            alike.setdefault(changed, opened)
            replaced = written.pop(changed, None)
            size -= len(replaced.value) if replaced is not None else 0
            if now is not None:
                written[changed] = now
                size += len(now.value)
            if len(alike) > _MOST_KEYS or size > _MOST_BYTES:
                return None, 0
        lost = sum(
            then and not (changed in written and is_alike(written[changed], marker))
            for changed, then in alike.items()
        )
        return written, lost

    def _matters(self, target: Examination, marker: bytes, written: Iterable[StoredValue]) -> str:
        builder = IndexBuilder(self.examiner, self.source)
        builder.add(target)
        with Examining(self.examiner, self.plugins) as run:
            for part in (run.first(written), run.later()):
                for found in part:
                    builder.add(found)
                    text = _speaks_against(found, target, marker)
                    if text:
                        return text
        index = builder.finish(())
        node = index.find(target.stored.key)
        assert node is not None  # it was added
        if index.opaque or index.truncated:
            return "something was written since that cannot be looked into"
        if next(index.users(node), None) is not None:
            return "an object that refers to it was written since"
        if index.dependents(node):
            return "an object that it owns was written since"
        return ""


def _speaks_against(found: Examination, target: Examination, marker: bytes) -> str:
    """Return why one value that was written since makes everything be looked at again, "" where it does not."""
    resource = found.directory.group_resource
    if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
        return ""
    if found.verdict.outcome is not Outcome.READABLE:
        like = " under the same transformer" if is_alike(found.stored, marker) else ""
        return f"one of {resource}{like} was written since that does not open"
    if target.directory.group_resource == _SECRETS and resource in _BY_TEMPLATE:
        return f"one of {resource} was written since: a class may name the Secret for it"
    return ""


def _without(tally: Tally, lost: int) -> bool:
    """Say whether the count would say something else if so many fewer values opened."""
    left = msgspec.structs.replace(tally, opened=max(0, tally.opened - lost))
    return left.is_pattern is not tally.is_pattern or (not left.opened and bool(tally.opened))
