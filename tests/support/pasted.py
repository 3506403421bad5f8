"""Blocks of the documentation, pasted into a shell: away from the network and from what this machine keeps.

The shell has a network of its own with nothing but loopback, so a server of a block may take any port and no command
reaches an etcd of this machine; processes of its own, which end with it; and an empty ``/var/lib``.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from etcdfix.testing.places import NoEtcdError, find_tools
from tests.support.command_blocks import REPOSITORY, Block
from tests.support.documented_commands import KNOWN
from tests.support.shell_commands import commands_in, statements

_SECONDS: Final = 300
_SYSTEM: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_NAMESPACES: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_USER: Final = () if os.geteuid() == 0 else ("--map-root-user",)
_LOOPBACK_UP: Final = """
import fcntl, os, socket, struct, sys
with socket.socket() as any_socket:  # SIOCSIFFLAGS, IFF_UP
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 1))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@functools.cache
def apart() -> list[str] | None:
    """Return what goes before a command to have it run apart, or None where that is not allowed."""
    return _allowed(*_NAMESPACES, *_USER)


@functools.cache
def own_var_lib(folder: Path) -> list[str] | None:
    """Return what goes before a command to have it see a folder as ``/var/lib``; None where that is not allowed."""
    mounting = 'mount --bind "$0" /var/lib && exec "$@"'
    return _allowed("unshare", "--mount", *_USER, "sh", "-c", mounting, str(folder))


def _allowed(*prefix: str) -> list[str] | None:
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return [*prefix]


def programs(folder: Path) -> Path:
    """Put into a folder what PATH begins with: this etcdfix, and etcd with etcdctl where there are any."""
    folder.mkdir()
    ours = folder / "etcdfix"
    ours.write_text(
        f"#!{sys.executable}\nimport sys\n\nsys.path[0] = {str(REPOSITORY)!r}\n"
        "from etcdfix.cli.root import main\n\nmain()\n"
    )
    ours.chmod(0o755)
    for name, path in _etcd_programs().items():
        (folder / name).symlink_to(path)
    return folder


@functools.cache
def _etcd_programs() -> dict[str, Path]:
    try:
        tools = find_tools()
    except NoEtcdError:
        return {}
    return {"etcd": tools.etcd, "etcdctl": tools.ctl, **({"etcdutl": tools.utl} if tools.utl else {})}


def missing(blocks: Sequence[Block]) -> list[str]:
    """Return the programs of blocks that this machine does not have."""
    named = {words[0] for block in blocks for words in commands_in(block.commands) if words}
    ours = {"etcdfix", *_etcd_programs()}
    found = subprocess.run(
        ["bash", "-c", 'for name; do type "$name" >&2 || echo "$name"; done', "bash", *sorted(named - ours)],
        env={"PATH": _SYSTEM},
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(set(found.stdout.split()) & set(KNOWN))


def paste(blocks: Sequence[Block], place: Path) -> str:
    """Run blocks one after the other in one shell, in a fresh folder, and return what they printed.

    Raises:
        AssertionError: A command did not end as the mark says; the text has which one, and all that was printed.
    """
    prefix = apart()
    assert prefix is not None
    folder, home, kept = place / "work", place / "home", place / "var-lib"
    for path in (folder, home, kept):
        path.mkdir()
    shutil.copytree(REPOSITORY / "fixtures", folder / "fixtures")
    script = place / "script"
    script.write_text(_script(blocks, kept))
    done = subprocess.run(
        [*prefix, sys.executable, "-c", _LOOPBACK_UP, "bash", str(script)],
        cwd=folder,
        env={"HOME": str(home), "PATH": f"{programs(place / 'bin')}:{_SYSTEM}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def _script(blocks: Sequence[Block], kept: Path) -> str:
    parts = [f"mount --bind '{kept}' /var/lib\n"]
    for block in blocks:
        assert block.mark is not None
        typed, codes = statements(block.commands), block.mark.exit_codes
        assert len(codes) <= len(typed), f"{block.where}: an exit code too many for its commands"
        expected = (*[0] * (len(typed) - len(codes)), *codes)
        for number, (words, code) in enumerate(zip(typed, expected, strict=True), 1):
            wrong = f"{block.where}: command {number} ended with exit code $__code, not {code}"
            parts.append(f'{words}\n__code=$?; [ "$__code" = {code} ] || {{ echo "{wrong}"; exit 125; }}\n')
    return "".join(parts)
