"""Where the options say that backups and the audit log go, and where copies are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import click

from etcdfix.cli.output import say
from etcdfix.copies.finder import TO_LOOK_IN, Named, grammar, parse_named
from etcdfix.copies.model import Place
from etcdfix.remediation.audit.syslog import Syslog, parse_address
from etcdfix.remediation.places import RecordPaths


def _syslog(context: click.Context, _parameter: click.Parameter, value: str | None) -> Syslog | None:
    if value is None:
        return None
    parse_address(value)
    syslog = Syslog(value)
    context.call_on_close(partial(_tell, syslog))  # however the command ends
    return syslog


def _tell(syslog: Syslog) -> None:
    if syslog.warning:
        with suppress(OSError):  # how the command ended is told by its exit code
            say(f"warning: {syslog.warning}")


syslog_option: Final = click.option(
    "--audit-syslog", "syslog", metavar="ADDRESS", callback=_syslog,
    help="Also send the number and hash of each audit record to syslog: /dev/log, or HOST:PORT with TCP. A syslog that "
    "cannot be reached stops nothing; a warning says so.",
)  # fmt: skip


def record_paths(options: dict[str, Any]) -> RecordPaths:
    """Return where backups and the audit log go; a directory that is named twice is one."""
    return RecordPaths(
        tuple(dict.fromkeys(path.absolute() for path in options.get("backup_dirs") or ())),
        options["audit_log"].absolute() if options.get("audit_log") is not None else None,
        syslog=options.get("syslog"),
    )


_WHAT: Final = {
    Place.LOG: "A log is a member's member/wal, live or copied, with snap/db beside it.",
    Place.CANDIDATE: "A candidate is an old EncryptionConfiguration, or that of another node.",
    Place.SNAPSHOT: "A snapshot may be a copied member/snap/db.",
}


def in_option(places: Sequence[Place] = TO_LOOK_IN) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return ``--in``, which names where copies are looked for besides; its value is a tuple of :class:`Named`."""

    def parse(
        _context: click.Context, _parameter: click.Parameter, words: Iterable[str]
    ) -> tuple[Named, ...]:
        return tuple(parse_named(word, places) for word in dict.fromkeys(words))

    return click.option(
        "--in", "places", multiple=True, metavar="PLACE", callback=parse,
        help=" ".join([
            f"Look there too (may be repeated): {grammar(places)}.", *(_WHAT[one] for one in places if one in _WHAT)
        ]),
    )  # fmt: skip
