"""What a command came to: outputs that changes of the structure may not change.

Of JSON a text with a blank in it is free text, and ``*`` stands for it; a code, a key, a digest or a name stays, and so
does what API servers say. Of the text that a person reads the first lines stay, word for word. Stored outputs are
looked at and then accepted with::

    ETCDFIX_UPDATE_SNAPSHOTS=1 pytest tests/frozen
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import click

from etcdfix import __version__
from etcdfix.cli.root import cli
from etcdfix.model.errors import EtcdfixError

STORED = Path(__file__).parent / "stored"
UPDATE = os.environ.get("ETCDFIX_UPDATE_SNAPSHOTS") == "1"

# The words of API servers.
_UPSTREAM = frozenset({"statuses", "upstream_message"})
# Other on every run, or with every release of ours.
_VOLATILE = frozenset(
    {"generated_at", "finished_at", "tool", "endpoint", "report", "content_sha256", "file_modified_at"}
)
# Made of sentences.
_OF_WORDS = frozenset({"shared", "id"})
_BLANK = re.compile(r"\s")
_LONGEST_LINE = 120
_FIRST_LINES = 5
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_AGE = re.compile(r"(?<=\d   ) *(\d+[smhdy]){1,2}$")


def came_to(arguments: Sequence[str]) -> dict[str, Any]:
    """Run a command; return its exit code, and the words for why it was refused."""
    try:
        code: Any = cli.main(list(arguments), prog_name="etcdfix", standalone_mode=False)
    except click.ClickException as exc:
        return {"exit_code": exc.exit_code, "error": type(exc).__name__}
    except EtcdfixError as exc:
        refused = {name: str(value) for name in ("rule", "reason") if (value := getattr(exc, name, None))}
        return {"exit_code": exc.exit_code, "error": exc.code, **refused}
    return {"exit_code": code or 0}


def stripped(value: Any) -> Any:
    """Return JSON without free text, and without what differs from run to run."""
    if isinstance(value, dict):
        return {
            name: part
            if name in _UPSTREAM
            else "*"
            if name in _OF_WORDS and isinstance(part, str)
            else stripped(_in_order(name, part))
            for name, part in value.items()
            if name not in _VOLATILE
        }
    if isinstance(value, list):
        return [stripped(part) for part in value]
    if isinstance(value, str) and value.startswith(("{", '["')):
        return stripped(json.loads(value))
    if isinstance(value, str) and _BLANK.search(value):
        return "*"
    return value


def _in_order(name: str, part: Any) -> Any:
    """What waited for a KMS plugin comes later than the rest, and when it came is chance."""
    if name == "findings" and isinstance(part, list):
        return sorted(part, key=lambda finding: finding.get("key_base64") or finding["key"])
    return part


def in_order(objects: Any) -> Any:
    """Return a List of objects in the order of their names."""
    if isinstance(objects, dict) and isinstance(objects.get("items"), list):
        objects["items"].sort(key=lambda found: json.dumps(found.get("metadata"), sort_keys=True))
    return objects


def first_lines(text: str) -> list[str]:
    """Return the first lines of a text, without what differs from run to run, or with a release of ours."""
    lines = text.replace(f"etcdfix {__version__}", "etcdfix VERSION").splitlines()[:_FIRST_LINES]
    return [_AGE.sub("AGE", _TIME.sub("TIME", line)).rstrip() for line in lines]


class Chance:
    """Gives what is made by chance a name by the order in which it is met, equal things the same one.

    Args:
        known: Names of texts that are known before.
        base: Revision of etcd from which on revisions are counted.
    """

    _MADE = re.compile(
        r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z)"
        r"|(?P<id>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"
        r"|(?P<file>[0-9a-f]{16}-\d+-\d+-[0-9a-f]{16})"
        r"|(?P<sha256>(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f]))"
        r"|(?P<value>(?<![A-Za-z0-9+/])azhzOmVuYzph[A-Za-z0-9+/]+={0,2})"
        r"|(?P<address>(?<=https://)[\w.-]+:\d+)"
    )
    _REVISION = re.compile(r"revision|resourceVersion|created$|changed$|last_(failing|opened)")
    # Who runs the tests, and where.
    _ELSEWHERE = frozenset(
        {"cluster_id", "host", "etcdfix.io/host", "os_user", "etcdfix.io/os-user", "username", "userAgent"}
    )

    def __init__(self, known: dict[str, str], *, base: int) -> None:
        self._known = known
        self._base = base
        self._met: dict[tuple[str, str], str] = {}
        self._counts: dict[str, count[int]] = {}

    def without(self, value: Any, name: str = "") -> Any:
        """Return JSON with names for what chance has made; JSON in texts too."""
        if isinstance(value, dict):
            return {part: self.without(inner, part) for part, inner in value.items()}
        if isinstance(value, list):
            return [self.without(part, name) for part in value]
        if name in self._ELSEWHERE:
            return "<elsewhere>"
        if isinstance(value, int | str) and self._REVISION.search(name) and str(value).isdecimal():
            return f"+{int(value) - self._base}" if int(value) > self._base else value
        if isinstance(value, str):
            return self._named(value)
        return value

    def _named(self, text: str) -> str:
        for known, name in self._known.items():
            text = text.replace(known, name)
        return self._MADE.sub(self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        kind, found = str(match.lastgroup), match.group()
        if kind == "time":
            return "<time>"
        if (kind, found) not in self._met:
            number = next(self._counts.setdefault(kind, count(1)))
            self._met[kind, found] = f"<{kind}-{number}>"
        return self._met[kind, found]


def is_frozen(name: str, found: Any) -> None:
    """Assert that something is what was stored under a name."""
    path = STORED / f"{name}.json"
    text = f"{_lines(found)}\n"
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"{path.name}: something else than before"


def _lines(value: Any, indent: str = "") -> str:
    """Write JSON so that what belongs together stands on one line, where it fits."""
    short = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(short) <= _LONGEST_LINE or not isinstance(value, dict | list) or not value:
        return short
    deeper = f"{indent} "
    if isinstance(value, dict):
        parts = [f"{deeper}{json.dumps(name)}: {_lines(part, deeper)}" for name, part in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(f"{deeper}{_lines(part, deeper)}" for part in value) + f"\n{indent}]"
