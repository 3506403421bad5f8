"""Where a report goes, and one line about it once it stands in a file: for every command with ``--output-file``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from etcdfix.cli.output import say
from etcdfix.inputs.outputfile import destination, is_file_by_itself
from etcdfix.report.document import CAP
from etcdfix.report.render import Report, write
from etcdfix.text.commands import RunOptions
from etcdfix.text.notes import Note


class ReportPlace:
    """Where a report goes, and what is said of it where nobody sees it written."""

    def __init__(self, stream: BinaryIO, form: str, *, to_file: bool = False) -> None:
        self.stream = stream
        self.form = form
        self.sentence = ""
        self._to_file = to_file

    def show(self, report: Report, run: RunOptions, *, cap: int = CAP) -> None:
        """Write a report in the form that was asked for."""
        write(report, self.form, self.stream, run, cap=cap)
        self.wrote(report)

    def wrote(self, report: Report) -> None:
        """Take what is said of a report that somebody has written here."""
        if self._to_file:
            from etcdfix.report.render.text import headline_of  # noqa: PLC0415 - only where it is said

            self.sentence = headline_of(report.document())


@contextmanager
def report_place(
    output_file: Path | None,
    inputs: Iterable[Path | None],
    form: str,
    *,
    private: bool = False,
    may_replace_plan: bool = False,
) -> Iterator[ReportPlace]:
    """Yield where a report goes; once it stands in a file, say so on standard error, and with what it begins.

    Raises:
        ConfigurationError: It cannot be written, or what stands there may not be replaced.
        OSError: What was written could not take its name in the end.
    """
    to_file = output_file is not None and is_file_by_itself(output_file)
    with destination(output_file, inputs, private=private, may_replace_plan=may_replace_plan) as stream:
        place = ReportPlace(stream, form, to_file=to_file)
        yield place
        stream.flush()
    if to_file:
        what = f": {place.sentence}" if place.sentence else ""
        say(Note(f"wrote {output_file} ({form}){what}"))
