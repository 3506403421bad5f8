"""Where stored values come from: a snapshot file or a live etcd, behind one read-only protocol."""

from __future__ import annotations
