"""What commands that look have alike: everything opened, the report written, its exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import msgspec

from etcdfix.cli.exit_codes import ExitCode, report_exit_code
from etcdfix.cli.output import say, say_incomplete, say_other_prefixes
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import ReportPlace, report_place
from etcdfix.commands.opening import Inputs, open_plugins, open_source
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.errors import EndedEarly
from etcdfix.examine_jobs import Jobs
from etcdfix.report.render import Report
from etcdfix.text.commands import RunOptions

if TYPE_CHECKING:
    from etcdfix.commands.encryption.whole import Looked
    from etcdfix.encryption.config import EncryptionConfiguration
    from etcdfix.encryption.kms.plugins import KMSPlugins
    from etcdfix.graph.cluster import ClusterIndex, Keep
    from etcdfix.sources.base import Source

T = TypeVar("T")


class Look(msgspec.Struct, kw_only=True):
    """What is open, and what is said once the report is written."""

    inputs: Inputs
    configuration: EncryptionConfiguration | None
    source: Source
    place: ReportPlace
    plugins: KMSPlugins | None
    jobs: Jobs
    reasons: Sequence[str] = ()

    @property
    def means(self) -> dict[str, Any]:
        """The arguments of every pass over many values."""
        return {"plugins": self.plugins, "progress": progress_of(self.source), "jobs": self.jobs}

    def tell(self, report: Report, ended: EndedEarly | None, run: RunOptions) -> int:
        """Write a report; return its exit code."""
        self.place.show(report, run)
        self.reasons = getattr(report, "incomplete_reasons", ())
        return report_exit_code(report, ended)

    def tell_of_everything(self, found: Looked[Any], run: RunOptions) -> int:
        """Write the report of a look at everything, where anything was there; return its exit code."""
        whole = found.whole
        if not whole.below_prefix:
            self.nothing_examined(whole.problems, whole.ended, whole.suggested_prefixes)
        return self.tell(found.report, whole.ended, run)

    def index(self, keep: Keep, make: Callable[[ClusterIndex], T]) -> tuple[ClusterIndex, T]:
        """Look at who refers to whom, everywhere; return it with what is made of it, once more if ended meanwhile.

        Raises:
            SourceError: Nothing could be read.
        """
        from etcdfix.graph.cluster import index_cluster  # noqa: PLC0415 - few need it

        request = self.inputs.reading(self.configuration)
        request = msgspec.structs.replace(request, run=with_what_it_keeps(request.run, self.source))
        found = index_cluster(self.source, request, keep=keep, **self.means)
        if not found.below_prefix:
            self.nothing_examined(found.index.problems, found.ended, found.suggested_prefixes)
        try:
            return found, make(found)
        except KeyboardInterrupt as exc:
            ended = EndedEarly.of(exc)
        found.index.problems.append(f"{ended.reason} before the end")
        found = msgspec.structs.replace(found, ended=ended)
        return found, make(found)

    def nothing_examined(
        self, problems: Sequence[str], ended: EndedEarly | None, suggested_prefixes: Sequence[str]
    ) -> NoReturn:
        """Say that nothing was examined, and why that may be; end the command."""
        prefix = self.inputs.etcd_prefix
        if problems:
            say_incomplete(problems)
            say(f"NOTHING WAS EXAMINED: no key below {prefix} was seen, and not everything could be read")
        else:
            say(f"NOTHING WAS EXAMINED: no key starts with {prefix}")
            say_other_prefixes(suggested_prefixes)
        code = int(ExitCode.SOURCE)
        if ended is not None:
            code = ended.bare_exit_code if problems else ended.exit_code
        click.get_current_context().exit(code)


@contextlib.contextmanager
def open_look(
    options: dict[str, Any],
    inputs: Inputs,
    configuration: EncryptionConfiguration | None,
    *others: EncryptionConfiguration,
    besides: Sequence[Path | None] = (),
) -> Iterator[Look]:
    """Open what is read, where the report goes, and the KMS plugins of the configurations; say what is incomplete.

    Args:
        options: What click collected, of the report and of the processes.
        inputs: What is read.
        configuration: Today's.
        others: Configurations whose plugins are asked, too.
        besides: Further files, over which no report is written.

    Raises:
        ConfigurationError: Options make no sense.
        SourceError: Nothing can be read.
    """
    with (
        open_source(inputs, say=say) as source,
        report_place(options["output_file"], (*read_files(inputs), *besides), options["output"]) as place,
        open_plugins(inputs, configuration, *others) as plugins,
    ):
        look = Look(
            inputs=inputs,
            configuration=configuration,
            source=source,
            place=place,
            plugins=plugins,
            jobs=options.get("jobs", 1),
        )
        yield look
    say_incomplete(look.reasons)


def read_files(inputs: Inputs) -> tuple[Path | None, ...]:
    """Return the files that these options name, over which no report is written."""
    return (inputs.file, inputs.encryption_config, inputs.manifest, *inputs.tls_files)
