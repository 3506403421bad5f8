"""``-o name``: one key a line, as every command takes it."""

from __future__ import annotations

from typing import Any

from etcdfix.model import Outcome
from etcdfix.report.render.rows import EndWriter
from etcdfix.text.safetext import WITHHELD, key_word


class NameWriter(EndWriter):
    """Writes the key of each finding; ``base64:`` and the encoded bytes where a key is not plain text."""

    def row(self, row: Any) -> None:
        """Write one key. Readable objects with a warning are left out: nothing has to be done about them."""
        if row.outcome != Outcome.READABLE:
            self._stream.write(f"{word_of(row)}\n".encode("utf-8", "backslashreplace"))


def word_of(finding: Any) -> str:
    """Return the word of a command line that names the key of a finding, or of another row of a report."""
    if finding.key_base64:
        return f"base64:{finding.key_base64}"
    key: str = finding.key
    return key if key.endswith(WITHHELD) else key_word(key.encode("utf-8", "surrogatepass"))
