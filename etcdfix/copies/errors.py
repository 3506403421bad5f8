"""What keeps us from using a copy that was found."""

from __future__ import annotations

from etcdfix.model.errors import SourceError


class OtherHistory(SourceError):
    """Raised when nothing shows that a write-ahead log is of the history of what is stored now."""

    code = "other-history"
