"""Commands that look share this: it opens everything, writes the report, and maps it to an exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click
import msgspec

from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.servers import parse_server_url
from etcdfix.cli.inputs import NOTHING_NAMED, what_to_read
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.progress import progress_of
from etcdfix.commands.opening import (
    Candidates,
    Inputs,
    nothing_examined,
    open_candidates,
    open_plugins,
    open_source,
)
from etcdfix.commands.scan import ScanResult
from etcdfix.commands.scanning.pipeline import FAILING
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.examine.first_pass import Jobs
from etcdfix.inputs.outputfile import destination, is_file_by_itself
from etcdfix.model.errors import EndedEarly, SourceError
from etcdfix.model.model import Outcome
from etcdfix.model.scope import ScopeRequest
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.document import State
from etcdfix.report.render import Report, write
from etcdfix.text.commands import RunOptions
from etcdfix.text.notes import Note

if TYPE_CHECKING:
    from etcdfix.copies.search import Places
    from etcdfix.encryption.config_model import EncryptionConfiguration
    from etcdfix.encryption.kms.plugins import KMSPlugins
    from etcdfix.graph.cluster import ClusterIndex, Keep
    from etcdfix.sources.base import Source


class ExitCode(IntEnum):
    """Exit codes of commands that look.

    A command that is ended early writes a partial report, where it has one. ``--timeout`` ends it with 3, without any
    report with 5.
    """

    NOTHING_WRONG = 0
    FINDINGS = 1
    USAGE = 2
    INCOMPLETE = 3
    SOURCE = 5
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


def report_exit_code(report: Report, ended: EndedEarly | None) -> int:
    """Return the exit code that the state of a report comes to."""
    if ended is not None:
        return ended.exit_code
    by_state = {State.INCOMPLETE: ExitCode.INCOMPLETE, State.FINDINGS: ExitCode.FINDINGS}
    return by_state.get(report.document().status.state, ExitCode.NOTHING_WRONG)


def scan_exit_code(result: ScanResult, fail_on: Collection[Outcome] = FAILING) -> int:
    """Map the result of a scan to its exit code. One that was lost midway is never 0 or 1.

    Args:
        result: What it came to.
        fail_on: Outcomes that count; without ``undetermined``, what nobody could decide does not.
    """
    counted = {outcome for outcome, keys in result.new.items() if keys and outcome in fail_on}
    if result.ended is not None:
        return result.ended.exit_code if result.report.summary.keys else result.ended.bare_exit_code
    if result.nothing is not None or (result.problems and not result.report.summary.keys):
        return ExitCode.SOURCE
    if result.problems or Outcome.UNDETERMINED in counted:
        return ExitCode.INCOMPLETE
    return ExitCode.FINDINGS if counted else ExitCode.NOTHING_WRONG


T = TypeVar("T")


def record_paths(options: dict[str, Any]) -> RecordPaths:
    """Return where backups and the audit log go; a directory that is named twice is one."""
    log: Path | None = options.get("audit_log")
    return RecordPaths(
        tuple(dict.fromkeys(path.absolute() for path in options.get("backup_dirs") or ())),
        log.absolute() if log is not None else None,
        syslog=options.get("syslog"),
    )


def api_access(options: dict[str, Any]) -> APIAccess | None:
    """Return the API servers to ask, or None."""
    servers = tuple(parse_server_url(url) for url in options.get("servers", ()))
    if options["kubeconfig"] is not None:
        return APIAccess(options["kubeconfig"], options["context"], servers)
    if servers or options["context"] is not None:
        raise click.UsageError("--server and --context need --kubeconfig: the credentials to ask with")
    return None


def where_to_look(options: dict[str, Any]) -> Places:
    """Return where else copies are looked for."""
    from etcdfix.copies.search import Places  # noqa: PLC0415 - few look for copies

    rescued = options["rescued"]
    return Places(
        named=options["places"],
        rescued=(rescued,) if rescued is not None else (),
        api=api_access(options),
    )


class ReportPlace:
    """Where a report goes; what it begins with is said where nobody sees it written."""

    def __init__(self, stream: BinaryIO, form: str, *, to_file: bool = False) -> None:
        self.stream, self.form = stream, form
        self.sentence = ""
        self._to_file = to_file

    def show(self, report: Report, run: RunOptions | None = None) -> None:
        """Write a report in the form that was asked for."""
        write(report, self.form, self.stream, run or RunOptions())
        self.wrote(report)

    def wrote(self, report: Report) -> None:
        """Keep the headline of a report that somebody has written here."""
        if self._to_file:
            from etcdfix.report.render.text import headline_of  # noqa: PLC0415 - only where it is said

            self.sentence = headline_of(report.document())


@contextmanager
def report_place(
    options: dict[str, Any], inputs: Iterable[Path | None], *, of_a_plan: bool = False
) -> Iterator[ReportPlace]:
    """Yield where a report goes; once it stands in a file, say so on standard error, and with what it begins.

    Args:
        options: What click collected: ``output`` and ``output_file``.
        inputs: Files over which no report is written.
        of_a_plan: The file gets mode 0600; as JSON it may replace a plan.

    Raises:
        OSError: What was written could not take its name in the end.
    """
    output_file: Path | None = options["output_file"]
    form: str = options["output"]
    to_file = output_file is not None and is_file_by_itself(output_file)
    may_replace_plan = of_a_plan and form == "json"
    with destination(output_file, inputs, private=of_a_plan, may_replace_plan=may_replace_plan) as stream:
        place = ReportPlace(stream, form, to_file=to_file)
        yield place
        stream.flush()
    if to_file:
        what = f": {place.sentence}" if place.sentence else ""
        say(Note(f"wrote {output_file} ({form}){what}"))


class OpenLook(msgspec.Struct, kw_only=True):
    """Everything that a command which only looks has open."""

    inputs: Inputs
    configuration: EncryptionConfiguration | None
    source: Source
    place: ReportPlace
    plugins: KMSPlugins | None
    candidates: Candidates
    jobs: Jobs
    reasons: Sequence[str] = ()

    @property
    def means(self) -> dict[str, Any]:
        """The arguments of every pass over many values."""
        return {"plugins": self.plugins, "progress": progress_of(self.source), "jobs": self.jobs}

    def reading_fields(
        self, *, api: APIAccess | None = None, places: RecordPaths | None = None
    ) -> dict[str, Any]:
        """Return the fields of every request that says how values are read."""
        return self.inputs.reading_fields(self.configuration, api=api, places=places)

    def tell(self, report: Report, ended: EndedEarly | None, run: RunOptions) -> int:
        """Write a report; return its exit code."""
        self.place.show(report, run)
        self.reasons = getattr(report, "incomplete_reasons", ())
        return report_exit_code(report, ended)

    def index(self, keep: Keep, make: Callable[[ClusterIndex], T]) -> tuple[ClusterIndex, T]:
        """Look at who refers to whom, everywhere; return it with what is made of it, once more if ended meanwhile."""
        from etcdfix.graph.cluster import index_cluster  # noqa: PLC0415 - few need it

        request = self.inputs.reading(self.configuration)
        request = msgspec.structs.replace(request, run=with_what_it_keeps(request.run, self.source))
        found = index_cluster(self.source, request, keep=keep, **self.means)
        if not found.below_prefix:
            problems = found.index.problems
            raise found.ended or nothing_examined(self.source, request.layout, problems)
        try:
            return found, make(found)
        except KeyboardInterrupt as exc:
            ended = EndedEarly.of(exc)
        found.index.problems.append(f"{ended.reason} before the end")
        found = msgspec.structs.replace(found, ended=ended)
        return found, make(found)


def refuse_unseen(what: str, problems: Sequence[str], ended: EndedEarly | None) -> None:
    """End a command that did not see what it was asked about, where not everything was looked at.

    Raises:
        EndedEarly: The look was ended before.
    """
    if ended is not None:
        raise ended
    if problems:
        say_incomplete(problems)
        raise SourceError(f"{what} was not seen, and not everything could be read")


@contextmanager
def open_look(
    options: dict[str, Any],
    scope: ScopeRequest = NOTHING_NAMED,
    *others: EncryptionConfiguration,
    keys: Iterable[bytes] = (),
    each_from_its_own: bool = False,
    besides: Sequence[Path | None] = (),
    places: Sequence[Named] = (),
    of_a_plan: bool = False,
) -> Iterator[OpenLook]:
    """Open what is read, where the report goes, and the KMS plugins of the configurations; say what is incomplete.

    Args:
        options: What click collected.
        scope: What is looked at; where it has an etcd of its own, that one is read.
        others: Configurations whose plugins are asked, too.
        keys: More that is looked at.
        each_from_its_own: Everything is looked at, each resource in its own etcd.
        besides: Further files, over which no report is written.
        places: Where copies are looked for; candidate configurations among them examine values, too.
        of_a_plan: The report is a plan.
    """
    inputs, configuration = what_to_read(options, scope, keys=keys, each_from_its_own=each_from_its_own)
    candidates = [named.path for named in places if named.place is Place.CANDIDATE]
    files = (*read_files(inputs), *besides, *(named.path for named in places))
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open_source(inputs, say=say))
        look = OpenLook(
            inputs=inputs,
            configuration=configuration,
            source=source,
            place=stack.enter_context(report_place(options, files, of_a_plan=of_a_plan)),
            plugins=stack.enter_context(open_plugins(inputs, configuration, *others)),
            candidates=stack.enter_context(open_candidates(source, inputs, candidates)),
            jobs=options.get("jobs", 1),
        )
        yield look
    say_incomplete(look.reasons)


def read_files(inputs: Inputs) -> tuple[Path | None, ...]:
    """Return the files that these options name, over which no report is written."""
    return (inputs.file, inputs.encryption_config, inputs.manifest, *inputs.tls_files)
