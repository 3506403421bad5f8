"""What a command in the documentation may be: click knows ours, a list knows the others."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Final

import click

from etcdfix.cli.output import own_habits
from etcdfix.cli.root import cli

# What stands for a value that the reader has to put in: NAME, aescbc/v1/NAME, <name>, $NAME, $(command).
_PLACEHOLDER: Final = re.compile(r"(?<![A-Za-z0-9])[A-Z][A-Z0-9_-]*(?![a-z0-9])|<[^>]+>|\$")
# One of these is a good value of every option that takes a single word.
_SAMPLES: Final = (
    "1",
    "1/2",
    "5m",
    "v1.30",
    "name=word",
    "https://10.0.0.1:2379",
    "/registry/secrets/shop/db",
    f"sha256:{'0' * 64}",
)
_MOST_PLACEHOLDERS: Final = 20

_OF_THE_SHELL: Final = (
    ".", "[", "cd", "echo", "eval", "exit", "export", "kill", "printf", "read", "set", "source", "test", "trap", "true",
    "umask", "unset", "until", "wait",
)  # fmt: skip
_OF_EVERY_LINUX: Final = (
    "awk", "base64", "bash", "cat", "chmod", "chown", "cp", "cmp", "curl", "cut", "date", "df", "diff", "env", "find",
    "grep", "gunzip", "gzip", "head", "install", "less", "ln", "ls", "man", "mkdir", "mktemp", "mv", "ps", "rm", "sed",
    "seq", "sha256sum", "sleep", "sort", "stat", "sudo", "tail", "tar", "tee", "touch", "uniq", "unzip", "wc", "xargs",
    "zcat",
)  # fmt: skip
# Each program that the documentation may name, with the subcommands that it may use; none: any words.
KNOWN: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys((*_OF_THE_SHELL, *_OF_EVERY_LINUX), frozenset()),
    # etcd, what runs it, and what reads it
    "crictl": frozenset({"exec", "images", "logs", "ps", "rm", "stop", "stopp"}),
    "etcd": frozenset(),
    "etcdctl": frozenset(
        {"alarm", "auth", "compaction", "defrag", "del", "endpoint", "get", "member", "put", "role"}
        | {"snapshot", "user"}
    ),
    "etcdutl": frozenset({"snapshot"}),
    "sqlite3": frozenset(),  # kine's file
    # Kubernetes and its distributions
    "k3s": frozenset({"etcd-snapshot", "kubectl", "secrets-encrypt", "server", "token"}),
    "kubectl": frozenset(
        {
            "annotate",
            "apply",
            "auth",
            "cp",
            "create",
            "delete",
            "describe",
            "edit",
            "exec",
            "explain",
            "get",
            "krew",
        }
        | {"label", "logs", "patch", "replace", "rollout", "scale", "version", "wait"}
    ),
    "rke2": frozenset({"etcd-snapshot", "secrets-encrypt", "server"}),
    "talosctl": frozenset({"cp", "etcd", "get", "read", "service"}),
    # keys, and where they come from
    "openssl": frozenset({"rand", "verify", "x509"}),
    "vault": frozenset({"read", "status", "write"}),
    # services of a node, and their logs
    "journalctl": frozenset(),
    "systemctl": frozenset({"daemon-reload", "enable", "restart", "start", "status", "stop"}),
    # reports in other programs
    "jq": frozenset(),
    "promtool": frozenset({"check", "test"}),
    "yq": frozenset(),
    # images
    "ctr": frozenset({"images", "run"}),
    "docker": frozenset({"build", "load", "push", "run", "save"}),
    "podman": frozenset({"build", "load", "run"}),
    # how etcdfix is installed
    "apt-get": frozenset({"install", "update"}),
    "git": frozenset({"add", "checkout", "clone", "commit", "diff", "log", "push", "tag", "verify-tag"}),
    "pip": frozenset({"check", "download", "install", "uninstall"}),
    "python": frozenset(),
    "python3": frozenset(),
    # how it is made
    "cyclonedx-py": frozenset({"environment"}),
    "hatchling": frozenset({"version"}),
    "lint-imports": frozenset(),
    "mypy": frozenset(),
    "pip-compile": frozenset(),
    "pytest": frozenset(),
    "ruff": frozenset({"check", "format"}),
    "shiv": frozenset(),
    "sphinx-build": frozenset(),
    "tox": frozenset({"run"}),
    "twine": frozenset({"check"}),
}
# Options whose value is a word of its own: it is not the subcommand.
_WITH_VALUE: Final = frozenset({"-n", "--namespace", "--context", "--kubeconfig", "-s", "--endpoints", "-C"})
_WRAPPERS: Final = frozenset({"sudo", "time", "nice"})


class NotACommandError(Exception):
    """No such command, or it does not take these words."""


def check(words: list[str], *, whole: bool = True) -> None:
    """Raise where a command is none of ours, and none of the known ones.

    Args:
        whole: Nothing that it needs may lack; a sentence may name a command without all of that.

    Raises:
        NotACommandError: It is not.
    """
    while words and words[0] in _WRAPPERS:
        words = words[1:]
    if not words:
        return
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program == "kubectl" and rest[:1] == ["etcdfix"]:
        program, rest = "etcdfix", rest[1:]
    if program == "etcdfix":
        _check_ours(rest, whole=whole)
    elif program in KNOWN:
        _check_other(program, rest)
    elif not _is_placeholder(words[0]):
        raise NotACommandError(f"{program}: not on the list of programs")


def _check_other(program: str, words: list[str]) -> None:
    if not KNOWN[program]:
        return
    left = iter(words)
    for word in left:
        if word in _WITH_VALUE:
            next(left, None)
        elif not word.startswith("-"):
            if word not in KNOWN[program]:
                raise NotACommandError(f"{program} {word}: not on the list of subcommands")
            return


def _is_placeholder(word: str) -> bool:
    return _PLACEHOLDER.search(word) is not None


def _check_ours(words: list[str], *, whole: bool) -> None:
    """Have click take the words apart as if the command were called, with a value for each placeholder."""
    if words == ["help", "options"]:
        return
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"] if not any(map(_is_placeholder, words)) else ["--help"]
    for _ in range(_MOST_PLACEHOLDERS):
        try:
            _take_apart(words)
        except click.exceptions.Exit:
            return  # --help
        except click.MissingParameter as exc:
            if whole:
                raise NotACommandError(exc.format_message()) from exc
            return
        except click.BadParameter as exc:
            words = _with_values(words, exc)
        except click.UsageError as exc:
            raise NotACommandError(exc.format_message()) from exc
        else:
            return
    raise NotACommandError(f"too many placeholders: {words}")


def _take_apart(words: list[str]) -> None:
    command: click.Command = cli
    words = list(words)
    with ExitStack() as stack:
        stack.enter_context(own_habits())
        context = click.Context(cli, info_name="etcdfix", **cli.context_settings)
        while isinstance(command, click.Group):
            if not words or words[0].startswith("-"):
                stack.enter_context(command.make_context(command.name, words or ["--help"]))
                return
            below = command.get_command(context, words[0])
            if below is None:
                raise NotACommandError(f"etcdfix: no command {words[0]}")
            command, words = below, words[1:]
            context = stack.enter_context(click.Context(command, info_name=command.name, parent=context))
        stack.enter_context(command.make_context(command.name, words, parent=context))


def _with_values(words: list[str], problem: click.BadParameter) -> list[str]:
    """Put a value that is taken in the place of the placeholder that was refused."""
    at = [place for place in _places(words, problem.param) if _is_placeholder(words[place])]
    choices = (
        tuple(problem.param.type.choices)
        if problem.param is not None and isinstance(problem.param.type, click.Choice)
        else ()
    )
    for place in at:
        name, equals, _ = words[place].partition("=") if words[place].startswith("--") else ("", "", "")
        for sample in (*choices, *_SAMPLES):
            tried = [*words[:place], f"{name}{equals}{sample}", *words[place + 1 :]]
            try:
                _take_apart(tried)
            except click.BadParameter as exc:
                if exc.param is problem.param and not isinstance(exc, click.MissingParameter):
                    continue
            return tried
    raise NotACommandError(problem.format_message()) from problem


def _places(words: list[str], parameter: click.Parameter | None) -> list[int]:
    if not isinstance(parameter, click.Option):
        return list(range(len(words)))
    found = [place + 1 for place, word in enumerate(words[:-1]) if word in parameter.opts]
    return [*found, *(place for place, word in enumerate(words) if word.partition("=")[0] in parameter.opts)]
