"""Colours for the words of a table that say how bad something is."""

from __future__ import annotations

import os
from typing import BinaryIO, Final, Literal

Mode = Literal["auto", "always", "never"]

_RED, _YELLOW, _GREEN, _MAGENTA = "31", "33", "32", "35"
_WORDS: Final = {
    "decrypt-failure": _RED,
    "decode-failure": _RED,
    "inconsistent": _YELLOW,
    "undetermined": _MAGENTA,
    "readable": _GREEN,
    "breaks-now": "1;31",
    "breaks-at-restart": "1;31",
    "one-object": _YELLOW,
}


class ColourChoice:
    """What ``--color`` says, for as long as a command runs.

    Attributes:
        mode: ``auto`` colours what is written to a terminal, unless ``NO_COLOR`` is set.
    """

    mode: Mode = "auto"


def is_coloured(stream: BinaryIO) -> bool:
    """Say whether what is written there gets colours."""
    if ColourChoice.mode != "auto":
        return ColourChoice.mode == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def painted(text: str, word: str) -> str:
    """Return a cell, or a part of one, in the colour of the word that the whole cell is; most have none."""
    colour = _WORDS.get(word)
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and text else text
