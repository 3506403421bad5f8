"""``etcdfix get``: see any stored object."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from etcdfix.cli.command import Command
from etcdfix.cli.completing import resources
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.keys import decoded_key, is_key, named_key
from etcdfix.cli.options import FILE, reading_options, source_options, what_to_read
from etcdfix.cli.output import say, say_next
from etcdfix.cli.output_options import form_option
from etcdfix.errors import ConfigurationError
from etcdfix.model import Outcome
from etcdfix.operations.look.get import (
    DEFAULT_NAMESPACE,
    GetRequest,
    GetResult,
    Wanted,
    read_raw,
    record_reveal,
    run_get,
)
from etcdfix.operations.look.get_lines import WRONG, Lines
from etcdfix.operations.opening import open_plugins, open_source
from etcdfix.reports.origin import shown_word
from etcdfix.reports.printers.writers import WRITERS
from etcdfix.sources.base import Source
from etcdfix.storagekey import StorageLayout

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins


MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "shown, and nothing wrong with it",
    ExitCode.FINDINGS: "something cannot be read, or is inconsistent: standard error says what",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "something is undetermined, missing, or was lost midway (wins over 1)",
    ExitCode.SOURCE: "no object of the name exists, or the source is unreachable, unreadable, or another etcd",
    **ENDED_EARLY,
}


@click.command("get", cls=Command, epilog=epilog(MEANINGS))
@click.argument("what", nargs=-1, metavar="KEY | RESOURCE [NAME]...", shell_complete=resources)
@click.option(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    envvar="ETCDFIX_NAMESPACE",
    help=f"Namespace of the objects.  [default: {DEFAULT_NAMESPACE}]",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects of every namespace.")
@click.option(
    "--key-base64", "keys", multiple=True, metavar="BASE64", help="The key, where it cannot be typed."
)
@source_options
@reading_options
@form_option(
    WRITERS,
    help_text="Form of the output; name and wide are lists, wide with the verdict on each key.",
)
@click.option(
    "--omit-managed-fields",
    is_flag=True,
    envvar="ETCDFIX_OMIT_MANAGED_FIELDS",
    help="Leave metadata.managedFields out; an object that is damaged only there is whole without them.",
)
@click.option("--reveal", is_flag=True, help="Show the contents of Secrets.")
@click.option(
    "--audit-log",
    type=FILE,
    metavar="FILE",
    envvar="ETCDFIX_AUDIT_LOG",
    help="With --reveal: record in this log that contents are shown, before they are.",
)
@click.option("--raw", is_flag=True, help="Write the stored bytes of one value as they are.")
@click.option(
    "--decrypted-raw",
    is_flag=True,
    help="Write the decrypted bytes of one value as they are; needs --reveal.",
)
def command(
    *,
    what: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    keys: tuple[str, ...],
    output: str,
    omit_managed_fields: bool,
    reveal: bool,
    audit_log: Path | None,
    raw: bool,
    decrypted_raw: bool,
    **options: Any,
) -> int:
    """Show stored objects as the API server would serve them. Reads only.

    Name a KEY (it starts with /), or a RESOURCE (secrets, deployments.apps) and, if you like, NAMEs. The contents
    of Secrets are masked unless --reveal is given. Objects with masked values have the resourceVersion "masked": API
    servers refuse to replace anything with them. Of an object that does not decode, what is left is shown inside a
    document of kind Salvage, which is no object of Kubernetes.

    \b
    To heal an object of which only metadata.managedFields is broken:
      etcdfix get KEY --omit-managed-fields -o json | kubectl replace -f -
    Never with --force: that deletes first, and does not look at what it puts back.
    """  # fmt: skip  # noqa: D301 - click's mark for lines that stay
    wanted = _wanted(what, keys, namespace, all_namespaces=all_namespaces)
    stream = _standard_output()
    _check_raw(raw=raw, decrypted_raw=decrypted_raw, reveal=reveal, stream=stream)
    inputs, configuration = what_to_read(options, resources=_resources(wanted, options))
    request = GetRequest(
        layout=StorageLayout(inputs.etcd_prefix),
        wanted=wanted,
        configuration=configuration,
        kubernetes_minor=inputs.kubernetes_minor,
        reveal=reveal,
        omit_managed_fields=omit_managed_fields,
    )
    stream_form = "raw" if raw else "decrypted-raw" if decrypted_raw else output
    lines = Lines(
        request, inputs.same_again(), say=say, say_next=say_next, quiet=output == "wide" and wanted.many
    )
    with open_source(inputs, say=say) as source:
        if reveal and audit_log is not None and (raw or decrypted_raw or WRITERS[output].contents):
            record_reveal(
                audit_log.absolute(),
                request,
                form=stream_form,
                file=inputs.file,
                etcd_user=inputs.etcd_user,
            )
        if raw:
            return _write_raw(source, request, stream, lines)
        with open_plugins(inputs, configuration) as plugins:
            if decrypted_raw:
                return _write_decrypted(source, request, stream, lines, plugins)
            if reveal and WRITERS[output].contents:
                say("--reveal: the contents of Secrets are shown, unmasked")
            result = run_get(
                source, request, WRITERS[output](stream, many=wanted.many), told=lines.of, plugins=plugins
            )
        stream.flush()
        lines.end(result, source)
        return _exit_code(result)


def _wanted(
    what: tuple[str, ...], keys: tuple[str, ...], namespace: str | None, *, all_namespaces: bool
) -> Wanted:
    """Make sense of the words of the command line.

    Raises:
        ConfigurationError: They make none.
    """
    given = [named_key(key) for key in what if is_key(key)] + [decoded_key(k) for k in keys]
    words = [word for word in what if not is_key(word)]
    if not given and not words:
        raise ConfigurationError(
            "nothing to show was named", hint="etcdfix get KEY, or etcdfix get RESOURCE [NAME] -n NAMESPACE"
        )
    if given and (words or len(given) > 1):
        raise ConfigurationError(
            "a KEY stands alone: one key, or one resource with names",
            hint="for many objects: etcdfix get RESOURCE [NAME]... -n NAMESPACE",
        )
    if given:
        context = click.get_current_context()
        typed = context.get_parameter_source("namespace") is click.core.ParameterSource.COMMANDLINE
        if all_namespaces or typed:
            raise ConfigurationError(
                "-n and -A go with a RESOURCE: a KEY names its namespace itself", hint="leave them out"
            )
        return Wanted(key=given[0])
    if namespace is not None and not all_namespaces and (not namespace or "/" in namespace):
        raise ConfigurationError(
            f"{namespace!r} is no name of a namespace", hint="etcdfix get RESOURCE -n NAME"
        )
    resource, slash, name = words[0].partition("/")
    names = (name, *words[1:]) if slash else tuple(words[1:])
    if not resource or any(not name or "/" in name for name in names):
        raise ConfigurationError(
            f"{' '.join(map(shown_word, words))!r} names no objects",
            hint="write RESOURCE NAME, RESOURCE/NAME, or a KEY that starts with /",
        )
    return Wanted(
        resource=resource,
        names=names,
        namespace=None if all_namespaces else namespace,
        all_namespaces=all_namespaces,
    )


def _standard_output() -> BinaryIO:
    if sys.stdout is None:
        raise ConfigurationError("standard output is closed")
    return sys.stdout.buffer


def _check_raw(*, raw: bool, decrypted_raw: bool, reveal: bool, stream: BinaryIO) -> None:
    if not (raw or decrypted_raw):
        return
    option = "--decrypted-raw" if decrypted_raw else "--raw"
    if raw and decrypted_raw:
        raise ConfigurationError("--raw and --decrypted-raw exclude each other", hint="leave one of them out")
    context = click.get_current_context()
    if context.get_parameter_source("output") is not click.core.ParameterSource.DEFAULT:
        raise ConfigurationError(
            f"{option} writes bytes, and -o names a form for them", hint="leave one of them out"
        )
    if decrypted_raw and not reveal:
        raise ConfigurationError(
            "--decrypted-raw shows contents as they are", hint="add --reveal if that is what you want"
        )
    if stream.isatty():
        raise ConfigurationError(
            f"{option} writes bytes that a terminal may act upon", hint="send them to a file: … > FILE"
        )


def _resources(wanted: Wanted, options: dict[str, Any]) -> tuple[str, ...]:
    """Return the resource that is read, for API servers that keep it in an etcd of its own."""
    if wanted.key is None:
        return (wanted.resource,)
    layout = StorageLayout(options.get("etcd_prefix") or "/registry")
    return (str(layout.locate(wanted.key)[0].group_resource),)


def _write_raw(source: Source, request: GetRequest, stream: BinaryIO, lines: Lines) -> ExitCode:
    # Bytes are copied, not judged: no plugin is asked.
    value = read_raw(source, request, decrypt=False)
    if value is None:
        lines.not_found(source)
        return ExitCode.SOURCE
    if value.secret and not request.reveal:
        raise ConfigurationError(
            "the value is stored in plain, and is that of a Secret or may be one",
            hint="add --reveal if you want its bytes",
        )
    if value.secret:
        say("--reveal: the value is stored in plain; its bytes follow, unmasked")
    assert value.data is not None  # stored bytes are always there
    stream.write(value.data)
    return ExitCode.NOTHING_WRONG


def _write_decrypted(
    source: Source, request: GetRequest, stream: BinaryIO, lines: Lines, plugins: KMSPlugins | None
) -> ExitCode:
    value = read_raw(source, request, decrypt=True, plugins=plugins)
    if value is None:
        lines.not_found(source)
        return ExitCode.SOURCE
    outcome = value.found.verdict.outcome
    if value.data is not None:
        say("--reveal: decrypted contents follow, unmasked")
        stream.write(value.data)
        if outcome not in WRONG:
            return ExitCode.NOTHING_WRONG
    lines.explain(value.found, secret=value.data is None, readable=value.readable)
    undetermined = outcome in {Outcome.UNDETERMINED, Outcome.READABLE}
    return ExitCode.INCOMPLETE if undetermined else ExitCode.FINDINGS


def _exit_code(result: GetResult) -> int:
    if result.ended is not None:
        return result.ended.exit_code if result.seen else result.ended.bare_exit_code
    if not result.seen and not result.problems:
        return ExitCode.NOTHING_WRONG if result.empty else ExitCode.SOURCE
    if result.problems or result.undetermined or result.missing:
        return ExitCode.INCOMPLETE
    return ExitCode.FINDINGS if result.findings else ExitCode.NOTHING_WRONG
