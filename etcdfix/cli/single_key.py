"""What the commands that look at one etcd key share: where they write, and what they open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

import click

from etcdfix.cli.exit_codes import ExitCode
from etcdfix.cli.opened import open_all
from etcdfix.cli.options import configuration_of, gather_inputs
from etcdfix.cli.output import say, say_incomplete, say_next
from etcdfix.cli.report_place import ReportPlace
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.errors import EndedEarly
from etcdfix.operations.look.in_scope import key_of
from etcdfix.operations.look.missing import why_missing
from etcdfix.operations.opening import Inputs, without_candidates
from etcdfix.resource_words import builtin_word
from etcdfix.scope import ObjectWord
from etcdfix.sources.base import Source
from etcdfix.storagekey import StorageLayout, display

if TYPE_CHECKING:
    from etcdfix.encryption.config import EncryptionConfiguration
    from etcdfix.encryption.kms.plugins import KMSPlugins


class _Report(Protocol):
    @property
    def incomplete_reasons(self) -> Sequence[str]: ...


_Made = TypeVar("_Made", bound=_Report)


class Opened(NamedTuple):
    """What a command reads from and writes to."""

    key: bytes
    inputs: Inputs
    configuration: EncryptionConfiguration | None
    source: Source
    place: ReportPlace
    plugins: KMSPlugins | None

    def kept(self, report: _Made | None, problems: Sequence[str], ended: EndedEarly | None) -> _Made:
        """Return the report, and say why it is not of everything; end the command where there is none.

        Without a report no file takes the place of an earlier one.

        """
        say_incomplete(report.incomplete_reasons if report is not None else problems)
        return report if report is not None else self._nothing(ended, incomplete=bool(problems))

    def _nothing(self, ended: EndedEarly | None, *, incomplete: bool) -> NoReturn:
        where = display(self.key)
        if incomplete:
            say(f"{where}: nothing of it was seen; not everything could be read")
        else:
            at = f" at revision {self.inputs.revision}" if self.inputs.revision else ""
            say(
                f"nothing is stored under {where}{at}, and no revision of it{' before that' if at else ''} is kept"
            )
        layout = StorageLayout(self.inputs.etcd_prefix)
        hint = why_missing(self.source, layout, self.key) if not incomplete else ""
        if hint:
            say_next(hint)
        code = int(ExitCode.INCOMPLETE if incomplete else ExitCode.SOURCE)
        click.get_current_context().exit(code if ended is None else ended.bare_exit_code)


def found_key(
    source: Source,
    inputs: Inputs,
    configuration: EncryptionConfiguration | None,
    word: ObjectWord,
    plugins: KMSPlugins | None,
) -> bytes:
    """Return the etcd key of the one object that a word names, and say which it is.

    Raises:
        ConfigurationError: It names several objects, or its resource does not exist.
        ObjectNotFound: No namespace was given, and none has the object.
        SourceError: The source cannot be read.
    """
    key = key_of(source, inputs.reading(configuration), word, plugins)
    say(f"{word} is {display(key)}")
    return key


@contextlib.contextmanager
def single_key(
    options: dict[str, Any],
    wanted: bytes | ObjectWord,
    output_file: Path | None,
    form: str,
    named: Sequence[Named] = (),
    *,
    everything: bool = False,
) -> Iterator[Opened]:
    """Open what one object is read from, every etcd for everything, and where the report goes: over nothing named.

    Raises:
        ConfigurationError: Options make no sense, or no one object was named.
        ObjectNotFound: No namespace was given, and none has the object.
        SourceError: The source cannot be read.
    """
    if everything:
        inputs = gather_inputs(options, each_from_its_own=True)
    elif isinstance(wanted, ObjectWord):
        inputs = gather_inputs(options, resources=(builtin_word(wanted.resource),))
    else:
        inputs = gather_inputs(options, key=wanted)
    configuration = configuration_of(inputs)
    besides = tuple(one.path for one in named)
    candidates = [one.path for one in named if one.place is Place.CANDIDATE]
    inputs = without_candidates(inputs, candidates)
    with open_all(inputs, output_file, form, configuration, besides=besides) as (source, place, plugins):
        key = wanted
        if isinstance(key, ObjectWord):
            key = found_key(source, inputs, configuration, key, plugins)
        yield Opened(key, inputs, configuration, source, place, plugins)
