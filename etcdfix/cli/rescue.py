"""``etcdfix rescue``: save what running API servers still have in memory of objects that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from etcdfix.apiserver.all_servers import open_all_servers, require_servers
from etcdfix.apiserver.servers import APIAccess, parse_server_url
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.keys import is_key, named_key
from etcdfix.cli.options import FILE, timeout_option
from etcdfix.cli.output import require_output, say, say_incomplete
from etcdfix.cli.output_options import form_option, output_file_option
from etcdfix.cli.places import syslog_option
from etcdfix.cli.progress import with_progress
from etcdfix.cli.report_place import report_place
from etcdfix.errors import ConfigurationError
from etcdfix.inputs.releases import parse_kubernetes_version
from etcdfix.model import ClusterIdentity
from etcdfix.operations.look.rescue import (
    DEFAULT_PER_SECOND,
    RescueRequest,
    run_rescue,
)
from etcdfix.operations.look.rescue_report import Afterwards
from etcdfix.operations.look.rescue_targets import Target, targets_of
from etcdfix.operations.opening import Inputs
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.places import RecordPaths, disk_warning, lasting_warnings
from etcdfix.remediation.rescue.record import RescueRecord
from etcdfix.remediation.rescue.store import RescueStore
from etcdfix.report.render import FORMS
from etcdfix.report.saved_report import SavedReport, load_report
from etcdfix.scope import builtin_key, parse_object, split_words
from etcdfix.storagekey import DEFAULT_PREFIX, StorageLayout
from etcdfix.text.safetext import key_word
from etcdfix.text.words import counted

MEANINGS: dict[int, str] = {
    ExitCode.NOTHING_WRONG: "all saved as etcd has it, or readable meanwhile",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "some are not saved, or only in an older state, or were lost midway: what is saved stays",
    4: "refused: an API server reads the objects, lets nobody ask, or a place is not safe; nothing was saved",
    ExitCode.SOURCE: "no API server could be reached; nothing was saved",
    **{int(code): text for code, text in ENDED_EARLY.items()},
}


@click.command("rescue", cls=Command, epilog=epilog(MEANINGS))
@click.argument("keys", nargs=-1, metavar="[KEY|TYPE/NAME]...")
@click.option(
    "-n", "--namespace", metavar="NAMESPACE",
    help="Namespace of each TYPE/NAME; that may be of a built-in resource alone, for etcd is not read here.",
)  # fmt: skip
@click.option(
    "--from-report", type=FILE, metavar="FILE",
    help="A saved report (etcdfix scan -o json): all that it names unreadable; with KEY, all of the same kinds.",
)  # fmt: skip
@click.option(
    "--kubeconfig", type=FILE, required=True, metavar="FILE",
    help="As whom to ask. Its server is asked, and those that service default/kubernetes lists.",
)  # fmt: skip
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--server", "servers", multiple=True, metavar="URL",
    help="Ask this API server too, with the same credentials (may be repeated). Name those behind a load balancer, and "
    "those that are not ready: service default/kubernetes does not list them.",
)  # fmt: skip
@click.option(
    "--save-dir", type=FILE, required=True, metavar="DIR",
    help="Where the files go: a directory of yours that nobody else may write to. An earlier rescue into it goes on.",
)  # fmt: skip
@click.option(
    "--reveal", is_flag=True, help="Needed: the files hold the contents, those of Secrets too, unmasked."
)
@click.option(
    "--audit-log", type=FILE, metavar="FILE",
    help="Where the rescue and the digests are recorded.  [default: audit.jsonl in /var/lib/etcdfix for root, else in "
    "$XDG_STATE_HOME/etcdfix]",
)  # fmt: skip
@syslog_option
@click.option(
    "--rate", type=click.FloatRange(min=0.1, max=1000), default=DEFAULT_PER_SECOND, show_default=True, metavar="N",
    help="Most requests a second, all servers together.",
)  # fmt: skip
@click.option(
    "--etcd-prefix", default=DEFAULT_PREFIX, show_default=True, metavar="PREFIX",
    help="The API server's --etcd-prefix; a report says its own.",
)  # fmt: skip
@timeout_option
@form_option(FORMS)
@output_file_option("Write the report to this file.")
def command(
    *,
    keys: tuple[str, ...],
    namespace: str | None,
    from_report: Path | None,
    kubeconfig: Path,
    context: str | None,
    servers: tuple[str, ...],
    save_dir: Path,
    reveal: bool,
    audit_log: Path | None,
    syslog: Syslog | None,
    rate: float,
    etcd_prefix: str,
    output: str,
    output_file: Path | None,
) -> int:
    """Save objects that cannot be read from the memory of API servers that still run. Reads only.

    An API server that ran when an encryption key was lost still has the objects in memory, and gives them when asked
    with resourceVersion=0. A restart, or one deletion of an unreadable object, ends that for good. So restart nothing,
    delete nothing, and run this first.

    Each server is first asked for a few objects in the ordinary way. If one reads them, only a configuration is wrong,
    and the command stops. Then each object is asked for, at the pace of --rate, until a server gives it as etcd has it.
    Each answer is one file in --save-dir, mode 0600, with a line in index.jsonl; nothing is overwritten. The audit log
    gets a record first, and the digest of each file. Nothing is written to etcd or to the API.

    You can stop it at any time: what is saved stays, and the same command goes on from there.
    """
    if not keys and from_report is None:
        raise click.UsageError("name what to save: --from-report FILE, or KEY")
    if not reveal:
        raise ConfigurationError(
            "the files will hold the contents of the objects, those of Secrets too, unmasked",
            hint="add --reveal if that is what you want",
        )
    require_output()
    report = load_report(from_report) if from_report is not None else None
    named = list(_keys(keys, namespace, StorageLayout(_inputs_of(report, etcd_prefix).etcd_prefix)))
    targets = targets_of(report, named, etcd_prefix)
    api = APIAccess(kubeconfig, context, tuple(map(parse_server_url, servers)))
    cluster = ClusterIdentity.by_uid((report.source.kube_system_uid if report is not None else None) or "")
    places = RecordPaths(
        audit_log=audit_log.absolute() if audit_log is not None else None,
        syslog=syslog,
    )
    with RescueStore.open(save_dir) as store:
        kept = {"the saved objects": (store.path,), "the audit log": (places.log_path.parent,)}
        for warning in (*lasting_warnings(store.path, named=True), *disk_warning(kept)):
            say(f"warning: {warning}")
        if store.mended:
            say(
                "the last line of the index was torn, by a crash, and was taken away; its file is found again"
            )
        with open_all_servers(api, cluster) as all_servers:
            require_servers(all_servers)
            if report is not None and not cluster.is_known:
                say(
                    "the report does not say which cluster it is of: see that these API servers are of the same one"
                )
            say(
                f"--reveal: what servers hold of {counted(len(targets.objects), 'object')} goes to {store.path}, "
                "unmasked"
            )
            record = RescueRecord(
                places,
                store.path,
                cluster_uid=all_servers.cluster.uid,
                resources=sorted({str(target.resource) for target in targets.objects}),
            )
            request = RescueRequest(
                targets=targets,
                report=report,
                afterwards=Afterwards(
                    run=_inputs_of(report, etcd_prefix).run_options(api=api, places=places),
                    report=str(from_report or ""),
                    keys=tuple(map(key_word, named)),
                ),
                per_second=rate,
            )
            result = run_rescue(request, all_servers, store, record, progress=_progress)
    with report_place(output_file, (from_report, kubeconfig), output) as place:
        place.show(result.report, request.afterwards.run)
    for warning in result.report.warnings:
        say(f"warning: {warning}")
    say_incomplete(result.report.incomplete_reasons)
    if result.ended is not None:
        return result.ended.exit_code
    return ExitCode.NOTHING_WRONG if result.report.complete else ExitCode.INCOMPLETE


def _keys(words: Sequence[str], namespace: str | None, layout: StorageLayout) -> Iterator[bytes]:
    """Yield the keys that words name."""
    if namespace is not None and all(map(is_key, words)):
        raise ConfigurationError(
            "-n goes with TYPE/NAME: a KEY names its namespace itself, and a report each object's",
            hint="leave it out",
        )
    for word in words:
        if is_key(word):
            yield named_key(word)
        else:
            yield from (
                builtin_key(parse_object(part, namespace or ""), layout) for part in split_words(word)
            )


def _inputs_of(report: SavedReport | None, etcd_prefix: str) -> Inputs:
    """Return where the data of the report was, and how it was read, as far as it tells."""
    if report is None:
        return Inputs(
            snapshot=None,
            connection={"endpoints": ""},
            etcd_prefix=etcd_prefix,
            revision=0,
            encryption_config=None,
            kubernetes_minor=None,
        )
    source, scope, configuration = report.source, report.scope, report.encryption_config
    file = Path(source.path) if source.path else None
    return Inputs(
        snapshot=file if source.type == "snapshot" else None,
        kine=file if source.type == "kine" else None,
        connection={"endpoints": ",".join(source.endpoints or ())},
        etcd_prefix=scope.etcd_prefix,
        revision=0,
        encryption_config=Path(configuration.path) if configuration is not None else None,
        kubernetes_minor=parse_kubernetes_version(scope.kubernetes_version),
    )


def _progress(items: Iterable[Target], count: int) -> Iterable[Target]:
    return with_progress(items, estimate=count, label="objects", every=1)
