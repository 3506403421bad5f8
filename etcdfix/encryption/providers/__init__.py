"""The local providers: one module for each, and the arithmetic behind two of them."""

from __future__ import annotations

TOO_SHORT_ERROR = "the stored data was shorter than the required size"
