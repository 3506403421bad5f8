"""``etcdfix namespace``: why a namespace hangs, and what to do in which order."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.look import ExitCode, open_look, refuse_unseen
from etcdfix.cli.options import look_options
from etcdfix.commands.namespace import concerns_namespace, has_findings, namespace_report, terminating_names
from etcdfix.model.errors import ConfigurationError, ObjectNotFound
from etcdfix.model.storagekey import StorageLayout


@click.command("namespace", cls=Command)
@click.argument("name")
@look_options()
def command(*, name: str, **options: Any) -> int:
    """Explain why a namespace cannot finish deleting, and in which order to act. Reads only.

    Says whether it is Terminating and since when, which objects cannot be read, in it or elsewhere (each fails every
    LIST of its type and so holds every namespace of the cluster), which pods no kubelet ends, which finalizers hold
    what, which APIs are missing, which webhooks nobody answers and which objects wait for one another; then a numbered
    plan of commands: what holds all namespaces first, then the order of the deletion, pods before the rest. Deletions
    in it are dry runs.
    """
    if not name or "/" in name:
        raise ConfigurationError(f"{name!r} is no name of a namespace", hint="etcdfix namespace shop")
    with open_look(options, each_from_its_own=True) as look:
        concerns = concerns_namespace(StorageLayout(look.inputs.etcd_prefix), name)
        found, report = look.index(concerns, partial(namespace_report, name=name))
        if report is None:
            refuse_unseen(f"namespace {name!r}", found.index.problems, found.ended)
            hint = (
                f"these are Terminating: {', '.join(dying[:5])}"
                if (dying := terminating_names(found))
                else ""
            )
            raise ObjectNotFound(f"namespace {name!r}: not found, and nothing is in it", hint=hint)
        code = look.tell(report, found.ended, found.request.run)
    # What is Active does not hang, though something in it may be held.
    return code if code != ExitCode.FINDINGS or has_findings(report) else ExitCode.NOTHING_WRONG
