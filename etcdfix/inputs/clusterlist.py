"""The list of the clusters of a fleet: one a line, so that a Job's pod finds its own by the number of the line.

Format (ours): UTF-8, a line feed after each line, four fields with one tab between them: the cluster's name, the path
of its snapshot, that of its EncryptionConfiguration, that of its baseline; ``-`` for no configuration and for no
baseline. Line I belongs to index I, counted from 0, for as long as the Job runs. So there is nothing else in the file:
a comment or an empty line would give every later line another index in another reader.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError, why
from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, read_input
from etcdfix.text.words import counted

FIELDS: Final = ("name", "snapshot", "configuration", "baseline")
_NONE: Final = "-"
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""A DNS label: safe as the name of a file, in a path, and as the label of a pod."""
_MOST_SHOWN: Final = 80
_HINT: Final = "each line is NAME, SNAPSHOT, CONFIGURATION and BASELINE with one tab between them, - for none"


class ListedCluster(msgspec.Struct, frozen=True):
    """One line of the list.

    Attributes:
        index: Number of its line, from 0: ``JOB_COMPLETION_INDEX``.
        name: A DNS label, once in the list.
        snapshot: Its file.
        configuration: The EncryptionConfiguration; None for none.
        baseline: An earlier report; None for none.
    """

    index: int
    name: str
    snapshot: Path
    configuration: Path | None
    baseline: Path | None

    @property
    def report_name(self) -> str:
        """Name of the file that its report has in the directory of reports."""
        return f"{self.name}.json"


def load_cluster_list(path: Path) -> tuple[ListedCluster, ...]:
    """Read the list of a fleet's clusters.

    Raises:
        ConfigurationError: The file cannot be read, or a line of it is not as it has to be.
    """
    where = f"--clusters {path}"
    try:
        raw = read_input(path, most_bytes=MAX_SETTINGS_BYTES)
    except OSError as exc:
        raise ConfigurationError(f"{where}: {why(exc)}") from exc
    try:
        text = raw.decode()
    except UnicodeDecodeError as exc:
        number = raw.count(b"\n", 0, exc.start) + 1
        raise ConfigurationError(
            f"{where}: line {number} is not UTF-8 (byte {exc.start} of the file)"
        ) from exc
    clusters: dict[str, ListedCluster] = {}
    # Not splitlines, which knows more ends of a line than the next reader does.
    for index, line in enumerate(text.removesuffix("\n").split("\n") if text else ()):
        try:
            _add(clusters, _cluster(index, line))
        except ValueError as exc:
            raise ConfigurationError(f"{where}: line {index + 1}: {exc}", hint=_HINT) from exc
    if not clusters:
        raise ConfigurationError(f"{where}: it names no cluster", hint=_HINT)
    return tuple(clusters.values())


def _add(clusters: dict[str, ListedCluster], cluster: ListedCluster) -> None:
    earlier = clusters.get(cluster.name)
    if earlier is not None:
        raise ValueError(f"the name {cluster.name} stands in line {earlier.index + 1} already")
    clusters[cluster.name] = cluster


def _cluster(index: int, line: str) -> ListedCluster:
    """Return the cluster of a line.

    Raises:
        ValueError: Why it is none.
    """
    if not line.strip():
        raise ValueError("it is empty; every line has the index of one cluster, so none may be")
    if line.lstrip().startswith("#"):
        raise ValueError("it is a comment; every line has the index of one cluster, so there are no comments")
    if line.endswith("\r"):
        raise ValueError("it ends with a carriage return; the lines end with a line feed alone")
    fields = line.split("\t")
    if len(fields) != len(FIELDS):
        raise ValueError(f"it has {counted(len(fields), 'field')}, expected {len(FIELDS)}")
    for called, field in zip(FIELDS, fields, strict=True):
        if not field.strip() or field != field.strip():
            raise ValueError(f"the {called} is empty, or has a space at its start or end: {_shown(field)}")
        if not field.isprintable():
            raise ValueError(f"the {called} has a character that cannot be seen: {_shown(field)}")
    name, snapshot, configuration, baseline = fields
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"the name {_shown(name)} is none for a report's file: at most 63 of a-z, 0-9 and -, the first and the "
            "last no -"
        )
    if snapshot == _NONE:
        raise ValueError("it names no snapshot")
    return ListedCluster(index, name, Path(snapshot), _path(configuration), _path(baseline))


def _path(field: str) -> Path | None:
    return None if field == _NONE else Path(field)


def _shown(field: str) -> str:
    return repr(field if len(field) <= _MOST_SHOWN else f"{field[:_MOST_SHOWN]}…")
