"""A closer look at single findings of a scan: the bit that is wrong, earlier revisions, a damaged name."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Final

import msgspec

from etcdfix.copies.model import Home
from etcdfix.copies.value import home_of
from etcdfix.examine.claims import KEY_NAME_CHECK, PREDECESSOR_CHECK
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.readable_revision import ReadableRevisions, RevisionSearch
from etcdfix.examine.repair import without_doubtful_prefix
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Evidence
from etcdfix.sources.base import Source

# Causes of a value that may lie under a name that is not its own.
_NAME_IN_DOUBT: Final = frozenset(
    {
        Cause.IDENTITY_MISMATCH,
        Cause.VALUE_MOVED,
        Cause.ASSOCIATED_DATA_UNKNOWN,
        Cause.AUTHENTICATION_FAILED,
        Cause.OWNER_UNKNOWN,
    }
)
# Each is a question to etcd; of many keys in one state, these tell enough.
_MOST_PREDECESSORS = _MOST_HOMES = 1000
_MOST_SEARCHED: Final = 16
"""So many values of one encryption key are searched for a bit that no tag proves; one can take a second."""
_MOST_SEARCHED_SIZE: Final = 4 << 10
_NOT_SEARCHED: Final = Evidence(
    "repair", "not looked for", "etcdfix explain KEY tries to put back each bit of it"
)
EARLIER_CHECK: Final = "earlier-revision"
ENDED: Final = RevisionSearch(None, "the scan was ended early")


def with_evidence(found: Examination, more: tuple[Evidence, ...]) -> Examination:
    """Return an examination with further evidence."""
    if not more:
        return found
    verdict = msgspec.structs.replace(found.verdict, evidence=(*found.verdict.evidence, *more))
    return msgspec.structs.replace(found, verdict=verdict)


class CloserLook:
    """Looks closer at findings, within bounds."""

    def __init__(self, source: Source, examiner: Examiner, request: Reading) -> None:
        self._source, self._examiner, self._prefix = source, examiner, request.layout.path()
        self.earlier = ReadableRevisions.of_many(source, examiner, live=not request.run.of_a_file).of
        self._searched: Counter[KeyName] = Counter()
        self._predecessors_asked = self._homes_asked = 0
        self._trees = {self._prefix: False}

    def evidence_of(self, found: Examination, sought: RevisionSearch) -> tuple[Evidence, ...]:
        """Return what the name of the key and its earlier revisions show."""
        own = self._warnings_of_name(found)
        if (readable := sought.revision) is not None:
            result = "readable" if readable.same_object else "readable, perhaps of another object"
            where = f"mod_revision {readable.mod_revision} is kept, and stands at revision {readable.at}"
            return (*own, Evidence(EARLIER_CHECK, result, where))
        if sought.not_sought:
            why = f"{sought.not_sought}; etcdfix explain KEY looks"
            return (*own, Evidence(EARLIER_CHECK, "not looked for", why))
        return own

    def home_of(self, found: Examination) -> Home:
        """Say what stands at the etcd key that a moved value belongs to."""
        if not found.verdict.belongs_to:
            return Home.FREE
        self._homes_asked += 1
        if self._homes_asked > _MOST_HOMES:
            return Home.TAKEN
        return home_of(self._source, self._examiner, found)

    def put_right(self, found: Examination) -> Examination:
        """Add the repair of a value that no tag protects: each bit is tried, so of few values, and none large."""
        size = self._examiner.closer.cbc_size(found) if found.repair is None else 0
        if not size:
            return found
        keys = found.encryption_keys
        self._searched.update(keys)
        if size > _MOST_SEARCHED_SIZE or any(self._searched[key] > _MOST_SEARCHED for key in keys):
            return with_evidence(found, (_NOT_SEARCHED,))
        search = without_doubtful_prefix(self._examiner.closer.search_repair(found), found.verdict.cause)
        return msgspec.structs.replace(found, repair=search.repair)

    def without_neighbour(self, found: Examination) -> Examination:
        """Take the warning from a key of a tree of its own: another cluster's prefix may be one bit away from ours."""
        start = found.stored.key[: len(self._prefix)]
        if start not in self._trees:
            try:
                with self._source.aside():  # pages further on may have been read already
                    self._trees[start] = len(list(islice(self._source.current(start), 2))) > 1
            except SourceError:  # the scan itself says what it cannot read
                self._trees[start] = True
        if not self._trees[start]:
            return found
        return msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, evidence=()))

    def _warnings_of_name(self, found: Examination) -> tuple[Evidence, ...]:
        """Warn of a key whose name nothing bears out: it should have been changed before, and was not."""
        verdict, version = found.verdict, found.stored.version
        doubtful = verdict.cause in _NAME_IN_DOUBT or any(e.check == KEY_NAME_CHECK for e in verdict.evidence)
        if version == 1 or not doubtful or self._predecessors_asked >= _MOST_PREDECESSORS:
            return ()
        self._predecessors_asked += 1
        try:
            if not self._source.lacks_predecessor(found.stored):
                return ()
        except SourceError:  # as above
            return ()
        why = (
            f"version {version or 'unknown'}, and nothing stood under this name before mod_revision "
            f"{found.stored.mod_revision}: the name of the key itself may be damaged"
        )
        return (Evidence(PREDECESSOR_CHECK, "missing", why),)
