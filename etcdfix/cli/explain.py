"""``etcdfix explain``: all that is known of one key, or what a cause means."""

from __future__ import annotations

from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.keys import is_key, wanted_object
from etcdfix.cli.look import (
    ExitCode,
    OpenLook,
    open_look,
    record_paths,
    refuse_unseen,
    report_place,
    where_to_look,
)
from etcdfix.cli.options import look_options, namespace_options, where_else_options
from etcdfix.cli.output import say
from etcdfix.commands.explain import ExplainRequest, explain_key
from etcdfix.commands.explaining.cause import cause_list, cause_page, named_cause
from etcdfix.commands.explaining.impact import POLICIES
from etcdfix.examine.scope import key_of, why_missing
from etcdfix.model.errors import ObjectNotFound
from etcdfix.model.scope import ObjectWord, ScopeRequest
from etcdfix.model.storagekey import StorageLayout, display
from etcdfix.report.explain import Shows


@click.command("explain", cls=Command)
@click.argument("word", metavar="[KEY|TYPE/NAME|CAUSE]", default="")
@click.option(
    "--history",
    is_flag=True,
    help="Show every write that etcd, the file or a log (--in log:DIR) still holds, and the fields that it changed.",
)
@click.option(
    "--impact",
    is_flag=True,
    help="Show who depends on the object, who uses it, and what is deleted with it.",
)
@click.option(
    "--policy", type=click.Choice(POLICIES, case_sensitive=False),
    help="With --impact: the propagation policy of the deletion.  [default: the one in progress, else background]",
)  # fmt: skip
@namespace_options
@where_else_options
@look_options()
def command(*, word: str, history: bool, impact: bool, policy: str | None, **options: Any) -> int:
    """Explain one key, or a cause. Reads only.

    Name an etcd key (/registry/secrets/shop/db), or TYPE/NAME as in kubectl (secret/db -n shop). The object may be
    deleted. You see what is wrong and why, every copy of the object, the best first, and every way out. With -o wide
    you also see the command for each copy, the layout of the bytes (never their contents), and every encryption key
    that was tried.

    A CAUSE is a word of a report, such as wrong-key: you see its page. Without a word you see the list of causes.
    """
    if not is_key(word) and "/" not in word:
        about = cause_page(named_cause(word)) if word else cause_list()
        with report_place(options, ()) as place:
            place.show(about)
        return ExitCode.NOTHING_WRONG
    if history and impact:
        raise click.UsageError("--history and --impact: ask for one at a time")
    if policy and not impact:
        raise click.UsageError("--policy goes with --impact")
    wanted, records, places = wanted_object(word, options), record_paths(options), where_to_look(options)
    scope = ScopeRequest((str(wanted),)) if isinstance(wanted, ObjectWord) else ScopeRequest(keys=(wanted,))
    with open_look(options, scope, each_from_its_own=impact, places=places.named) as look:
        if isinstance(wanted, ObjectWord):
            reading = look.inputs.reading(look.configuration)
            key = key_of(look.source, reading, wanted, look.plugins)
            say(f"{wanted} is {display(key)}")
        else:
            key = wanted
        request = ExplainRequest(
            **look.reading_fields(api=places.api, places=records),
            key=key,
            places=places,
            records=records,
            assess=impact or not look.inputs.overrides,
            shows=Shows.HISTORY if history else Shows.IMPACT if impact else Shows.ALL,
            policy=policy,
        )
        result = explain_key(look.source, request, candidates=look.candidates, **look.means)
        if result.report is None:
            refuse_unseen(display(key), result.problems, result.ended)
            raise _unknown(look, key)
        return look.tell(result.report, result.ended, request.run)


def _unknown(look: OpenLook, key: bytes) -> ObjectNotFound:
    at = f" at revision {look.inputs.revision}" if look.inputs.revision else ""
    kept = f"no revision of it{' before that' if at else ''} is kept"
    hint = why_missing(look.source, StorageLayout(look.inputs.etcd_prefix), key)
    return ObjectNotFound(f"nothing is stored under {display(key)}{at}, and {kept}", hint=hint)
