"""Files that must survive: which directories and files are accepted, and what each failure leaves."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from etcdfix.remediation import durable
from etcdfix.remediation.durable import (
    Filesystem,
    SafeDirectory,
    default_directory,
    filesystem_kind,
    find_mount_above,
    open_directory,
    read_limited,
    refuse_foreign_file,
    same_disk,
)
from etcdfix.remediation.errors import NotDurable, UnsafePlace
from tests.support.audit_logs import own_directory
from tests.support.durable_steps import (
    FILE_ACTIONS,
    REPLACE_ACTIONS,
    FailAt,
    step_names,
)

_ALL_ACTIONS = (*REPLACE_ACTIONS, "unlink file", "fsync directory")

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[SafeDirectory]:
    with open_directory(own_directory(tmp_path / "kept")) as opened:
        yield opened


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TestDirectories:
    def test_one_of_ours(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = own_directory(tmp_path / "kept")
        path.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        for named in (path, Path("kept")):
            with open_directory(named) as opened:
                assert opened.path == path
                assert os.path.samestat(os.fstat(opened.descriptor), path.stat())
            assert opened.descriptor == -1
            opened.close()

    def test_missing_and_named(self, tmp_path: Path) -> None:
        with pytest.raises(UnsafePlace, match="does not exist") as caught:
            open_directory(tmp_path / "kept")
        assert caught.value.exit_code == 4
        assert caught.value.path == tmp_path / "kept"
        assert not (tmp_path / "kept").exists()

    def test_missing_and_default(self, tmp_path: Path) -> None:
        seen: list[str] = []
        with open_directory(tmp_path / "state" / "etcdfix", create=True, step=seen.append):
            pass
        for made in (tmp_path / "state", tmp_path / "state" / "etcdfix"):
            assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert seen == [*step_names("directory", ("create directory", "fsync directory"))] * 2

    def test_symbolic_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One above it is resolved once; one that is the place itself, or appears after resolving, is refused."""
        own_directory(tmp_path / "real")
        own_directory(tmp_path / "real" / "kept")
        (tmp_path / "link").symlink_to("real")
        with open_directory(tmp_path / "link" / "kept") as opened:
            assert opened.path == tmp_path / "real" / "kept"
        with pytest.raises(UnsafePlace, match="link is a symbolic link or no directory"):
            open_directory(tmp_path / "link")
        monkeypatch.setattr(Path, "resolve", lambda self: self)
        with pytest.raises(UnsafePlace, match="link is a symbolic link"):
            open_directory(tmp_path / "link" / "kept")

    @pytest.mark.parametrize("mode", [0o770, 0o702, 0o720, 0o1777])
    def test_others_may_write(self, tmp_path: Path, mode: int) -> None:
        path = own_directory(tmp_path / "kept")
        path.chmod(mode)
        with pytest.raises(UnsafePlace, match=f"mode {mode:04o}: others may write"):
            open_directory(path)

    def test_everybody_may_write_above_it(self, tmp_path: Path) -> None:
        above = own_directory(tmp_path / "above")
        own_directory(above / "kept")
        above.chmod(0o777)
        with pytest.raises(UnsafePlace, match="everybody may write to a directory above it"):
            open_directory(above / "kept")
        above.chmod(0o1777)
        open_directory(above / "kept").close()

    @root_only
    @pytest.mark.parametrize(
        ("theirs", "asked", "words"),
        [
            ("kept", "kept", "belongs to uid 12345, expected 0"),
            # They may put another directory in its place, or let the link lead elsewhere.
            (".", "kept", "a directory above it belongs to uid 12345"),
            (".", "kept/deeper", "a directory above it belongs to uid 12345"),
            (".", "link/kept", "a directory above it belongs to uid 12345"),
        ],
    )
    def test_of_somebody_else(self, tmp_path: Path, theirs: str, asked: str, words: str) -> None:
        above, ours = own_directory(tmp_path / "above"), own_directory(tmp_path / "ours")
        own_directory(own_directory(above / "kept") / "deeper")
        own_directory(ours / "kept")
        (above / "link").symlink_to(ours)
        open_directory(above / asked).close()
        os.chown(above / theirs, 12345, 12345)
        for mode in (0o700, 0o1777):
            above.chmod(mode)
            with pytest.raises(UnsafePlace, match=words):
                open_directory(above / asked)
        if theirs == ".":
            with pytest.raises(UnsafePlace, match=words):
                open_directory(above / "new" / "kept", create=True)
            assert not (above / "new").exists()

    @root_only
    @pytest.mark.parametrize(
        ("caller", "taken"),
        [
            *(("12345", True), ("12346", False), ("", False), ("+12345", False), ("12345\n", False)),
            *(("012345", False), ("１２３４５", False)),
        ],
    )
    def test_below_a_directory_of_who_called_sudo(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller: str, taken: bool
    ) -> None:
        above = own_directory(tmp_path / "above")
        path = own_directory(above / "kept")
        os.chown(above, 12345, 12345)
        monkeypatch.setenv("SUDO_UID", caller)
        if taken:
            open_directory(path).close()
            os.chown(path, 12345, 12345)  # the directory itself must be ours all the same
        with pytest.raises(UnsafePlace, match="belongs to uid 12345"):
            open_directory(path)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)  # it counts for root alone
        assert durable._trusted_users() == {0, 1000}

    def test_cannot_be_opened_or_made(self, tmp_path: Path) -> None:
        with pytest.raises(NotDurable, match="File name too long"):
            open_directory(tmp_path / ("x" * 300))
        with pytest.raises(NotDurable, match="No space left"):
            open_directory(tmp_path / "kept", create=True, step=FailAt("directory: before create directory"))
        assert not (tmp_path / "kept").exists()


