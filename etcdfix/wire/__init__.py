"""Protobuf on the wire: varints, our own tables of message fields, and what turns those into classes."""

from __future__ import annotations
