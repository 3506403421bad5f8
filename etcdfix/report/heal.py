"""The published shape of what a run of ``heal`` came to (``etcdfix/v1``, kind ``HealReport``)."""

from __future__ import annotations

import msgspec

from etcdfix.report.change import ChangedObject, RecordedReport
from etcdfix.report.document import Document


class HealedObject(ChangedObject, frozen=True, kw_only=True):
    """What became of one object that was to be healed; ``backups`` hold its unreadable bytes.

    Attributes:
        uid: Of the object.
        uid_from: What says the uid, where no API server gave the object from memory any more: a saved copy, an earlier
            revision in etcd, a backup; "" where an API server said it.
        server: The API server that wrote it; "" where none is known to have.
        changed_fields: Paths of the fields that admission changed; nothing of their values.
        saved_file: Where the server's answer was kept, beside what was rescued; "" where it was not.
    """

    uid: str
    uid_from: str = ""
    server: str = ""
    changed_fields: list[str] = msgspec.field(default_factory=list)
    saved_file: str = ""


class LeftAloneKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the report that is not healed.

    Attributes:
        key_base64: The key itself, where it is not plain text; else null.
        rule: In one word; ``readable`` where nothing needs to be done.
        why: One sentence.
        next_step: What to do instead, or "".
    """

    key: str
    key_base64: str | None
    rule: str
    why: str
    next_step: str


class HealReport(RecordedReport, frozen=True, kw_only=True):
    """What a run of ``heal`` came to.

    Attributes:
        objects: Those that were dealt with, in that order; what is healed stays healed where the run stopped later.
        left_alone: Keys that were named and need something else, or nothing.
        to_heal: How many were to be healed, without those that somebody else healed meanwhile; null where it did not
            come that far.
    """

    kind: str = "HealReport"
    objects: list[HealedObject]
    left_alone: list[LeftAloneKey]
    to_heal: int | None = None

    def document(self) -> Document:
        """Return how many were healed; each object was told when its turn came."""
        done = sum(each.result in {"healed", "dry-run"} for each in self.objects)
        headline = f"{'Would heal' if self.dry_run else 'Healed'} {done} of {self.to_heal or 0}."
        on = "What is healed stays healed. Run the same again to go on, once the reason is gone."
        return self.recorded(headline, stakes=[on] if done < (self.to_heal or 0) else [])
