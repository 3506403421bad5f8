"""What a restore from elsewhere must say of the value that stands at its key now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from etcdfix.report.advice.ways import risks_to_accept
from etcdfix.rules import Rule
from etcdfix.text.commands import RunOptions
from etcdfix.verdicts.deletability import Deletability, deletability_of
from etcdfix.verdicts.examination import Examination


class Replacing(NamedTuple):
    """What a restore replaces: its mod_revision, 0 for nothing, None where it may not be; what it accepts; a note."""

    mod_revision: int | None
    accepting: Sequence[Rule] = ()
    note: str = ""


def replacing(found: Examination | None, run: RunOptions) -> Replacing:
    """Return what a restore must say of the present value."""
    if run.of_the_past:
        return Replacing(
            0,
            note="On the live etcd, where the etcd key must be absent; --replace-mod-revision N replaces a value there "
            "that may be deleted.",
        )
    if found is None:
        return Replacing(0)
    match deletability_of(found):
        case Deletability.DELETABLE:
            note = "What is there now is backed up first."
        case Deletability.DECLARABLE:
            note = (
                "It is refused until the encryption key of the present value is declared lost (--declare-key-lost): "
                "look first what API servers still hold, which is newer."
            )
        case Deletability.NOT_BROKEN:
            outcome = found.verdict.outcome
            return Replacing(
                None, note=f"The present value is {outcome}: what differs is changed through the API."
            )
        case _:
            return Replacing(None, note="The present value may not be replaced as things are: save this one.")
    return Replacing(found.stored.mod_revision, risks_to_accept(found), note)
