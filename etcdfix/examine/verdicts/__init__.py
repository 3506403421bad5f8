"""From what was seen of a key to what it means: values in, values out."""

from __future__ import annotations
