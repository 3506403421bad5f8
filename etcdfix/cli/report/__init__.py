"""``etcdfix report``: what is made of saved reports."""

from __future__ import annotations

import click

from etcdfix.cli.lazy_group import Commands, LazyGroup

COMMANDS: Commands = {
    "Commands": {
        "render": "Write a saved report in another form.",
        "diff": "Say what is new, gone or changed between two reports.",
        "merge": "Show the reports of many clusters as one list.",
    }
}


@click.group("report", cls=LazyGroup, listed=COMMANDS, package=__name__)
def command() -> None:
    """Show saved reports in another form, compare two of them, or make one of several.

    Nothing here asks etcd, and nothing is changed.
    """
