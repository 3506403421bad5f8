"""Places without network, and roots without an interpreter or a shell: what a node without either is like."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

NOBODY = 65532

# Brings up loopback in what unshare has made, and stays until standard input ends.
_HOLD = """
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anything:
    fcntl.ioctl(anything, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
print("up", flush=True)
sys.stdin.read()
"""


class Nowhere:
    """Namespaces of network and mounts of their own, with loopback and nothing else.

    Args:
        holder: The process that keeps them.
    """

    def __init__(self, holder: int) -> None:
        self._enter = ["nsenter", f"--net=/proc/{holder}/ns/net", f"--mount=/proc/{holder}/ns/mnt"]

    def within(self, *command: str | Path, directory: Path = Path("/")) -> list[str | Path]:
        """Return the command that runs another one there, in a directory."""
        return [*self._enter, f"--wd={directory}", *command]

    def mount(self, *arguments: str | Path) -> None:
        subprocess.run(self.within("mount", *arguments), check=True)

    def reaches(self, address: str) -> bool:
        """Whether something can be sent to an address."""
        tried = "import socket, sys; socket.create_connection((sys.argv[1], 80), 2)"
        command = self.within(sys.executable, "-c", tried, address)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def nowhere() -> Iterator[Nowhere]:
    """Make them, and leave nothing of them.

    Raises:
        PermissionError: They cannot be made here, and why.
    """
    command = ["unshare", "--net", "--mount", sys.executable, "-c", _HOLD]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            if holder.stdout.readline() != "up\n":
                raise PermissionError(f"no namespaces: {holder.stderr.read().strip()}")
            yield Nowhere(holder.pid)
        finally:
            holder.stdin.close()


class Root:
    """A root directory that holds a C library, libz, and what is put into it.

    Args:
        folder: Where it is made.
        place: From where it is entered. It is read-only there, but for ``/tmp``, where nothing can be executed and
            nothing lasts, and ``/data``.
    """

    def __init__(self, folder: Path, place: Nowhere) -> None:
        self.folder = folder
        self._place = place
        for name in ("data", "dev", "proc", "tmp"):
            (folder / name).mkdir()
        for library in _c_library():
            target = folder / library.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)

    def close_it(self) -> None:
        """Make it read-only; nothing can be put into it any more."""
        for device in ("null", "urandom"):
            (self.folder / "dev" / device).touch()
        self._place.mount("--bind", self.folder, self.folder)
        self._place.mount("--bind", self.folder / "data", self.folder / "data")
        self._place.mount("-o", "remount,bind,ro", self.folder)
        self._place.mount("-t", "proc", "proc", self.folder / "proc")
        for device in ("null", "urandom"):
            self._place.mount("--bind", f"/dev/{device}", self.folder / "dev" / device)
        self._place.mount("-t", "tmpfs", "-o", "noexec,nosuid,mode=1777", "tmpfs", self.folder / "tmp")

    def command(self, *command: str, user: int = 0) -> list[str | Path]:
        """Return the command that runs another one in it."""
        return self._place.within("chroot", f"--userspec={user}:{user}", self.folder, *command)


def _c_library() -> Iterator[Path]:
    """Yield the loader and the libraries that the executable expects of every system."""
    shown = subprocess.run(["ldd", sys.executable], check=True, capture_output=True, text=True).stdout
    loader = Path(next(iter(re.findall(r"^\t(/\S+) \(0x", shown, re.MULTILINE))))
    yield loader
    (libc,) = (Path(path) for path in re.findall(r"=> (/\S+/libc\.so\.6) ", shown))
    for name in ("libc", "libm", "libdl", "libpthread", "librt", "libutil", "libz"):
        yield from libc.parent.glob(f"{name}.so.*")


def bare(**variables: str) -> dict[str, str]:
    """Return the variables that a command has there: none of ours."""
    return {"HOME": "/nonexistent", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables}


def can_make_namespaces() -> str:
    """Return why namespaces cannot be made here, "" where they can."""
    if os.getuid() != 0:
        return "only root makes namespaces and changes its root directory"
    missing = [
        program for program in ("unshare", "nsenter", "chroot", "mount") if shutil.which(program) is None
    ]
    if missing:
        return f"not installed here: {', '.join(missing)}"
    try:
        with nowhere():
            return ""
    except PermissionError as exc:
        return str(exc)


def completed(command: Sequence[str | Path], **settings: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever its exit code is."""
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command, capture_output=True, text=True, check=False, **{"env": bare(), **settings}
    )
