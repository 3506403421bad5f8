"""The flags that a container gives kube-apiserver, also behind wrappers, hyperkube or a shell's script.

What cannot be told for certain is refused: a flag that is missed would send the reader to another etcd, or hide the
encryption configuration. A script is read where it expands nothing, and names those flags nowhere but in the one
command that starts kube-apiserver.

Format: a v1 Container as the kubelet starts it (``kubernetes/third_party/forked/golang/expansion``); flags as pflag
takes them, words separated by ``-`` or ``_`` (``component-base/cli/flag``).
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
"""Stands for a value that only the node knows, such as a field of the Pod."""

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_ADD_FLAGS: Final = frozenset({"eval", "xargs"})
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_EXPANDS: Final = re.compile(r"[$`{}\0*?]|<<|[<>]\(|\bfunction\b|\(\s*\)|\s#")
_MENTION: Final = re.compile(r"--(?:experimental[-_])?(?:etcd[-_][a-z]|encryption[-_]provider)")
_NOT_FOR_CERTAIN: Final = "its script cannot be taken apart for certain"


def names_apiserver(container: dict[str, Any]) -> bool:
    """Whether image, command or args of a container name kube-apiserver."""
    parts = [container.get(field) for field in ("image", "command", "args")]
    return "kube-apiserver" in str(parts) or bool(re.search(r"hyperkube\W.*\bapiserver\b", str(parts)))


def etcd_flags(container: dict[str, Any]) -> dict[str, str] | None:
    """Return the flags about etcd and encryption by name, lists joined by commas; None without ``--etcd-servers``.

    Raises:
        ValueError: The flags cannot be told for certain. It says why.
    """
    words = _words(container)
    if not re.search("etcd[-_]servers", " ".join(words)):
        return None
    starts = list(_starts(words))
    if not container.get("command") and not starts and "kube-apiserver" in str(container.get("image")):
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
    """Expand references; what no variable can be called stays, for a shell to run it."""

    def value_of(reference: re.Match[str]) -> str:
        name = reference[1]
        unknown = _OPAQUE if name and re.fullmatch(r"[\w.-]+", name) else reference[0]
        return "$" if name is None else known.get(name, unknown)

    return _REFERENCE.sub(value_of, text)


def _starts(words: list[str]) -> Iterator[list[str]]:
    """Yield the words behind kube-apiserver, for each place that starts it."""
    names = [word.rsplit("/", 1)[-1] for word in words]
    for number, name in enumerate(names):
        rest, before = words[number + 1 :], names[:number]
        if name == "kube-apiserver" or (name == "apiserver" and "hyperkube" in before):
            adding = [one for one in before if one in _ADD_FLAGS or one.endswith(".sh")]
            if adding:
                raise ValueError(f"{adding[0]} starts it, which may give it more flags")
            yield rest
            return
        if name in _SHELLS and _MENTION.search(" ".join(rest)):
            yield from _starts_in_script(rest)
            return


def _starts_in_script(words: list[str]) -> Iterator[list[str]]:
    """Yield the words behind kube-apiserver in the script that follows ``-c`` in a shell's words."""
    rest, is_script = list(words), False
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if not option.startswith("--"):
            is_script = is_script or "c" in option
            del rest[: option.lower().count("o")]  # the name of what -o sets
    if not (is_script and rest):
        raise ValueError("a script starts it, which may give it more flags")
    script = rest[0]
    if not _MENTION.search(script):
        return
    text = re.sub(r"(?m)^[ \t]*#.*$", "", script).replace("\\\n", " ").strip()
    if _EXPANDS.search(text):
        raise ValueError(_NOT_FOR_CERTAIN)
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if set(word) & set("<>") and set(word) <= set("<>&|"):
                lexer.get_token()  # where it is redirected to
            elif set(word) <= set("();|&\n"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError as exc:
        raise ValueError(_NOT_FOR_CERTAIN) from exc
    found = [start for command in commands for start in _starts(command)]
    told = sum(len(_MENTION.findall(word)) for start in found for word in start)
    if told != len(_MENTION.findall(text)):
        raise ValueError(_NOT_FOR_CERTAIN)
    yield from found


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
        if _OPAQUE in value or re.search(r"\s--", value):
            raise ValueError(f"its --{name} does not stand there in plain words")
        found.setdefault(name, []).append(value)
    return {name: ",".join(values) if name in _LISTS else values[-1] for name, values in found.items()}
