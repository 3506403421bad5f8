"""Archives that are the same bytes for the same files: sorted, owned by nobody in particular, one time for all."""

from __future__ import annotations

import gzip
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast


def write_tar(
    target: IO[bytes], root: Path, *, below: str, epoch: int, modes: Mapping[str, int] | None = None
) -> None:
    """Write a directory and all that is in it as a tar file.

    Args:
        target: Where it goes.
        root: The directory.
        below: Its name in the archive; "" to begin with what is in it.
        epoch: The time of every entry, in seconds since 1970.
        modes: Permissions of some entries, by their name in the archive; else 755 for what can be executed and for
            directories, 644 for the rest.
    """
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted([*([root] if below else []), *root.rglob("*")]):
            name = "/".join([*([below] if below else []), *path.relative_to(root).parts])
            entry = tar.gettarinfo(path, name)
            if entry.type == tarfile.LNKTYPE:  # a second name of a file here says nothing there
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch
            executable = entry.isdir() or entry.issym() or bool(entry.mode & stat.S_IXUSR)
            entry.mode = (modes or {}).get(name, 0o755 if executable else 0o644)
            if entry.isreg():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)


def write_archive(target: Path, root: Path, *, epoch: int) -> None:
    """Write a directory under its own name as a ``.tar.gz``."""
    with target.open("wb") as file, compressing(file) as stream:
        write_tar(stream, root, below=root.name, epoch=epoch)


def compressing(file: IO[bytes]) -> IO[bytes]:
    """Return a stream that compresses into a file, with no name and no time in it."""
    return cast("IO[bytes]", gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0))
