"""Make the reference pages from the code.

Called by cog inside each page, so that lint can tell a stale one; the commands by ``docs/conf.py``, for the site alone.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final

import click

from etcdfix.cli.look import ExitCode
from etcdfix.cli.options import options_page
from etcdfix.cli.root import cli
from etcdfix.model.errors import EtcdfixError
from etcdfix.model.rules import MEANINGS as ACCEPTED
from etcdfix.model.rules import Rule
from etcdfix.remediation.change import DELETE, PATCH, PUT, UNDO

_SETTINGS: Final[dict[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "terminal_width": 100,
}


_ELSEWHERE: Final = {
    Rule.NOT_ONE_KEY: "A change is about exactly one etcd key, named in full.",
    Rule.KINE: "Etcdfix does not write to kine: an API server makes the change.",
    Rule.INCONSISTENT: "What the API server accepts as it is, is changed through the API.",
    Rule.NOT_REPAIRABLE: "There is a copy that is proven, or a person names one.",
    Rule.SEVERAL_REPAIRS: "Only one way of putting the value right fits.",
    Rule.SEVERAL_COPIES: "Of copies that are equally good and differ, a person names one.",
    Rule.NOT_CONFIRMED: "A person has typed the key back, or a script has given --yes.",
    Rule.OBJECT_FILE: "The file is of this very object, as the API gave it.",
    Rule.LOGGED_ONLY: "Etcd certainly applied the write of the log that is put back.",
    Rule.NOT_READABLE: "What is put back reads under the configuration that is deployed.",
    Rule.SERVER_REFUSED: "The API server that was asked has written the object.",
    Rule.BACKUP_UNLISTED: "A backup that is pruned stands in the audit log.",
    Rule.BACKUP_OPEN: "The change of a backup that is pruned has an outcome on record.",
}
"""What has to hold by the rules that no list of checks asks about."""


def commands() -> str:
    """Return the help page of every command, and of the options that they share."""
    parts: list[str] = []
    _help_pages(cli, "etcdfix", None, parts)
    with click.Context(cli, info_name="etcdfix", **_SETTINGS) as page:
        parts.append(f"## `etcdfix help options`\n\n```text\n{options_page(page)}\n```\n")
    return "\n".join(parts)


def _help_pages(command: click.Command, name: str, parent: click.Context | None, parts: list[str]) -> None:
    with click.Context(command, info_name=name, parent=parent, **_SETTINGS) as page:
        parts.append(f"## `{page.command_path}`\n\n```text\n{command.get_help(page)}\n```\n")
        if isinstance(command, click.Group):
            for below in command.list_commands(page):
                found = command.get_command(page, below)
                assert found is not None
                _help_pages(found, below, page, parts)


def causes() -> str:
    """Return a list of the cause pages, each with what stands there first."""
    pages = sorted((Path(__file__).parents[1] / "causes").glob("*.md"))
    titles = {page: page.read_text(encoding="utf-8").split("*", 2)[1].replace("\n", " ") for page in pages}
    return "\n".join(f"- [`{page.stem}`](../causes/{page.name}): {title}" for page, title in titles.items())


def error_table() -> str:
    """Return every error with its exit code."""
    rows = ["| error | code | exit code | raised when |", "|---|---|---|---|"]
    for item in sorted(_below(EtcdfixError), key=lambda item: item.__name__):
        first = (inspect.getdoc(item) or "").split("\n\n")[0].replace("\n", " ")
        code = f"`{item.code}` | {item.exit_code}"
        rows.append(f"| `{item.__name__}` | {code} | {first.removeprefix('Raised when ')} |")
    return "\n".join(rows)


def _below(base: type[EtcdfixError]) -> set[type[EtcdfixError]]:
    children = {item for item in base.__subclasses__() if item.__module__.endswith(".errors")}
    return children.union(*map(_below, children))


EXIT_CODES = {
    ExitCode.NOTHING_WRONG: "nothing wrong",
    ExitCode.FINDINGS: "findings: decrypt-failure, decode-failure or inconsistent; see --fail-on",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "incomplete: something is undetermined, or was lost midway (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    ExitCode.HUNG_UP: "ended by SIGHUP",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "ended by SIGTERM",
}


def exit_codes() -> str:
    """Return the table of exit codes."""
    rows = ["| code | meaning |", "|---|---|"]
    rows += [f"| {code.value} | {text} |" for code, text in EXIT_CODES.items()]
    return "\n".join(rows)


def rules() -> str:
    """Return the table of rules: what has to hold, which changes ask it, and what it says to accept it."""
    lists = {"delete": DELETE, "fix": PUT, "fix --from memory": PATCH, "undo": UNDO}
    checks = {check.__name__: check for asked in lists.values() for check in asked}
    rows = ["| rule | what has to hold | asked by | `--accept` says |", "|---|---|---|---|"]
    for rule in Rule:
        check = checks.get(rule.value.replace("-", "_"))
        holds = _ELSEWHERE[rule] if check is None else (inspect.getdoc(check) or "").replace("\n", " ")
        asked = ", ".join(name for name, each in lists.items() if check in each) or "-"
        said = ACCEPTED.get(rule, "")
        rows.append(f"| `{rule}` | {holds} | {asked} | {f'{said[0].upper()}{said[1:]}.' if said else '-'} |")
    return "\n".join(rows)
