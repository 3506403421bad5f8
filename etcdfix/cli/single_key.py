"""What the commands that look at one etcd key share: where they write, and what they open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

import click

from etcdfix.cli.exit_codes import ExitCode
from etcdfix.cli.options import Decorator, configuration_of, gather_inputs, option_group
from etcdfix.cli.output import say
from etcdfix.errors import EndedEarly
from etcdfix.inputs.outputfile import destination
from etcdfix.operations.opening import Inputs, open_plugins, open_source
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.encryption.config import EncryptionConfiguration
    from etcdfix.encryption.kms.plugins import KMSPlugins


def document_options(formats: Sequence[str]) -> Decorator:
    """Return a decorator that adds ``-o`` and ``--output-file``."""
    return option_group(
        click.option(
            "-o",
            "--output",
            "output",
            type=click.Choice(formats),
            default="table",
            show_default=True,
            envvar="ETCDFIX_OUTPUT",
            help="Form of the report.",
        ),
        click.option(
            "--output-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            envvar="ETCDFIX_OUTPUT_FILE",
            help="Write to this file instead of standard output.",
        ),
    )


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

    @staticmethod
    def nothing(ended: EndedEarly | None, *, incomplete: bool) -> NoReturn:
        """End the command without a report: no file takes the place of an earlier one."""
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
    files = (inputs.file, inputs.encryption_config, options.get("manifest"), *inputs.tls_files)
    with (
        open_source(inputs, say=say) as source,
        destination(output_file, files) as stream,
        open_plugins(inputs, configuration) as plugins,
    ):
        yield Opened(inputs, configuration, source, stream, plugins)
        stream.flush()
