"""``etcdfix fix``: put the best copy of an object back, or a named one, guarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.changing import open_change
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.keys import one_key
from etcdfix.cli.options import (
    CLUSTER_RULES,
    REPLACING_RULES,
    accept_option,
    change_options,
    expectation_options,
    from_option,
    in_option,
    key_lost_option,
    kine_option,
    rescued_option,
)
from etcdfix.cli.output import show_preview
from etcdfix.commands.changing.preview import fix_preview
from etcdfix.commands.fix import run_fix
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.copies.search import Places
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.choice import FixRequest
from etcdfix.rules import Rule

_RULES = (
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


@click.command("fix", cls=ChangingCommand)
@click.argument("key")
@from_option
@in_option()
@accept_option(*_RULES)
@change_options
@expectation_options
@key_lost_option
@kine_option
@rescued_option
def command(
    *, key: str, named: Named | None, places: tuple[Named, ...], rescued: Path | None, **options: Any
) -> int:
    """Put a good copy of an object back where its value cannot be read, or is gone.

    Without --from it takes the best copy that is proven and that no rule refuses: the value with one bit put right, an
    earlier revision, what --in names. It says which one and why, and backs up what it replaces. A value that reads is
    never replaced. Where the key is absent, --from says which copy comes back. etcdfix explain KEY lists every copy.

    With --from memory an API server that has run since before the encryption key was lost writes the object anew under
    today's key: one PATCH that sets an annotation, the only change through the API. All of its kind must be saved first
    (etcdfix rescue), no server may read it, and afterwards every server must. Restart none meanwhile. The user of
    --kubeconfig needs get and patch. --kine FILE works for this way alone.
    """
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
                **change.request,
            ),
            change.confirmer,
            preview=lambda found: show_preview(fix_preview(found), change.run),
            candidates=change.candidates,
            progress=change.progress,
        )
        return change.teller.tell(outcome, change.run)


def _other_key(named: Named | None, options: dict[str, Any]) -> bytes:
    return one_key(named.what, options) if named is not None and named.place is Place.KEY else b""
