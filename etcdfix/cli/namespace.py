"""``etcdfix namespace``: why a namespace hangs, and what to do in which order."""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

import click

from etcdfix.cli.command import Command
from etcdfix.cli.inputs import what_to_read
from etcdfix.cli.look import ExitCode, nothing, open_look
from etcdfix.cli.options import look_options
from etcdfix.cli.output import say, say_next
from etcdfix.commands.namespace import concerns_namespace, has_findings, namespace_report, terminating_names
from etcdfix.graph.cluster import ClusterIndex
from etcdfix.model.errors import ConfigurationError
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
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    concerns = concerns_namespace(StorageLayout(inputs.etcd_prefix), name)
    with open_look(options, inputs, configuration) as look:
        found, report = look.index(concerns, partial(namespace_report, name=name))
        if report is None:
            _not_found(found, name)
        code = look.tell(report, found.ended, found.request.run)
    # What is Active does not hang, though something in it may be held.
    return code if code != ExitCode.FINDINGS or has_findings(report) else ExitCode.NOTHING_WRONG


def _not_found(found: ClusterIndex, name: str) -> NoReturn:
    if found.index.problems:
        nothing(f"namespace {name!r}: not seen, nor anything in it", found.index.problems, found.ended)
    say(f"namespace {name!r}: not found, and nothing is in it")
    if dying := terminating_names(found):
        say_next(f"these are Terminating: {', '.join(dying[:5])}")
    click.get_current_context().exit(ExitCode.SOURCE if found.ended is None else found.ended.exit_code)
