"""What every command that changes one etcd key does alike: options read, etcd opened, and what it came to told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
import msgspec

from etcdfix.apiserver.servers import APIAccess
from etcdfix.cli.confirm import Terminal, is_terminal
from etcdfix.cli.inputs import configuration_of, gather_inputs
from etcdfix.cli.look import api_access, record_paths
from etcdfix.cli.options import TEXT
from etcdfix.cli.output import require_output, say, say_lines, show_change, words_as_typed
from etcdfix.cli.progress import progress_of
from etcdfix.commands.changing.outcome import follow_ups, outcome_report, refusal_report
from etcdfix.commands.opening import Candidates, Inputs, open_candidates, open_cluster, without_candidates
from etcdfix.errors import EtcdfixError
from etcdfix.examine_all import Progress
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.change import Change
from etcdfix.remediation.cluster import Acceptances, Cluster
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.scope import ScopeRequest
from etcdfix.storagekey import display
from etcdfix.text.commands import Command, RunOptions
from etcdfix.text.safetext import safe_text


def require_reason(options: dict[str, Any]) -> None:
    """Refuse an empty reason.

    Raises:
        click.UsageError: It says nothing.
    """
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


class OpenChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change whose options are read and whose etcd is open."""

    key: bytes
    teller: Teller
    inputs: Inputs
    cluster: Cluster
    candidates: Candidates
    request: dict[str, Any]
    api: APIAccess | None
    confirmer: Terminal
    progress: Progress

    @property
    def run(self) -> RunOptions:
        """What a command must repeat."""
        return self.inputs.run_options(api=self.api, places=self.request["record_paths"])


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
        "given": (*words_as_typed(), *(["--dry-run"] if options["dry_run"] else [])),
    }


@contextmanager
def open_change(
    verb: Verb,
    options: dict[str, Any],
    named: Callable[[], bytes],
    *,
    candidates: Sequence[Path] = (),
    through_the_api: bool = False,
) -> Iterator[OpenChange]:
    """Read the options of a change and open etcd; an error is told in the form that was asked for.

    Raises:
        click.UsageError: Options contradict each other, or the reason is empty.
        EtcdfixError: An option makes no sense, or etcd cannot be opened.
    """
    require_reason(options)
    require_output()
    with Teller(verb, options["output"], dry_run=options["dry_run"]) as teller:
        api = api_access(options)
        key = teller.key = named()
        given = gather_inputs(options, ScopeRequest(keys=(key,)))
        inputs = without_candidates(given, candidates)
        with (
            open_cluster(inputs, configuration_of, say=say, through_the_api=through_the_api) as cluster,
            open_candidates(cluster.source, given, candidates) as others,
        ):
            yield OpenChange(
                key=key,
                teller=teller,
                inputs=inputs,
                cluster=cluster,
                candidates=others,
                request=request_fields(options, inputs, api),
                api=api,
                confirmer=Terminal(yes=options["yes"]),
                progress=progress_of(cluster.source),
            )


class Teller:
    """Tells what a change came to. As a context manager it tells an error as well, which then goes on."""

    def __init__(self, verb: Verb, output: str, *, dry_run: bool) -> None:
        self._verb = verb
        self._output = output
        self._dry_run = dry_run
        self._told = False
        self.key: bytes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._output == TEXT or self._told or not isinstance(error, EtcdfixError):
            return
        try:
            report = refusal_report(self._verb, self.key, error, dry_run=self._dry_run)
            show_change(report, self._output, RunOptions())
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
        self._told = True
        code = change_exit_code(outcome)
        try:
            report = outcome_report(
                self._verb,
                self.key,
                outcome,
                run,
                exit_code=code,
                deleted=deleted,
                unread=unread,
                again=Command(words_as_typed()),
            )
            show_change(report, self._output, run)
        except Exception as exc:  # noqa: BLE001 - the change is made: it must be told one way or the other
            say(f"no document could be written ({type(exc).__name__}); what it came to:")
            say_lines(map(safe_text, _facts(self.key, outcome)))
            with suppress(Exception):  # what failed may fail again, and the exit code must stay
                for step in follow_ups(self._verb, self.key, outcome, run, unread=unread):
                    say_lines(map(safe_text, [f"{step.what}:", f"  {step.command.line(run)}"]))
        return code


def _facts(key: bytes, outcome: ChangeOutcome) -> Iterator[str]:
    yield f"{'DRY RUN' if outcome.result is None else outcome.result.upper()} {display(key)}"
    if outcome.revision:
        yield f"Revision {outcome.revision}"
    yield from filter(None, (outcome.detail, *outcome.warnings))
    yield from (f"Backup {path}" for path in outcome.backups)
    yield from (f"Its value {digest}" for digest in outcome.values)
    yield f"Audit log {outcome.audit_log}, head {outcome.head or 'unknown: the outcome is not recorded'}"
