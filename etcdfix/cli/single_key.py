"""What the commands that look at one etcd key share: where they write, and what they open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn, Protocol, TypeVar

import click

from etcdfix.cli.exit_codes import ExitCode
from etcdfix.cli.options import configuration_of, gather_inputs
from etcdfix.cli.output import say, say_incomplete, say_next
from etcdfix.errors import EndedEarly
from etcdfix.inputs.outputfile import destination
from etcdfix.operations.look.missing import why_missing
from etcdfix.operations.opening import Inputs, open_plugins, open_source
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
    """What a command reads from and writes to.

    Attributes:
        inputs: What the options say.
        configuration: That they name; None for none.
        source: Where the key is.
        stream: Where the report goes.
        plugins: The KMS plugins; None where none is asked.
    """

    inputs: Inputs
    configuration: EncryptionConfiguration | None
    source: Source
    stream: BinaryIO
    plugins: KMSPlugins | None

    def kept(
        self, key: bytes, report: _Made | None, problems: Sequence[str], ended: EndedEarly | None
    ) -> _Made:
        """Return the report, and say why it is not of everything; end the command where there is none.

        Without a report no file takes the place of an earlier one.

        Args:
            key: That it is about.
            report: None where nothing is kept under the key.
            problems: Why not everything was seen, where there is no report.
            ended: What ended the look early; None where nothing did.
        """
        say_incomplete(report.incomplete_reasons if report is not None else problems)
        return report if report is not None else self._nothing(key, ended, incomplete=bool(problems))

    def _nothing(self, key: bytes, ended: EndedEarly | None, *, incomplete: bool) -> NoReturn:
        where = display(key)
        if incomplete:
            say(f"{where}: nothing of it was seen; not everything could be read")
        else:
            say(f"nothing is stored under {where}, and no revision of it is kept")
        layout = StorageLayout(self.inputs.etcd_prefix)
        hint = why_missing(self.source, layout, key) if not incomplete else ""
        if hint:
            say_next(hint)
        code = int(ExitCode.INCOMPLETE if incomplete else ExitCode.SOURCE)
        click.get_current_context().exit(code if ended is None else ended.bare_exit_code)


@contextlib.contextmanager
def single_key(options: dict[str, Any], key: bytes, output_file: Path | None) -> Iterator[Opened]:
    """Open what one key is read from, and where the report goes.

    Raises:
        ConfigurationError: Options make no sense.
        SourceError: The source cannot be read.
    """
    inputs = gather_inputs(options, key=key)
    configuration = configuration_of(inputs)
    files = (inputs.file, inputs.encryption_config, inputs.manifest, *inputs.tls_files)
    with (
        open_source(inputs, say=say) as source,
        destination(output_file, files) as stream,
        open_plugins(inputs, configuration) as plugins,
    ):
        yield Opened(inputs, configuration, source, stream, plugins)
        stream.flush()
