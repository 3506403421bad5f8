"""Our own tables of message fields, and the one place that turns them into protobuf classes."""

from __future__ import annotations
