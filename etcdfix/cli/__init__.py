"""The thin skin: parse options, call one function, hand results to a reporter, map to an exit code."""

from __future__ import annotations
