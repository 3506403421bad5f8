"""A closer look at single findings of a scan: the bit that is wrong, earlier revisions, a damaged name."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Final

import msgspec

from etcdfix.copies.elsewhere import home_of
from etcdfix.copies.model import Home
from etcdfix.examine.claims import KEY_NAME_CHECK, PREDECESSOR_CHECK
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.readable_revision import ReadableRevisions, Sought
from etcdfix.examine.repair import unasked
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.examine.verdicts.kinds import MOST_KINDS
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Evidence
from etcdfix.model.storagekey import display
from etcdfix.report.compact import with_evidence
from etcdfix.report.model import DoubtfulNames
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
_READABLE_CHECK: Final = "earlier-revision"
_ENDED: Final = Sought(None, "the scan was ended early")


class CloserLook:
    """Looks closer at findings, within bounds.

    Attributes:
        readable: How many have an earlier revision that reads.
        not_sought: Of how many that was not looked for.
        doubtful_names: Keys whose own name may be damaged; None for none.
    """

    def __init__(self, source: Source, examiner: Examiner, request: Reading) -> None:
        self._source, self._examiner, self._prefix = source, examiner, request.layout.path()
        self._earlier = ReadableRevisions.of_many(source, examiner, live=not request.run.of_a_file)
        self._searched: Counter[KeyName] = Counter()
        self._predecessors_asked = self._homes_asked = 0
        self._trees: dict[bytes, bool] = {}
        self._with_told: dict[tuple[Verdict, Evidence], Verdict] = {}
        self.readable = self.not_sought = 0
        self.doubtful_names: DoubtfulNames | None = None

    def earlier(self, found: Examination, *, ended: bool) -> Sought:
        """Return the newest earlier revision that reads."""
        return _ENDED if ended else self._earlier.of(found)

    def told(self, found: Examination, sought: Sought) -> tuple[Examination, tuple[Evidence, ...]]:
        """Return the examination with what is said of it and of others alike, and what was seen of it alone."""
        own = self._warnings_of_name(found)
        seen = [
            e.detail
            for e in (*found.verdict.evidence, *own)
            if e.check in {KEY_NAME_CHECK, PREDECESSOR_CHECK}
        ]
        if seen:
            key = display(found.stored.key)
            before = self.doubtful_names or DoubtfulNames(0, key, seen[0])
            first = min((key, seen[0]), (before.first, before.detail))
            self.doubtful_names = DoubtfulNames(before.count + 1, *first)
        readable = sought.revision
        if readable is not None:
            self.readable += 1
            result = "readable" if readable.same_object else "readable, perhaps of another object"
            where = f"mod_revision {readable.mod_revision} is kept, and stands at revision {readable.at}"
            return found, (*own, Evidence(_READABLE_CHECK, result, where))
        if sought.not_sought:
            self.not_sought += 1
            why = f"{sought.not_sought}; etcdfix explain KEY looks"
            found = self._with_more(found, Evidence(_READABLE_CHECK, "not looked for", why))
        return found, own

    def home_of(self, found: Examination) -> Home:
        """Say what stands at the etcd key that a moved value belongs to."""
        if not found.verdict.belongs_to:
            return Home.FREE
        self._homes_asked += 1
        return (
            home_of(self._source, self._examiner, found) if self._homes_asked <= _MOST_HOMES else Home.TAKEN
        )

    def put_right(self, found: Examination) -> Examination:
        """Add the repair of a value that no tag protects: each bit is tried, so of few values, and none large."""
        size = self._examiner.cbc_size(found) if found.repair is None else 0
        if not size:
            return found
        keys = found.encryption_keys
        self._searched.update(keys)
        if size > _MOST_SEARCHED_SIZE or any(self._searched[key] > _MOST_SEARCHED for key in keys):
            return self._with_more(found, _NOT_SEARCHED)
        search = unasked(self._examiner.search_repair(found), found.verdict.cause)
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

    def _with_more(self, found: Examination, told: Evidence) -> Examination:
        """Add what is said of many: their verdicts stay one and the same."""
        place = found.verdict, told
        verdict = self._with_told.get(place)
        if verdict is None:
            verdict = with_evidence(found, (told,)).verdict
            if len(self._with_told) < MOST_KINDS:
                self._with_told[place] = verdict
        return msgspec.structs.replace(found, verdict=verdict)
