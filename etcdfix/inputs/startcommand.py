"""The flags that a container gives kube-apiserver, also behind wrappers, hyperkube or a shell's script.

What cannot be told for certain is refused: a flag that is missed would send the reader to another etcd, or hide the
encryption configuration.

Format: a v1 Container as the kubelet starts it (``kubernetes/third_party/forked/golang/expansion``); flags as pflag
takes them, words separated by ``-`` or ``_`` (``component-base/cli/flag``); POSIX shell, by :mod:`shlex`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

ETCD_SERVERS: Final = "etcd-servers"
_LISTS: Final = frozenset({ETCD_SERVERS, "etcd-servers-overrides"})
_READ: Final = _LISTS | {
    "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix", "encryption-provider-config",
}  # fmt: skip

_OPAQUE: Final = "\0"
"""Stands where a value is put in that only the node knows: a variable of the shell, a field of the Pod."""

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_OPERATORS: Final = "();<>|&\n"
_REDIRECTIONS: Final = frozenset({">", ">>", ">|", ">&", "&>", "&>>", "<", "<&"})
_COMMENT: Final = re.compile(r"(?m)(?:^|(?<=[\s;|&()])(?<!\\.))#.*$")
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")


def names_apiserver(container: dict[str, Any]) -> bool:
    """Whether image, command or args of a container name kube-apiserver."""
    parts = [container.get(field) for field in ("image", "command", "args")]
    return "kube-apiserver" in str(parts) or bool(re.search(r"hyperkube\W.*\bapiserver\b", str(parts)))


def etcd_flags(container: dict[str, Any]) -> dict[str, str] | None:
    """Return the flags about etcd and encryption by name, lists joined by commas; None without ``--etcd-servers``.

    Args:
        container: A container for which :func:`names_apiserver` holds.

    Raises:
        ValueError: The flags cannot be told for certain. It says why.
    """
    words = _words(container)
    if not re.search("etcd[-_]servers", " ".join(words)):
        return None
    starts = list(_starts(words))
    by_a_shell = any(word.rsplit("/", 1)[-1] in _SHELLS for word in words)
    if not starts and not by_a_shell and "kube-apiserver" in str(container.get("image")):
        starts = [words]
    found = [flags for flags in map(_flags, starts) if flags.get(ETCD_SERVERS)]
    if len(found) > 1:
        raise ValueError("its script starts kube-apiserver in more than one way")
    return found[0] if found else None


def _words(container: dict[str, Any]) -> list[str]:
    """Return command and args, with references to the container's environment resolved as the kubelet does."""
    known: dict[str, str] = {}
    environment = container.get("env")
    for variable in environment if isinstance(environment, list) else ():
        if isinstance(variable, dict):
            text = _OPAQUE if "valueFrom" in variable else str(variable.get("value") or "")
            known[str(variable.get("name"))] = _expanded(text, known)
    words: list[str] = []
    for field in ("command", "args"):
        part = container.get(field) or []
        if not isinstance(part, list):
            raise ValueError(f"its {field} is not a list of words")  # noqa: TRY004 - of the file, not of a caller
        words += (_expanded(str(word), known) for word in part)
    return words


def _expanded(text: str, known: dict[str, str]) -> str:
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else known.get(found[1], _OPAQUE), text)


def _starts(words: list[str]) -> Iterator[list[str]]:
    """Yield the words behind kube-apiserver, for each place that starts it."""
    names = [word.rsplit("/", 1)[-1] for word in words]
    for number, name in enumerate(names):
        rest = words[number + 1 :]
        if name == "kube-apiserver" or (name == "apiserver" and "hyperkube" in names[:number]):
            yield rest
            return
        if name in _SHELLS and (inside := _script(rest)) is not None:
            for command in _commands(*inside):
                yield from _starts(command)
            return


def _script(words: list[str]) -> tuple[str, list[str]] | None:
    """Return what follows ``-c`` in a shell's words, and the script's arguments; None without ``-c``."""
    rest = list(words)
    is_script = False
    while rest and rest[0].startswith(("-", "+")):
        option = rest.pop(0)
        if option in {"-", "--"}:
            break
        if not option.startswith("--"):
            is_script = is_script or "c" in option
            del rest[: option.lower().count("o")]  # the name of what -o sets
    return (rest[0], rest[2:]) if is_script and rest else None


def _commands(script: str, arguments: list[str]) -> Iterator[list[str]]:
    """Yield the words of each simple command, without redirections."""
    lexer = shlex.shlex(
        _COMMENT.sub("", script).replace("\\\n", ""), posix=True, punctuation_chars=_OPERATORS
    )
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    tokens = list(lexer)
    as_given = not {"set", "shift"} & set(tokens)
    command: list[str] = []
    is_target = False
    for word in tokens:
        if word and not word.strip(_OPERATORS):
            is_target = "<" in word or ">" in word
            if is_target and word not in _REDIRECTIONS:
                raise ValueError("its script holds a redirection that etcdfix does not read")
            if not is_target:
                yield command
                command = []
        elif is_target:
            is_target = False
        elif "\n" in word or word.startswith("#"):
            raise ValueError("its script cannot be taken apart for certain")
        elif word == "$@" and as_given:
            command += arguments
        else:
            command.append(re.sub("[$`{]", _OPAQUE, word))
    yield command


def _flags(words: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        flag, equals, value = word.partition("=")
        if _OPAQUE in (flag if flag.startswith("--") else word):
            raise ValueError("some of its flags come from a variable or a command of the shell")
        name = flag.removeprefix("--").replace("_", "-").removeprefix("experimental-")
        if not flag.startswith("--") or name not in _READ:
            continue
        value = value if equals else next(rest, "")
        if _OPAQUE in value or " --" in value:
            raise ValueError(f"its --{name} does not stand there in plain words")
        found.setdefault(name, []).append(value)
    return {name: ",".join(values) if name in _LISTS else values[-1] for name, values in found.items()}
