"""``etcdfix delete``, ``fix`` and ``undo``: each changes one etcd key, guarded, and tells what it came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.inputs import configuration_of, gather_inputs
from etcdfix.cli.keys import one_key
from etcdfix.cli.look import api_access, record_paths
from etcdfix.cli.options import (
    CLUSTER_RULES,
    DELETION_RULES,
    FILE,
    REPLACING_RULES,
    TEXT,
    accept_option,
    acknowledgement_option,
    change_options,
    expectation_options,
    from_option,
    in_option,
    key_lost_option,
    kine_option,
    rescued_option,
)
from etcdfix.cli.output import (
    Terminal,
    is_terminal,
    require_output,
    say,
    say_lines,
    show_change,
    show_preview,
    words_as_typed,
)
from etcdfix.cli.progress import progress_of
from etcdfix.commands.changing.outcome import outcome_report, refusal_report
from etcdfix.commands.changing.preview import change_preview
from etcdfix.commands.delete import DeleteRequest, run_delete
from etcdfix.commands.fix import UndoRequest, run_fix, run_undo
from etcdfix.commands.opening import Candidates, Inputs, open_candidates, open_cluster
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.copies.search import Places
from etcdfix.model.errors import EtcdfixError
from etcdfix.model.rules import Rule, acceptance
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.change import Change
from etcdfix.remediation.choice import FixRequest
from etcdfix.remediation.cluster import Acceptances, Cluster, looks_enveloped
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.report.planfile import load_plan
from etcdfix.text.commands import Command, RunOptions, with_options
from etcdfix.text.safetext import safe_text


def require_reason(options: dict[str, Any]) -> None:
    """Refuse an empty reason."""
    if not str(options["reason"]).strip():
        raise click.UsageError("--reason is empty: say why, for the record")


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


def request_fields(options: dict[str, Any], inputs: Inputs, api: APIAccess | None) -> dict[str, Any]:
    """Return the fields of every :class:`~etcdfix.remediation.change.ChangeRequest`, and of a run's."""
    places = record_paths(options)
    return {
        "reason": options["reason"],
        "accepted": acceptances(options),
        "record_paths": places,
        "api": api,
        "etcd_user": inputs.etcd_user,
        "dry_run": options["dry_run"],
        "run": inputs.run_options(api=api, places=places),
        "given": with_options(words_as_typed(), ["--dry-run"] if options["dry_run"] else []),
    }


class OpenChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change whose options are read and whose etcd is open."""

    key: bytes
    teller: Teller
    cluster: Cluster
    candidates: Candidates
    request: dict[str, Any]
    confirmer: Terminal

    @property
    def run(self) -> RunOptions:
        """What a command must repeat."""
        run: RunOptions = self.request["run"]
        return run


@contextmanager
def open_change(
    verb: Verb,
    options: dict[str, Any],
    named: Callable[[], bytes],
    *,
    candidates: Sequence[Path] = (),
    through_the_api: bool = False,
) -> Iterator[OpenChange]:
    """Read the options of a change and open etcd; an error is told in the form that was asked for."""
    require_reason(options)
    require_output()
    teller = Teller(verb, options["output"], dry_run=options["dry_run"])
    try:
        api = api_access(options)
        key = teller.key = named()
        inputs = gather_inputs(options, ScopeRequest(keys=(key,)))
        with (
            open_cluster(inputs, configuration_of, say=say, through_the_api=through_the_api) as cluster,
            open_candidates(cluster.source, inputs, candidates) as others,
        ):
            yield OpenChange(
                key=key,
                teller=teller,
                cluster=cluster,
                candidates=others,
                request=request_fields(options, inputs, api),
                confirmer=Terminal(yes=options["yes"]),
            )
    except EtcdfixError as error:
        teller.tell_error(error)
        raise


class Teller(msgspec.Struct):
    """Tells what a change came to, or why it was not made, in the form that was asked for."""

    verb: Verb
    output: str
    dry_run: bool
    key: bytes | None = None
    told: bool = False

    def tell_error(self, error: EtcdfixError) -> None:
        """Tell an error as a document; as text, whoever runs the command does."""
        if self.output == TEXT or self.told:
            return
        try:
            report = refusal_report(self.verb, self.key, error, dry_run=self.dry_run)
            show_change(report, self.output, RunOptions())
        except Exception as exc:  # noqa: BLE001 - the error itself is told in any case
            say(f"no document could be written ({type(exc).__name__})")

    def tell(
        self,
        outcome: ChangeOutcome,
        run: RunOptions,
        deleted: Change | None = None,
        *,
        unread: bool = False,
    ) -> int:
        """Tell an outcome; return the exit code."""
        assert self.key is not None  # else there would be no outcome
        self.told = True
        code = change_exit_code(outcome)
        try:
            again = Command(words_as_typed())
            report = outcome_report(
                self.verb, self.key, outcome, run, exit_code=code, deleted=deleted, unread=unread, again=again
            )
            show_change(report, self.output, run)
        except Exception as exc:  # noqa: BLE001 - the change is made: it must be told one way or the other
            say(f"no document could be written ({type(exc).__name__}); what it came to:")
            say_lines(map(safe_text, _facts(self.key, outcome)))
        return code


def _facts(key: bytes, outcome: ChangeOutcome) -> Iterator[str]:
    yield f"{'DRY RUN' if outcome.result is None else outcome.result.upper()} {display(key)}"
    if outcome.revision:
        yield f"Revision {outcome.revision}"
    yield from filter(None, (outcome.detail, *outcome.warnings))
    yield from (f"Backup {path}" for path in outcome.backups)
    yield from (f"Its value {digest}" for digest in outcome.values)
    yield from (f"To put it back: etcdfix undo {path}" for path in outcome.backups[:1])
    yield f"Audit log {outcome.audit_log}, head {outcome.head or 'unknown: the outcome is not recorded'}"


@click.command("delete", cls=ChangingCommand)
@click.argument("key")
@acknowledgement_option
@click.option(
    "--plan", type=FILE, metavar="FILE",
    help="Refuse unless this plan (etcdfix plan -o json) lists the key as it is now. It may be 15 minutes old.",
)  # fmt: skip
@accept_option(*DELETION_RULES, Rule.OTHER_CLUSTER_ID, *CLUSTER_RULES)
@change_options
@expectation_options
@key_lost_option
@rescued_option
def delete(*, key: str, plan: Path | None, rescued: Path | None, **options: Any) -> int:
    """Delete exactly one key that is proven unreadable, after a backup and with a record.

    etcdfix examines the key and everything else in etcd, and asks every member. It shows what the deletion means and
    what would destroy less. You confirm by typing the key. etcdfix deletes only the value that it examined. Run it with
    --dry-run first: that makes every check and changes nothing.
    """
    if Rule.OTHER_CLUSTER_ID in options["accepted_words"] and plan is None:
        raise click.UsageError(
            f"{acceptance(Rule.OTHER_CLUSTER_ID)} goes with --plan FILE: nothing else here names an etcd"
        )
    checked: list[Change] = []
    with open_change(Verb.DELETE, options, lambda: one_key(key, options)) as change:

        def preview(found: Change) -> None:
            checked.append(found)
            kept = with_what_it_keeps(change.run, change.cluster.source)
            show_preview(change_preview(found, kept), kept)

        reviewed = load_plan(plan) if plan is not None else None
        request = DeleteRequest(
            key=change.key, plan=reviewed, plan_file=str(plan or ""), rescued=rescued, **change.request
        )
        progress = progress_of(change.cluster.source)
        outcome = run_delete(change.cluster, request, change.confirmer, preview=preview, progress=progress)
        deleted = checked[0] if outcome.result is Result.DELETED else None
        return change.teller.tell(outcome, change.run, deleted)


_FIX_RULES = (
    *REPLACING_RULES,
    Rule.UNPROVEN_REPAIR,
    Rule.UNKNOWN_UID,
    Rule.UNLISTED_SOURCE,
    Rule.EXPIRED_LEASE,
    Rule.OTHER_CLUSTER_ID,
    Rule.UNCHECKED_SERVER,
    *CLUSTER_RULES,
)


@click.command("fix", cls=ChangingCommand)
@click.argument("key")
@from_option
@in_option()
@accept_option(*_FIX_RULES)
@change_options
@expectation_options
@key_lost_option
@kine_option
@rescued_option
def fix(
    *, key: str, named: Named | None, places: tuple[Named, ...], rescued: Path | None, **options: Any
) -> int:
    """Put back a good copy of an object whose value cannot be read, or is gone.

    Without --from, etcdfix takes the best copy that is proven and that no rule refuses: the value with one bit
    corrected, an earlier revision, or a copy from --in. It says which copy and why, and backs up what it replaces. It
    never replaces a value that reads. If the key is absent, give --from. etcdfix explain KEY lists every copy.

    --from memory: an API server that has run since before the encryption key was lost writes the object again under the
    current key. etcdfix sends one PATCH that sets an annotation; it changes nothing else through the API. Save all
    objects of the kind first (etcdfix rescue). Do not restart a server meanwhile. No server may read the object before,
    and every server must read it afterwards. The user of --kubeconfig needs get and patch. --kine FILE works only with
    --from memory.
    """
    where = named.place if named is not None else None
    files = [one.path for one in (places if named is None else (named,)) if one.place is Place.CANDIDATE]
    with open_change(
        Verb.FIX,
        options,
        lambda: one_key(key, options),
        candidates=files,
        through_the_api=where is Place.MEMORY,
    ) as change:
        for examiner in change.candidates.values():
            if examiner.transformers is not None:
                change.cluster.examiner.know_names(examiner.transformers.names)
        progress = progress_of(change.cluster.source)
        saved = (rescued,) if rescued is not None else ()
        request = FixRequest(
            key=change.key,
            named=named,
            other=one_key(named.what, options) if named is not None and where is Place.KEY else b"",
            places=Places(named=places, api=change.request["api"], rescued=saved, progress=progress),
            rescued=rescued,
            **change.request,
        )
        outcome = run_fix(
            change.cluster,
            request,
            change.confirmer,
            preview=lambda found: show_preview(change_preview(found, change.run), change.run),
            candidates=change.candidates,
            progress=progress,
        )
        return change.teller.tell(outcome, change.run)


@click.command("undo", cls=ChangingCommand)
@click.argument("backup")
@accept_option(
    Rule.UNLISTED_SOURCE, Rule.CLUSTER_BREAKING, Rule.EXPIRED_LEASE, Rule.OTHER_CLUSTER_ID, *CLUSTER_RULES
)
@change_options
@expectation_options
def undo(*, backup: str, **options: Any) -> int:
    """Undo a change: put back exactly the bytes that it replaced or deleted.

    BACKUP is a file that delete, fix or undo wrote. The audit log must list it, and the key must still hold what the
    change put there, or nothing. You need no encryption configuration. etcdfix never replaces what somebody wrote
    since. If that cannot be read, use etcdfix fix KEY --from backup:FILE.
    """
    read: list[Backup] = []
    expected = options.pop("expect_value_sha256")  # of the value in the backup, not of the present one

    def named() -> bytes:
        read.append(read_backup(Path(backup).absolute()))
        return read[0].content.key_base64

    with open_change(Verb.UNDO, options, named) as change:
        request = UndoRequest(backup=read[0], value_sha256=expected or "", **change.request)
        outcome = run_undo(
            change.cluster,
            request,
            change.confirmer,
            preview=lambda found: show_preview(change_preview(found, change.run), change.run),
        )
        unread = not change.cluster.configured and looks_enveloped(read[0].content.stored.value)
        return change.teller.tell(outcome, change.run, unread=unread)
