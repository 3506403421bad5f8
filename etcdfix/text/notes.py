"""Which sentences may be left out."""

from __future__ import annotations


class Note(str):
    """A sentence for standard error that ``--quiet`` leaves out: nothing is less safe, or less whole, for it."""

    __slots__ = ()
