"""No example has a deadline: machines are slow at times, and the first draw may read a corpus."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("etcdfix", deadline=None)
settings.load_profile("etcdfix")
