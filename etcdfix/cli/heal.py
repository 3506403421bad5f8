"""``etcdfix heal``: have API servers write anew, from their memory, what they can no longer read from etcd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from etcdfix.cli.accepting import accept_option
from etcdfix.cli.change_output import tell_run
from etcdfix.cli.changing import request_fields
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.confirm import Terminal
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import (
    FILE,
    configuration_of,
    inputs_of_one_etcd,
    kine_option,
    live_options,
    main_etcd_options,
    reading_options,
)
from etcdfix.cli.output import require_output, say, show_outcome, show_preview
from etcdfix.cli.output_options import TEXT, change_output_option
from etcdfix.cli.places import record_paths
from etcdfix.cli.safety import (
    api_access,
    expectation_options,
    one_key,
    record_options,
    require_reason,
    server_options,
)
from etcdfix.operations.change.heal import Healed, HealPreview, HealRequest, run_heal
from etcdfix.operations.change.heal_look import LeftAlone
from etcdfix.operations.change.heal_report import HealAccount, heal_preview, heal_report, healed_lines
from etcdfix.operations.opening import open_cluster
from etcdfix.report.saved_report import SavedReport, load_report
from etcdfix.rules import Rule
from etcdfix.scope import ScopeRequest
from etcdfix.storagekey import display
from etcdfix.text.safetext import safe_text

EXIT_CODES = {
    0: "everything that could be healed is, or would be (dry run); keys that are left alone are told",
    2: "usage or configuration error; nothing was changed",
    3: "an outcome is unknown, anomalous or doubtful: the run stopped there; "
    "or --timeout was over before all were healed",
    4: "refused by a safety rule or by an API server; what is told as healed before that stays healed",
    5: "etcd could not be asked, or not one API server, or not before --timeout was over; "
    "what is told as healed before that stays healed",
}


@click.command("heal", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("key", required=False)
@click.option(
    "--from-report", type=FILE, metavar="FILE",
    help="Instead of KEY: everything of a saved scan (etcdfix scan -o json) whose encryption key is lost. Each is "
    "examined anew; what needs something else is left alone.",
)  # fmt: skip
@click.option(
    "--saved", type=FILE, required=True, metavar="DIR",
    help="What etcdfix rescue saved: nothing is healed before everything of its kind that API servers still have in "
    "memory is in there.",
)  # fmt: skip
@click.option(
    "--kubeconfig", type=FILE, required=True, metavar="FILE",
    help="The API servers of the cluster: this one, those that service default/kubernetes lists, and each --server. "
    "Its user needs get and patch on the objects, and get on namespace kube-system.",
)  # fmt: skip
@server_options
@accept_option(Rule.UNCHECKED_SERVER, Rule.UNCHECKED_MEMBER, Rule.UNKNOWN_RELEASE)
@record_options
@change_output_option
@expectation_options
@kine_option
@live_options
@main_etcd_options
@reading_options
def command(
    *,
    key: str | None,
    from_report: Path | None,
    saved: Path,
    **options: Any,
) -> int:
    """Have API servers write anew, from their memory, objects whose encryption key is lost.

    An API server that has run since before the key was lost still holds the objects. A change of one makes it write
    the whole object under today's write key: same uid, same data, nothing deleted. This command asks for that change,
    one annotation (etcdfix.io/healed-at), one object at a time. It is the only one that changes anything through the
    API; each object has its backup and its records, as every change has.

    Do not restart an API server before everything is healed, and delete nothing: both end what they remember.

    Before each: etcd is read, with every member; every API server that can be found is asked for the object and must
    fail to read it; one must have it in memory at the mod_revision of its key; it was saved by etcdfix rescue, and so
    was everything of its kind. After each: the key moved, the value opens with today's configuration and decodes,
    same uid, every API server reads it, and it equals the saved copy. The run stops at the first surprise.

    Objects that are being deleted, damaged or moved values, and values that today's configuration opens are left
    alone.

    An API server's own dry run cannot work for these objects: --dry-run makes all checks of ours, and sends no change.
    """
    require_reason(options)
    require_output()
    if (key is None) == (from_report is None):
        raise click.UsageError("name a KEY or --from-report FILE, one of them")
    expected = options["expect_mod_revision"] is not None or options["expect_value_sha256"]
    if from_report is not None and expected:
        raise click.UsageError("--expect-mod-revision and --expect-value-sha256 are about one KEY")
    account = HealAccount(dry_run=options["dry_run"])
    return tell_run(
        options["output"],
        account,
        lambda: _run(
            account,
            options,
            lambda: one_key(key or "", options),
            None if from_report is None else load_report(from_report),
            saved,
        ),
        heal_report,
    )


def _run(
    account: HealAccount,
    options: dict[str, Any],
    named: Callable[[], bytes],
    report: SavedReport | None,
    saved: Path,
) -> bool:
    keys = (named(),) if report is None else tuple(report.findings)
    api = api_access(options)
    inputs = inputs_of_one_etcd(options, ScopeRequest(keys=keys))
    run = account.run = inputs.run_options(api=api, places=record_paths(options))
    for problem in report.problems if report is not None else ():
        say(f"warning: the report is not of everything: {problem}")

    def told(healed: Healed) -> None:
        account.objects.append(healed)
        if options["output"] == TEXT:
            show_outcome(map(safe_text, healed_lines(healed)))

    def left(alone: LeftAlone) -> None:
        account.left_alone.append(alone)
        if account.to_heal is not None:  # it was one of them, and somebody was faster
            account.to_heal -= 1
            say(f"{display(alone.key)} was written meanwhile: {alone.why}")

    with open_cluster(inputs, configuration_of, say=say, through_the_api=True) as cluster:

        def preview(shown: HealPreview) -> None:
            account.to_heal = len(shown.healable)
            show_preview(heal_preview(cluster, shown, dry_run=options["dry_run"]), run)

        return run_heal(
            cluster,
            HealRequest(
                keys=keys,
                saved=saved,
                many=report is not None,
                report_cluster_uid=(report.source.kube_system_uid or "") if report is not None else "",
                run=run,
                **request_fields(options, inputs, api),
            ),
            Terminal(yes=options["yes"]),
            preview=preview,
            told=told,
            left=left,
        )
