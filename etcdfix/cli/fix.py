"""``etcdfix fix``: put the best copy of an object back, or a named one, guarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.accepting import accept_option
from etcdfix.cli.changing import etcd_options, open_change, present_value_options
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import FILE, kine_option
from etcdfix.cli.output import show_preview
from etcdfix.cli.places import in_option
from etcdfix.cli.safety import CLUSTER_RULES, EXIT_CODES, REPLACING_RULES, key_lost_option, one_key
from etcdfix.commands.fix import run_fix
from etcdfix.copies.finder import Named, grammar, parse_named
from etcdfix.copies.model import Place
from etcdfix.copies.search import Places
from etcdfix.operations.change.preview import fix_preview, memory_preview
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.choice import FixRequest
from etcdfix.rules import Rule


@click.command("fix", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("key")
@click.option("--from", "source", metavar="PLACE", help=f"Put this copy back: {grammar()}.")
@in_option()
@click.option(
    "--rescued", type=FILE, metavar="DIR",
    help="Look into what etcdfix rescue has saved, too; --from memory needs it.",
)  # fmt: skip
@present_value_options
@accept_option(
    *REPLACING_RULES,
    Rule.UNPROVEN_REPAIR,
    Rule.UNKNOWN_UID,
    Rule.UNLISTED_SOURCE,
    Rule.UNDEPLOYED_WRITE_KEY,
    Rule.EXPIRED_LEASE,
    Rule.OTHER_CLUSTER_ID,
    Rule.UNCHECKED_SERVER,
    *CLUSTER_RULES,
)
@key_lost_option
@kine_option
@etcd_options
def command(
    *, key: str, source: str | None, places: tuple[Named, ...], rescued: Path | None, **options: Any
) -> int:
    """Put a good copy of an object back where its value cannot be read, or is gone.

    Without --from it takes the best copy that is proven and that no rule refuses: the value with one bit put right, an
    earlier revision, what --in names. It says which one and why, and backs up what it replaces. A value that reads is
    never replaced. Where the key is absent, --from says which copy comes back. etcdfix explain KEY lists every copy.

    With --from memory an API server that has run since before the encryption key was lost writes the object anew under
    today's key, same uid, same data: one PATCH that sets an annotation, the only change through the API. All of its
    kind must be saved first (etcdfix rescue), no server may read it, and afterwards every server must. Restart none
    meanwhile. Its kubeconfig's user needs get and patch. --kine FILE works for this way alone.
    """
    named = parse_named(source) if source is not None else None
    files = [one.path for one in ((named,) if named is not None else places) if one.place is Place.CANDIDATE]
    with open_change(
        Verb.FIX,
        options,
        lambda: one_key(key, options),
        candidates=files,
        through_the_api=named is not None and named.place is Place.MEMORY,
    ) as change:
        for examiner in change.candidates.values():
            if examiner.transformers is not None:
                change.cluster.examiner.know_names(examiner.transformers.names)
        outcome = run_fix(
            change.cluster,
            FixRequest(
                key=change.key,
                named=named,
                other=_other_key(named, options),
                places=Places(
                    named=places,
                    api=change.api,
                    rescued=(rescued,) if rescued is not None else (),
                    progress=change.progress,
                ),
                run=change.run,
                **change.request,
            ),
            change.confirmer,
            preview=lambda one, chosen: show_preview(
                fix_preview(one, chosen.others if named is None else None), change.run
            ),
            preview_held=lambda held, unread: show_preview(
                memory_preview(change.cluster, held, unread, str(rescued), dry_run=options["dry_run"]),
                change.run,
            ),
            candidates=change.candidates,
            progress=change.progress,
        )
        return change.teller.tell(outcome, change.run)


def _other_key(named: Named | None, options: dict[str, Any]) -> bytes:
    return one_key(named.what, options) if named is not None and named.place is Place.KEY else b""
