"""Options that every change shares: reason, places, expectations, acceptances.

None of them has a variable: what was exported once must not decide tonight.
"""

from __future__ import annotations

import re
from typing import Any

import click

from etcdfix.cli.confirm import is_terminal
from etcdfix.cli.keys import is_base64, named_key
from etcdfix.cli.options import FILE, audit_log_option, backup_dirs_option, option_group
from etcdfix.cli.places import server_options, syslog_option
from etcdfix.errors import ConfigurationError
from etcdfix.remediation.audit.record import Result
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.rules import Rule, refuse
from etcdfix.scope import builtin_key, parse_object
from etcdfix.storagekey import DEFAULT_PREFIX, StorageLayout, display
from etcdfix.text.safetext import key_word, quote_command, safe_text

EXIT_CODES = {
    0: "done, or the dry run would be",
    2: "usage or configuration error",
    3: "outcome unknown or anomalous",
    4: "refused by a safety rule; nothing was changed",
    5: "etcd could not be asked; nothing was changed",
}
"""Of every command that changes something."""


reason_options = option_group(
    click.option("--reason", required=True, metavar="TEXT", help="Why; stands in the backup and in the audit log."),
    click.option("--dry-run", is_flag=True, help="Check everything, change nothing."),
)  # fmt: skip
"""Why, and whether at all."""

place_options = option_group(backup_dirs_option(), audit_log_option(), syslog_option)
"""Where a change is kept."""

access_options = option_group(
    click.option(
        "--kubeconfig", type=FILE, metavar="FILE",
        help="Ask the API servers of the cluster: whether they read the object (then nothing is changed), and whether "
        "you may: unsafe-delete-ignore-read-errors and delete.",
    ),
    server_options,
)  # fmt: skip
"""Of every change: which API servers are asked."""

change_options = option_group(
    reason_options,
    click.option("--yes", is_flag=True, help="Do not ask for the key to be typed back (for scripts)."),
    place_options,
    access_options,
)
"""Of every change."""


class _Digest(click.ParamType[str]):
    """A digest as reports have it; ``sha256:`` may be left out."""

    name = "digest"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as ``sha256:<hex>``."""
        digits = value.removeprefix("sha256:")
        if not re.fullmatch("[0-9a-f]{64}", digits):
            self.fail(f"{value!r} is no digest: sha256: and 64 hexadecimal digits", param, ctx)
        return f"sha256:{digits}"


DIGEST = _Digest()
"""Type of each option that expects a digest."""

expectation_options = option_group(
    click.option(
        "--expect-mod-revision", type=click.IntRange(min=1), metavar="N",
        help="Refuse unless the key stands at this mod_revision.",
    ),
    click.option(
        "--expect-value-sha256", type=DIGEST, metavar="sha256:HEX",
        help="Refuse unless the stored bytes have this digest.",
    ),
)  # fmt: skip
"""What is expected of the present value."""

CLUSTER_RULES = (Rule.NO_API_SERVER, Rule.UNKNOWN_CLUSTER, Rule.UNKNOWN_RELEASE, Rule.UNCHECKED_MEMBER)
"""What can be accepted of the cluster, by every change that etcdfix writes itself."""

REPLACING_RULES = (
    Rule.CLUSTER_BREAKING,
    Rule.UNPROVEN_DAMAGE,
    Rule.NEWER_THAN_KNOWN,
    Rule.MASS_DAMAGE,
    Rule.ONLY_COPY,
)
"""What can be accepted of a value that goes, or that another one replaces."""

DELETION_RULES = (*REPLACING_RULES, Rule.ENDS_CACHED_READS)
"""What can be accepted of a value that is deleted."""

key_lost_option = click.option(
    "--declare-key-lost", "key_lost", default="", metavar="TRANSFORMER[/KEY-ID]",
    help="Say that this key is gone for ever, so that what was written under it may be deleted.",
)  # fmt: skip
"""Declares an encryption key lost."""


def require_reason(options: dict[str, Any]) -> None:
    """Refuse an empty reason.

    Raises:
        click.UsageError: It says nothing.
    """
    if not str(options["reason"]).strip():
        raise click.UsageError("--reason is empty: say why, for the record")


def one_key(key: str, options: dict[str, Any]) -> bytes:
    """Return the key that was named, as it is or as ``base64:…``.

    Args:
        key: The word of the command line; TYPE/NAME is refused with the key to type, for a change takes nothing else.
        options: What click collected, the storage prefix among it.

    Raises:
        ConfigurationError: Not base64.
        RefusedByRule: It is no complete key.
    """
    if key in {"", "base64:"}:
        raise refuse(Rule.NOT_ONE_KEY, "the key is empty", hint="name exactly one key, in full")
    named = named_key(key)
    if is_base64(key):
        return named
    if not named.startswith(b"/"):
        raise refuse(
            Rule.NOT_ONE_KEY,
            f"{safe_text(display(named))} is no key: keys start with /",
            hint=_key_to_type(key, options),
        )
    if any(character in key for character in "*?[") or key.endswith("/"):
        raise refuse(
            Rule.NOT_ONE_KEY,
            f"{safe_text(display(named))} is a prefix or a pattern, not a key",
            hint="name exactly one key, in full; base64:… for a key that looks like one",
        )
    return named


def _key_to_type(word: str, options: dict[str, Any]) -> str:
    try:
        named = parse_object(word, "")
    except ConfigurationError:
        return "name exactly one key, in full"
    try:
        key = builtin_key(named, StorageLayout(options["etcd_prefix"] or DEFAULT_PREFIX))
    except ConfigurationError:
        explain = quote_command(["etcdfix", "explain", str(named), "-n", "NAMESPACE"])
        return f"a change takes the etcd key alone; {explain} says it"
    return f"a change takes the etcd key alone: {quote_command([key_word(key)])}"


def acceptances(options: dict[str, Any]) -> Acceptances:
    """Return what the flags expect and accept."""
    return Acceptances(
        expect_mod_revision=options.get("expect_mod_revision"),
        expect_value_sha256=options.get("expect_value_sha256") or "",
        words=tuple(dict.fromkeys(options["accepted_words"])),
        key_lost=options.get("key_lost") or "",
        at_terminal=is_terminal(),
    )


def change_exit_code(outcome: ChangeOutcome) -> int:
    """Map what became of a change to its exit code: 0 done (or it would be), 3 anything less certain."""
    done = {Result.DELETED, Result.FIXED, Result.UNDONE}
    return 0 if outcome.result in {None, *done} and outcome.certain else 3