class TestCreate:
    def test_file_is_whole_private_and_announced(self, directory: SafeDirectory) -> None:
        seen: list[str] = []
        umask = os.umask(0o777)
        directory.step = seen.append
        try:
            directory.create("a", b"bytes", what="backup")
        finally:
            os.umask(umask)
        path = directory.path / "a"
        assert path.read_bytes() == b"bytes"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert seen == list(step_names("backup", FILE_ACTIONS))
        assert directory.names() == ["a"]

    def test_the_calls_are_really_made(
        self, directory: SafeDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each between what is announced before and after."""
        seen: list[str] = []

        def note(name: str, real: Callable[..., Any], *given: Any, **more: Any) -> Any:
            of_directory = name == "fsync" and stat.S_ISDIR(os.fstat(given[0]).st_mode)
            seen.append(f"{name} {'directory' if of_directory else 'file'}")
            return real(*given, **more)

        made = ("write file", "fsync file", "fsync directory", "rename file", "unlink file")
        for name in ("write", "fsync", "rename", "unlink"):
            monkeypatch.setattr(os, name, partial(note, name, getattr(os, name)))
        directory.step = seen.append
        directory.replace("a", b"bytes", what="head")
        directory.remove("a", what="head")
        assert directory.names() == []
        steps = [(f"head: before {action}", action, f"head: after {action}") for action in _ALL_ACTIONS]
        wanted = [name for step in steps for name in step if name.startswith("head: ") or name in made]
        begun = seen[seen.index(wanted[0]) :]  # before, what a crash left is removed
        assert [name for name in begun if name.startswith("head: ") or name in made] == wanted

    def test_what_is_there_stays(self, directory: SafeDirectory, tmp_path: Path) -> None:
        (directory.path / "a").write_bytes(b"old")
        (directory.path / "dangling").symlink_to(tmp_path / "other")
        for name in ("a", "dangling"):
            with pytest.raises(NotDurable, match="File exists"):
                directory.create(name, b"new", what="backup")
        assert (directory.path / "a").read_bytes() == b"old"
        assert not (tmp_path / "other").exists()

    @pytest.mark.parametrize("at", step_names("backup", FILE_ACTIONS))
    def test_failure_leaves_nothing(self, directory: SafeDirectory, at: str) -> None:
        before = open_descriptors()
        directory.step = FailAt(at)
        with pytest.raises(NotDurable, match=r"backup .*/a: No space left on device") as caught:
            directory.create("a", b"bytes", what="backup")
        assert directory.names() == []
        assert caught.value.path == directory.path / "a"
        assert open_descriptors() == before

    @pytest.mark.parametrize("other", [b"bytez", b"bytes and more"])
    def test_other_bytes_come_back(self, directory: SafeDirectory, other: bytes) -> None:
        def change(name: str) -> None:
            if name == "backup: before read back":
                (directory.path / "a").write_bytes(other)

        directory.step = change
        with pytest.raises(NotDurable, match="other bytes came back"):
            directory.create("a", b"bytes", what="backup")
        assert directory.names() == []


class TestReplaceAndRemove:
    def test_replace(self, directory: SafeDirectory) -> None:
        seen: list[str] = []
        directory.replace("head", b"1", what="audit head")
        (directory.path / "head.new").write_bytes(b"half")  # as a crash leaves it
        directory.step = seen.append
        directory.replace("head", b"2", what="audit head")
        assert (directory.path / "head").read_bytes() == b"2"
        assert seen == list(step_names("audit head", REPLACE_ACTIONS))
        assert directory.names() == ["head"]

    def test_a_planted_link_is_not_followed(self, directory: SafeDirectory, tmp_path: Path) -> None:
        (tmp_path / "victim").write_bytes(b"kept")
        (directory.path / "head.new").symlink_to(tmp_path / "victim")
        (directory.path / "head").symlink_to(tmp_path / "victim")
        directory.replace("head", b"2", what="audit head")
        assert (tmp_path / "victim").read_bytes() == b"kept"
        assert not (directory.path / "head").is_symlink()

    @pytest.mark.parametrize("at", sorted(set(step_names("audit head", REPLACE_ACTIONS))))
    def test_failure_leaves_the_old_or_the_new(self, directory: SafeDirectory, at: str) -> None:
        directory.replace("head", b"old", what="audit head")
        directory.step = FailAt(at)
        with pytest.raises(NotDurable, match="No space left"):
            directory.replace("head", b"new", what="audit head")
        assert (directory.path / "head").read_bytes() == (b"new" if "after rename" in at else b"old")


class TestRead:
    def test_link_and_pipe(self, directory: SafeDirectory) -> None:
        (directory.path / "link").symlink_to("a")
        os.mkfifo(directory.path / "pipe")
        with pytest.raises(OSError, match="symbolic links"):
            directory.read("link", limit=10)
        with pytest.raises(OSError, match="not a regular file"):
            directory.read("pipe", limit=10)

    @pytest.mark.parametrize("chunk", [5, 1 << 20])
    @pytest.mark.parametrize(("size", "comes"), [(0, 0), (5, 5), (6, 6), (99, 6)])
    def test_limit(
        self, directory: SafeDirectory, monkeypatch: pytest.MonkeyPatch, size: int, comes: int, chunk: int
    ) -> None:
        """One byte past the limit shows, also where it is read in parts."""
        monkeypatch.setattr(durable, "_CHUNK", chunk)
        directory.create("a", bytes(size), what="backup")
        assert len(directory.read("a", limit=5)) == comes


class TestForeignFiles:
    def check(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            refuse_foreign_file(descriptor, path, what="audit log")
        finally:
            os.close(descriptor)

    @pytest.mark.parametrize("mode", [0o620, 0o602])
    def test_others_may_write(self, tmp_path: Path, mode: int) -> None:
        (tmp_path / "a").touch()
        (tmp_path / "a").chmod(mode)
        with pytest.raises(UnsafePlace, match=f"mode 0{mode:o}: others may write"):
            self.check(tmp_path / "a")

    @root_only
    def test_second_name_or_owner(self, tmp_path: Path) -> None:
        with pytest.raises(UnsafePlace, match="not a regular file"):
            self.check(tmp_path)
        (tmp_path / "a").touch(0o600)
        (tmp_path / "b").hardlink_to(tmp_path / "a")
        with pytest.raises(UnsafePlace, match="has 2 names"):
            self.check(tmp_path / "a")
        os.chown(tmp_path / "a", 12345, 12345)
        with pytest.raises(UnsafePlace, match="belongs to uid 12345"):
            self.check(tmp_path / "a")


MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:40 / /mnt/back\040up\134s rw master:1 propagate_from:2 - tmpfs none rw
cut
32 27 0:42 / /run rw - tmpfs under rw
33 27 0:43 / /run rw - tmpfs over rw
31 27 0:41 / /cut rw - ext4
"""


class TestFilesystems:
    def test_of_a_real_path(self, tmp_path: Path) -> None:
        assert filesystem_kind(Path("/proc")).kind == "proc"
        assert filesystem_kind(tmp_path).kind not in {"", "proc"}
        with pytest.raises(FileNotFoundError):
            filesystem_kind(tmp_path / "none")

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("/", "/dev/vda"),
            ("/mnt/back up\\s", "none"),
            ("/mnt/back up\\s/a/b", "none"),
            ("/mnt/back up\\sister", "/dev/vda"),
            ("/cut", "/dev/vda"),
            ("/run/x", "over"),
            ("/proc/self", "proc"),
        ],
    )
    def test_table_by_path(self, path: str, expected: str) -> None:
        assert find_mount_above(Path(path), MOUNTS).source == expected

    @pytest.mark.parametrize(("source", "same"), [("/dev/sda2", True), ("none", False)])
    def test_same_disk(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, same: bool
    ) -> None:
        assert same_disk(own_directory(tmp_path / "one"), own_directory(tmp_path / "two"))
        assert not same_disk(tmp_path, Path("/proc"))
        monkeypatch.setattr(durable, "filesystem_kind", lambda _: Filesystem("btrfs", source, "/"))
        assert same_disk(tmp_path, Path("/proc")) is same
        assert same_disk(tmp_path, tmp_path)


