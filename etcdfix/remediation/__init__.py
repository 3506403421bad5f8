"""What changes a cluster, and what must be on disk before it may: backups and the hash-chained audit log."""

from __future__ import annotations
