"""What a command that looks has open: the source, where its report goes, and KMS plugins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from etcdfix.cli.output import say
from etcdfix.cli.report_place import ReportPlace, report_place
from etcdfix.operations.opening import Inputs, open_plugins, open_source

if TYPE_CHECKING:
    from etcdfix.encryption.config import EncryptionConfiguration
    from etcdfix.encryption.kms.plugins import KMSPlugins
    from etcdfix.sources.base import Source


@contextlib.contextmanager
def open_all(
    inputs: Inputs,
    output_file: Path | None,
    form: str,
    *configurations: EncryptionConfiguration | None,
    besides: tuple[Path | None, ...] = (),
) -> Iterator[tuple[Source, ReportPlace, KMSPlugins | None]]:
    """Open what is read, where the report goes, and the KMS plugins of the configurations.

    Raises:
        ConfigurationError: Options make no sense.
        SourceError: Nothing can be read.
    """
    with (
        open_source(inputs, say=say) as source,
        report_place(output_file, (*read_files(inputs), *besides), form) as place,
        open_plugins(inputs, *configurations) as plugins,
    ):
        yield source, place, plugins


def read_files(inputs: Inputs) -> tuple[Path | None, ...]:
    """Return the files that these options name, over which no report is written."""
    return (inputs.file, inputs.encryption_config, inputs.manifest, *inputs.tls_files)
