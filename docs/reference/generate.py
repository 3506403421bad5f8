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
    Rule.NOT_ONE_KEY: "The change names exactly one etcd key in full.",
    Rule.KINE: "The source is not kine, which etcdfix does not write.",
    Rule.INCONSISTENT: "No API server serves the object.",
    Rule.NOT_REPAIRABLE: "A proven copy exists, or you name one.",
    Rule.SEVERAL_REPAIRS: "Only one repair fits.",
    Rule.SEVERAL_COPIES: "The best copies are equal, or you name one.",
    Rule.NOT_CONFIRMED: "You typed the key, or gave --yes.",
    Rule.OBJECT_FILE: "The file holds this object, as the API wrote it.",
    Rule.LOGGED_ONLY: "etcd applied the logged write.",
    Rule.NOT_READABLE: "The restored value reads under the deployed configuration.",
    Rule.SERVER_REFUSED: "The API server wrote the object.",
    Rule.BACKUP_UNLISTED: "The audit log lists the backup to remove.",
    Rule.BACKUP_OPEN: "The change of the backup to remove has a recorded outcome.",
}
"""The rules that no list of checks asks."""


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


def errors() -> str:
    """Return every error by its code, with its exit code."""
    found = sorted((item.code, item.exit_code, _raised_when(item)) for item in _below(EtcdfixError))
    return "\n".join(f"- `{code}` ({exit_code}): {when}" for code, exit_code, when in found)


def _raised_when(item: type[EtcdfixError]) -> str:
    first = (inspect.getdoc(item) or "").split("\n\n")[0].replace("\n", " ")
    return first.removeprefix("Raised when ")


def _below(base: type[EtcdfixError]) -> set[type[EtcdfixError]]:
    children = {item for item in base.__subclasses__() if item.__module__.endswith(".errors")}
    return children.union(*map(_below, children))


EXIT_CODES = {
    ExitCode.NOTHING_WRONG: "nothing is wrong",
    ExitCode.FINDINGS: "findings: `decrypt-failure`, `decode-failure` or `inconsistent`; see `--fail-on`",
    ExitCode.USAGE: "an option or the configuration is invalid",
    ExitCode.INCOMPLETE: "incomplete: something is undetermined or was lost",
    ExitCode.SOURCE: "nothing could be read",
    ExitCode.HUNG_UP: "SIGHUP ended the command",
    ExitCode.INTERRUPTED: "Ctrl-C ended the command",
    ExitCode.TERMINATED: "SIGTERM ended the command",
}


def exit_codes() -> str:
    """Return the table of exit codes."""
    rows = ["| code | meaning |", "|---|---|"]
    rows += [f"| {code.value} | {text} |" for code, text in EXIT_CODES.items()]
    return "\n".join(rows)


def rules() -> str:
    """Return the rules, grouped by the changes that ask them, each with what has to hold and what accepts it."""
    lists = {"delete": DELETE, "fix": PUT, "memory": PATCH, "undo": UNDO}
    groups: dict[str, list[str]] = {}
    for rule in Rule:
        name = rule.value.replace("-", "_")
        checks = [(asked, check) for asked, each in lists.items() for check in each if check.__name__ == name]
        holds = " ".join(dict.fromkeys((inspect.getdoc(check) or "").split("\n")[0] for _, check in checks))
        asked = ", ".join(dict.fromkeys(f"`{asked}`" for asked, _ in checks))
        said = f" *Accept if* {ACCEPTED[rule]}." if rule in ACCEPTED else ""
        groups.setdefault(asked or "Asked elsewhere", []).append(
            f"- `{rule}`: {holds or _ELSEWHERE[rule]}{said}"
        )
    most_asked_first = sorted(groups.items(), key=lambda group: -group[0].count("`"))
    return "\n\n".join(f"## {asked}\n\n" + "\n".join(of_group) for asked, of_group in most_asked_first)
