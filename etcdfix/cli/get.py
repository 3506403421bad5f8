"""``etcdfix get``: see any stored object."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from etcdfix.cli.command import Command
from etcdfix.cli.inputs import what_to_read
from etcdfix.cli.keys import is_key, named_key, wanted_namespace
from etcdfix.cli.look import ExitCode, record_paths
from etcdfix.cli.options import (
    audit_log_option,
    form_option,
    namespace_options,
    reading_options,
    source_options,
)
from etcdfix.cli.output import require_output, say, say_next
from etcdfix.commands.get import (
    GetRequest,
    GetResult,
    NamedObjects,
    Notes,
    record_reveal,
    run_get,
)
from etcdfix.commands.opening import open_plugins, open_source
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.scope import parse_object, split_words
from etcdfix.report.objects import Documents, ObjectList
from etcdfix.report.origin import shown_word
from etcdfix.report.render import write

_CONTENTS: Final = ("yaml", "json")
_HOW: Final = "write a KEY that starts with /, RESOURCE [NAME]... -n NAMESPACE, or TYPE/NAME..."


@click.command("get", cls=Command)
@click.argument("what", nargs=-1, metavar="KEY | RESOURCE [NAME]... | TYPE/NAME...")
@namespace_options
@source_options
@reading_options
@form_option(
    ("text", "wide", *_CONTENTS), otherwise="text of many objects, yaml of one",
    help_text="Form of the output; text and wide are lists with the verdict on each object.",
)  # fmt: skip
@click.option("--omit-managed-fields", is_flag=True, envvar="ETCDFIX_OMIT_MANAGED_FIELDS",
              help="Leave out metadata.managedFields: the rest is whole if only they are damaged.")  # fmt: skip
@click.option(
    "--reveal", is_flag=True, help="Show the contents of Secrets. The audit log records that first."
)
@audit_log_option
def command(
    *,
    what: tuple[str, ...],
    output: str | None,
    omit_managed_fields: bool,
    reveal: bool,
    **options: Any,
) -> int:
    """Show stored objects as the API server would serve them. Reads only.

    Name a KEY (it starts with /), a RESOURCE as in kubectl (secrets, deploy, deployments.apps, po,svc) with or without
    NAMEs, or TYPE/NAMEs; without -n and -A they are of namespace "default". The contents of Secrets are masked unless
    you give --reveal. A masked object has the resourceVersion "masked", so API servers refuse to replace anything with
    it. If an object does not decode, you see what is left of it in a document of kind Salvage, which is no object of
    Kubernetes.

    \b
    To mend an object whose metadata.managedFields alone are broken:
      etcdfix get KEY --omit-managed-fields -o json | kubectl replace -f -
    Never add --force: it deletes the object first.
    """  # fmt: skip  # noqa: D301 - click's mark for lines that stay
    choice = _wanted(what, options)
    require_output()
    stream = sys.stdout.buffer
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    audit_log: Path | None = options["audit_log"]
    places = record_paths(options) if audit_log is not None else None
    request = GetRequest(
        **inputs.reading_fields(configuration, places=places),
        **choice,
        reveal=reveal,
        omit_managed_fields=omit_managed_fields,
    )
    form = output or ("text" if request.many else "yaml")
    notes = Notes(request, say=say, say_next=say_next)
    with open_source(inputs, say=say) as source:
        if reveal and audit_log is not None and form in _CONTENTS:
            record_reveal(
                audit_log.absolute(), request, form=form, file=inputs.file, etcd_user=inputs.etcd_user
            )
        with open_plugins(inputs, configuration) as plugins:
            if form in _CONTENTS:
                if reveal:
                    say("--reveal: the contents of Secrets are shown, unmasked")
                where: Documents | ObjectList = Documents(stream, many=request.many, json=form == "json")
            else:
                show = partial(write, form=form, stream=stream, run=request.run)
                where = ObjectList(request.types, past=request.run.of_the_past, write=show)
            result = run_get(source, request, where, notes, plugins=plugins)
        stream.flush()
        notes.end(result, source)
        return _exit_code(result)


def _wanted(what: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Make sense of the words of the command line: ``/KEY``, ``po,svc``, ``po web db``, ``po/web svc/web``."""
    keys = [named_key(word) for word in what if is_key(word)]
    if keys and len(what) > 1:
        raise ConfigurationError("a KEY stands alone", hint=_HOW)
    namespace = wanted_namespace(options, key=bool(keys))
    if keys:
        return {"key": keys[0]}
    slashes = {"/" in word for word in what}
    if not all(what) or len(slashes) != 1:
        raise ConfigurationError(f"{' '.join(map(shown_word, what))!r} names no objects", hint=_HOW)
    if True in slashes:
        named = [parse_object(part) for word in what for part in split_words(word)]
        objects = [NamedObjects(one.resource, (one.name,)) for one in named]
    else:
        objects = [NamedObjects(resource, tuple(what[1:])) for resource in split_words(what[0])]
    return {"objects": tuple(objects), "namespace": namespace, "all_namespaces": options["all_namespaces"]}


def _exit_code(result: GetResult) -> int:
    if result.ended is not None:
        return result.ended.exit_code if result.seen else result.ended.bare_exit_code
    if not result.seen and not result.problems:
        return ExitCode.NOTHING_WRONG if result.empty else ExitCode.SOURCE
    if result.problems or result.undetermined or result.missing:
        return ExitCode.INCOMPLETE
    return ExitCode.FINDINGS if result.findings else ExitCode.NOTHING_WRONG
