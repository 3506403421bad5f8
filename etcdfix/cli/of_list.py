"""``--clusters``, ``--index`` and ``--reports``: a line of a fleet's list says what is read and where it goes.

This is the command of a Job's pod: no shell has to cut a line, and no name of a stranger is ever part of a command.
"""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from etcdfix.cli.options import FILE, Command, option_group
from etcdfix.errors import ConfigurationError, why
from etcdfix.inputs.clusterlist import ListedCluster, load_cluster_list

_FORM: Final = "json"
_TAKEN: Final = (
    "snapshot", "kine", "manifest", "encryption_config", "cluster_name", "baseline", "output_file",
)  # fmt: skip
"""Parameters that the line decides: what stood in a variable or beside it would be of another scan."""

_list_options = option_group(
    click.option(
        "--clusters", type=FILE, metavar="FILE",
        help="The list of a fleet's clusters. One line of it says what is read: NAME, SNAPSHOT, CONFIGURATION and "
        "BASELINE with one tab between them, - for none.",
    ),
    click.option(
        "--index", type=click.IntRange(min=0), metavar="I",
        help="Which line of --clusters, counted from 0: the completion index of a Job's pod.",
    ),
    click.option(
        "--reports", type=FILE, metavar="DIR",
        help="With --clusters: write the json report to DIR/NAME.json, once it is whole. DIR is made where its parent "
        "is there.",
    ),
)  # fmt: skip


def of_list(command: Command) -> Command:
    """Let one line of a list decide what a scan reads and where its report goes; the list itself stays an option."""

    @functools.wraps(command)
    def run(**options: Any) -> Any:
        return command(**_with_line(options))

    return _list_options(run)


def _with_line(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a scan with what the line says among them.

    Raises:
        ConfigurationError: The list cannot be read, has no such line, or another option says the same.
        click.UsageError: One of the three options is there without the others.
    """
    index: int | None = options.pop("index")
    reports: Path | None = options.pop("reports")
    path: Path | None = options["clusters"]
    if path is None and index is None and reports is None:
        return options
    if path is None or index is None or reports is None:
        raise click.UsageError("--clusters, --index and --reports go together")
    _refuse_what_the_line_says(click.get_current_context(), path)
    cluster = _line(path, index)
    return options | {
        "snapshot": cluster.snapshot,
        "encryption_config": cluster.configuration,
        "cluster_name": cluster.name,
        "baseline": cluster.baseline,
        "output": _FORM,
        "output_file": _directory(reports) / cluster.report_name,
    }


def _line(path: Path, index: int) -> ListedCluster:
    clusters = load_cluster_list(path)
    if index >= len(clusters):
        raise ConfigurationError(
            f"--index {index}: {path} has the lines 0 to {len(clusters) - 1}",
            hint="a Job has as many completions as its list has lines",
        )
    return clusters[index]


def _refuse_what_the_line_says(context: click.Context, path: Path) -> None:
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") in {None, ParameterSource.DEFAULT}:
            continue
        form = parameter.name == "output" and context.params["output"] != _FORM
        if parameter.name in _TAKEN or form:
            name = next(word for word in parameter.opts if word.startswith("--"))
            raise ConfigurationError(
                f"{name}: what is read, and where the report goes, stands in the line of {path}; the report is json",
                hint=f"leave {name} and its ETCDFIX_ variable out",
            )


def _directory(path: Path) -> Path:
    """Return the directory of the reports, made where its parent has none of that name: no shell makes it in a pod."""
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as exc:
        raise ConfigurationError(f"--reports {path}: {os.strerror(errno.ENOTDIR)}") from exc
    except OSError as exc:
        raise ConfigurationError(f"--reports {path}: {why(exc)}") from exc
    return path
