"""Where the options say that backups and the audit log go, and where copies are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from etcdfix.apiserver.servers import APIAccess, parse_server_url
from etcdfix.cli.options import FILE, audit_log_option, backup_dirs_option, option_group
from etcdfix.cli.output import say
from etcdfix.copies.finder import TO_LOOK_IN, Named, grammar, parse_named
from etcdfix.copies.model import Place
from etcdfix.remediation.audit.syslog import Syslog, parse_address
from etcdfix.remediation.places import RecordPaths

if TYPE_CHECKING:
    from etcdfix.copies.search import Places


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


server_options = option_group(
    click.option("--context", metavar="NAME", help="Context of the kubeconfig."),
    click.option(
        "--server", "servers", multiple=True, metavar="URL",
        help="Ask this API server too, with the same credentials (may be repeated).",
    ),
)  # fmt: skip
"""Which API servers of a kubeconfig to ask."""

where_else_options = option_group(
    in_option(),
    click.option(
        "--kubeconfig", type=FILE, metavar="FILE",
        help="Ask API servers, too, what they still hold in memory: names and revisions alone, no contents.",
    ),
    server_options,
    click.option(
        "--rescued", type=FILE, multiple=True, metavar="DIR",
        help="Look into what etcdfix rescue saved there, too (may be repeated).",
    ),
    backup_dirs_option(),
    audit_log_option(),
)  # fmt: skip
"""Where copies are looked for, our backups among them."""


def where_to_look(options: dict[str, Any]) -> Places:
    """Return where else to look, by the options of :data:`where_else_options`.

    Raises:
        ConfigurationError: They make no sense.
    """
    from etcdfix.copies.search import Places  # noqa: PLC0415 - few look for copies

    return Places(named=options["places"], rescued=options["rescued"], api=api_access(options))


def api_access(options: dict[str, Any]) -> APIAccess | None:
    """Return which API servers to ask, None for none.

    Raises:
        click.UsageError: Servers were named, and nothing says as whom to ask them.
        ConfigurationError: One of them is no address.
    """
    servers = tuple(parse_server_url(url) for url in options["servers"])
    if options["kubeconfig"] is None:
        if servers:
            raise click.UsageError("--server needs --kubeconfig: the credentials to ask with")
        return None
    return APIAccess(options["kubeconfig"], options["context"], servers)