class TestDefaults:
    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            ("/state", "/state/etcdfix"),
            ("relative", "/home/ada/.local/state/etcdfix"),
            ("", "/home/ada/.local/state/etcdfix"),
        ],
    )
    def test_others(self, monkeypatch: pytest.MonkeyPatch, state: str, expected: str) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setenv("XDG_STATE_HOME", state)
        monkeypatch.setenv("HOME", "/home/ada")
        assert default_directory() == Path(expected)


class TestLockedFile:
    def test_it_is_made_and_only_one_has_it(self, directory: SafeDirectory) -> None:
        descriptor = directory.open_locked("file", what="thing")
        before = open_descriptors()
        with pytest.raises(BlockingIOError):
            directory.open_locked("file", what="thing")
        assert open_descriptors() == before
        os.write(descriptor, b"line")
        os.close(descriptor)
        again = directory.open_locked("file", what="thing")
        assert read_limited(again, limit=9) == b"line"
        assert stat.S_IMODE(os.fstat(again).st_mode) == 0o600
        os.close(again)

    def test_one_that_comes_and_goes(self, directory: SafeDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SafeDirectory, "leads_to", lambda *_: False)
        before = open_descriptors()
        with pytest.raises(NotDurable, match=r"thing .*/file: it comes and goes"):
            directory.open_locked("file", what="thing")
        assert open_descriptors() == before

    def test_a_file_system_without_locks_is_told_as_such(
        self, directory: SafeDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def flock(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", flock)
        with pytest.raises(NotDurable, match=r"thing .*/file: No locks available"):
            directory.open_locked("file", what="thing")
