"""Would a deletion end what API servers still hold of other objects?

A running API server keeps the objects of a kind in memory although the encryption key of their values is lost. It gives
all of them up as soon as etcd tells it of the deletion of a value that it cannot read. So no such value is deleted
while others of its kind are neither saved (``etcdfix rescue``) nor written anew.

A saved object counts where its digest is on the audit log, its file is unchanged, and its resourceVersion is the mod
revision at which the value stands now.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etcdfix.copies.rescued import is_whole, read_index
from etcdfix.examine.verdicts.deletability import Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import ClusterIdentity, StoredValue
from etcdfix.model.rules import Rule, unless_accepted
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.search import saved_digests
from etcdfix.remediation.facts import must_be_had
from etcdfix.text.commands import rescue
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present

_MOST_EXAMPLES: Final = 3


class UnsavedKin:
    """Other values of a kind whose encryption key is lost too, and that nobody saved.

    The pass over everything fills it. ``rescued`` is the directory of saved objects, None for no directory.
    Raises ConfigurationError or AuditLogUnreadable.
    """

    def __init__(
        self, target: Examination, rescued: Path | None, log: Path, cluster: ClusterIdentity
    ) -> None:
        self.count = 0
        self.examples: list[bytes] = []
        self._target, self._cluster = target, cluster
        self._directory = rescued or Path()
        self._objects = {} if rescued is None else read_index(rescued).by_key()
        self._digests = frozenset[str]() if rescued is None else saved_digests(log, "")

    def see(self, found: Examination) -> None:
        """Take one value."""
        target = self._target
        if (
            found.directory.group_resource == target.directory.group_resource
            and found.stored.key != target.stored.key
            and deletability_of(found) is Deletability.DECLARABLE
            and not self._is_saved(found.stored)
        ):
            self.count += 1
            if len(self.examples) < _MOST_EXAMPLES:
                self.examples.append(found.stored.key)

    def _is_saved(self, stored: StoredValue) -> bool:
        uid = self._cluster.uid
        return any(
            saved.resource_version == str(stored.mod_revision)
            and saved.sha256 in self._digests
            and (not uid or saved.cluster_uid in {"", uid})
            and is_whole(self._directory, saved)
            for saved in self._objects.get(stored.key, ())
        )


def ends_cached_reads(present: Present, change: Change) -> Iterator[RefusedByRule | str]:
    """Other objects with a lost key are saved: API servers forget them at this deletion."""
    yield from must_be_had(present.around)
    kin, resource = present.kin, present.first.directory.group_resource
    if not kin.count:
        return
    do = "does" if kin.count == 1 else "do"
    who = f"{counted(kin.count, 'other value')} of {resource} that {do} not open"
    ends = "API servers that still hold them in memory give all of them up with this deletion"
    if change.accepts(Rule.ENDS_CACHED_READS):
        yield f"{who}: {ends}"
        return
    names = ", ".join(map(display, kin.examples)) + (", …" if kin.count > len(kin.examples) else "")
    save = rescue([str(resource)]).line(change.request.run)
    hint = f"save them first, then name --rescued DIR here: {save}"
    yield unless_accepted(Rule.ENDS_CACHED_READS, f"{who} ({names}): {ends}", hint=hint)
