"""The flags that a container gives kube-apiserver, also behind wrappers, hyperkube or a shell's script.

What cannot be told for certain is refused: a flag that is missed would send the reader to another etcd, or hide the
encryption configuration.

Format: a v1 Container as the kubelet starts it (``kubernetes/third_party/forked/golang/expansion``); flags as pflag
takes them, words separated by ``-`` or ``_`` (``component-base/cli/flag``); POSIX shell, as far as it is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

ETCD_SERVERS: Final = "etcd-servers"
_LISTS: Final = frozenset({ETCD_SERVERS, "etcd-servers-overrides"})
_READ: Final = _LISTS | {
    "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix", "encryption-provider-config",
}  # fmt: skip

_OPAQUE: Final = "\0"
"""Stands where a value is put in that only the node knows: a variable of the shell, a field of the Pod."""

_SPLIT: Final = "\1"
"""Stands for what a shell splits into words: it may hold more flags."""

_ARGUMENTS: Final = "\2"
"""Stands for the arguments of a script."""

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_ADD_FLAGS: Final = frozenset({"eval", "xargs"})
_REDIRECTIONS: Final = frozenset({">", ">>", ">|", ">&", "&>", "&>>", "<", "<&"})
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_NOT_FOR_CERTAIN: Final = "its script cannot be taken apart for certain"

_UNQUOTED: Final = re.compile(
    r"""(?P<blank>[ \t]+)|(?P<joined>\\\n)|\\(?P<literal>.)|'(?P<single>[^']*)'|(?P<quote>")
    |(?P<comment>\#[^\n]*)
    |(?:(?<![^\s;&|()])\d+(?=[<>]))?(?P<operator>&>>?|>>|>[|&(]|<[<>&(]|[<>;&|)\n]|\([ \t]*\)|\()
    |(?P<command>\$\()|(?P<variable>\$\{[^{}"'`$\\()]*\}|\$(?!['"({])\w*)
    |(?P<unknown>\0)|(?P<braces>\{)|(?P<plain>[^ \t\n\\'"`$\#;<>|&(){\0]+)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED: Final = re.compile(
    r"""(?P<joined>\\\n)|\\(?P<literal>["\\$`])|(?P<quote>")|(?P<arguments>\$@)
    |(?P<command>\$\()|(?P<variable>\$\{[^{}"'`$\\()]*\}|\$(?![({])\w*)|(?P<plain>[^"\\`$]+|\\)""",
    re.VERBOSE,
)
_IN_PARENTHESES: Final = re.compile(r"""[()]|[^()'"`\\#]+|'[^']*'|"(?:[^"`\\$]|\$(?![({]))*\"""")


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
        rest = words[number + 1 :]
        if name == "kube-apiserver" or (name == "apiserver" and "hyperkube" in names[:number]):
            _refuse_more_flags(words, names[:number])
            yield rest
            return
        if name in _SHELLS and (inside := _script(rest)) is not None:
            if "kube-apiserver" in inside[0]:
                _refuse_more_flags(words, names[:number])
            for command in _commands(*inside):
                yield from _starts(command)
            return
        if name in _SHELLS and re.search("etcd[-_]servers", " ".join(rest)):
            raise ValueError("a script starts it, which may give it more flags")


def _refuse_more_flags(words: list[str], before: list[str]) -> None:
    if re.search(f"[{_SPLIT}{_ARGUMENTS}]", " ".join(words)):
        raise ValueError("a variable of the shell that is not quoted may hold more flags")
    adding = [name for name in before if name in _ADD_FLAGS or name.endswith(".sh")]
    if adding:
        raise ValueError(f"{adding[0]} starts it, which may give it more flags")


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
    tokens = list(_tokens(script))
    words = {word for word, is_operator in tokens if not is_operator}
    if "function" in words or any(
        is_operator and len(word) > 1 and word[0] == "(" for word, is_operator in tokens
    ):
        raise ValueError("its script holds a function of the shell")
    command: list[str] = []
    is_target = False
    for word, is_operator in tokens:
        if is_operator:
            is_target = "<" in word or ">" in word
            if is_target and word not in _REDIRECTIONS:
                raise ValueError("its script holds a redirection that etcdfix does not read")
            if not is_target:
                yield command
                command = []
        elif is_target:
            is_target = False
        elif word == _ARGUMENTS and not {"set", "shift"} & words:
            command += arguments
        else:
            command.append(word)
    yield command


def _tokens(script: str) -> Iterator[tuple[str, bool]]:
    """Yield the words and the operators of a script, and whether it is an operator."""
    word: str | None = None
    quoted, at = False, 0
    while at < len(script):
        found = (_QUOTED if quoted else _UNQUOTED).match(script, at)
        if found is None or found.lastgroup is None:
            raise ValueError(_NOT_FOR_CERTAIN)
        kind, text, at = found.lastgroup, found[found.lastgroup], found.end()
        if kind in {"blank", "operator"} or (kind == "comment" and word is None):
            if word is not None:
                yield word, False
            word = None
            if kind == "operator":
                yield text, True
        elif kind != "joined":
            if kind == "comment":
                text, at = "#", found.start() + 1
            elif kind == "quote":
                text, quoted = "", not quoted
            elif kind == "arguments":
                text = _ARGUMENTS
            elif kind in {"command", "variable", "unknown", "braces"}:
                at = _after_parentheses(script, at) if kind == "command" else at
                # Of a command and of the kubelet one value is expected, where it is all that a flag gets.
                is_one = kind == "braces" or (
                    kind != "variable" and (word or "").endswith("=") and script[at : at + 1] in " \t\n;&|)"
                )
                text = _OPAQUE if quoted or is_one else _SPLIT
            word = (word or "") + text
    if quoted:
        raise ValueError(_NOT_FOR_CERTAIN)
    if word is not None:
        yield word, False


def _after_parentheses(script: str, at: int) -> int:
    start, depth = at, 1
    while depth:
        found = _IN_PARENTHESES.match(script, at)
        if found is None:
            raise ValueError(_NOT_FOR_CERTAIN)
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        at = found.end()
    if re.search(r"\bcase\b|<<", script[start:at]):
        raise ValueError(_NOT_FOR_CERTAIN)
    return at


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
