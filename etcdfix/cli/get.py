"""``etcdfix get``: see any stored object."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.keys import decoded_key, is_base64, named_key
from etcdfix.cli.options import (
    Inputs,
    open_plugins,
    open_source,
    reading_options,
    same_again,
    source_options,
    what_to_read,
)
from etcdfix.cli.output import say
from etcdfix.errors import ConfigurationError
from etcdfix.model import Outcome
from etcdfix.operations.look.get import (
    DEFAULT_NAMESPACE,
    GetRequest,
    GetResult,
    Wanted,
    read_raw,
    run_get,
)
from etcdfix.operations.look.index_cluster import has_keys
from etcdfix.reports.base import counted
from etcdfix.reports.printers.objects import Form, Shown, message_of
from etcdfix.reports.printers.writers import WRITERS
from etcdfix.reports.remedies import remedies_for
from etcdfix.sources.base import Source
from etcdfix.storagekey import StorageLayout, builtin_directories, display, find_resources
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.safetext import safe_text
from etcdfix.verdicts.examination import Examination

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "shown, and nothing wrong with it",
    ExitCode.FINDINGS: "something cannot be read, or is inconsistent: standard error says what",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "something is undetermined, missing, or was lost midway (wins over 1)",
    ExitCode.SOURCE: "no object of the name exists, or the source is unreachable, unreadable, or another etcd",
    **ENDED_EARLY,
}
_COMPACTION_KEY = "compact_rev_key"
_MOST_LINES = 20
_WRONG = frozenset(
    {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.INCONSISTENT, Outcome.UNDETERMINED}
)


@click.command("get", epilog=epilog(MEANINGS))
@click.argument("what", nargs=-1, metavar="KEY | RESOURCE [NAME]...")
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
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice(list(WRITERS)),
    default="yaml",
    show_default=True,
    help="Form of the output; name and wide are lists, wide with the verdict on each key.",
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
    type=click.Path(path_type=Path),
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
    again = same_again(inputs)
    with open_source(inputs, say=say) as source:
        shows_contents = raw or decrypted_raw or WRITERS[output].contents
        if reveal and audit_log is not None and shows_contents:
            form = "raw" if raw else "decrypted-raw" if decrypted_raw else output
            _record_reveal(audit_log, request, inputs, form)
        if raw and not decrypted_raw:
            return int(_write_raw(source, request, stream))
        with open_plugins(inputs, configuration) as plugins:
            if decrypted_raw:
                value = read_raw(source, request, decrypt=True, plugins=plugins)
                if value is None:
                    return int(_not_found(source, request))
                if value.data is None:
                    _explain(value.found, again, secret=True)
                    return int(_code_of(value.found))
                say("--reveal: decrypted contents follow, unmasked")
                stream.write(value.data)
                if value.found.verdict.outcome in _WRONG:
                    _explain(value.found, again, secret=False)
                    return int(_code_of(value.found))
                return int(ExitCode.NOTHING_WRONG)
            if reveal and WRITERS[output].contents:
                say("--reveal: the contents of Secrets are shown, unmasked")
            speaker = _Speaker(request, again, output)
            result = run_get(
                source, request, WRITERS[output](stream, many=wanted.many), remark=speaker, plugins=plugins
            )
        stream.flush()
        speaker.end()
        return _last_words(result, source, request)


def _record_reveal(audit_log: Path, request: GetRequest, inputs: Inputs, form: str) -> None:
    from etcdfix.remediation.audit.record import Operator, Subject  # noqa: PLC0415 - only with a log
    from etcdfix.remediation.reveal import record_reveal  # noqa: PLC0415 - same

    wanted, layout = request.wanted, request.layout
    if wanted.key is not None:
        directory, shared = layout.locate(wanted.key)
        where = layout.split(wanted.key, directory, shared, namespaced=directory.namespaced)
        subject = Subject(
            key=wanted.key,
            group=directory.group,
            api_version=directory.version,
            resource=directory.resource,
            namespace=where.namespace,
            name=where.name,
        )
    else:
        namespace = "" if wanted.all_namespaces else wanted.namespace or DEFAULT_NAMESPACE
        resource, _, group = wanted.resource.partition(".")
        subject = Subject(
            key=b"", group=group, api_version="", resource=resource, namespace=namespace,
            name=",".join(wanted.names),
        )  # fmt: skip
    where_from = f"snapshot {inputs.snapshot}" if inputs.snapshot is not None else "a live etcd"
    user = str(inputs.connection.get("user") or "").partition(":")[0]
    record_reveal(
        audit_log.absolute(),
        subject,
        Operator.of_this_process(etcd_user=user),
        detail=f"contents revealed, as {form}, from {where_from}",
    )


def _wanted(
    what: tuple[str, ...], keys: tuple[str, ...], namespace: str | None, *, all_namespaces: bool
) -> Wanted:
    """Make sense of the words of the command line.

    Raises:
        ConfigurationError: They make none.
    """
    given = [named_key(key) for key in what if _is_key(key)] + [decoded_key(k) for k in keys]
    words = [word for word in what if not _is_key(word)]
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
            f"{' '.join(words)!r} names no objects",
            hint="write RESOURCE NAME, RESOURCE/NAME, or a KEY that starts with /",
        )
    return Wanted(
        resource=resource,
        names=names,
        namespace=None if all_namespaces else namespace,
        all_namespaces=all_namespaces,
    )


def _is_key(word: str) -> bool:
    return word.startswith("/") or is_base64(word) or word == _COMPACTION_KEY


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


def _write_raw(source: Source, request: GetRequest, stream: BinaryIO) -> ExitCode:
    # Bytes are copied, not judged: no plugin is asked.
    value = read_raw(source, request, decrypt=False)
    if value is None:
        return _not_found(source, request)
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


class _Speaker:
    """Says on standard error what is wrong with a value: one line each in a list, with the way out for a single one."""

    def __init__(self, request: GetRequest, again: RepeatedOptions, output: str) -> None:
        self._request = request
        self._again = again
        self._quiet = output == "wide" and request.wanted.many
        self._lines = 0

    def __call__(self, shown: Shown, written: bool) -> None:
        found = shown.found
        many = self._request.wanted.many
        hidden = shown.secret and not self._request.reveal
        if found.verdict.outcome in _WRONG:
            if self._quiet:
                return
            if many:
                place = "" if written else "; not in the list"
                if written and shown.irreplaceable:
                    place = "; not for kubectl: it has no resourceVersion"
                self._line(_verdict(found, secret=hidden) + place)
                return
            if shown.form is Form.SALVAGE and written:
                say("NOT THE OBJECT: what is shown is what is left of it")
            heals = shown.whole and not shown.irreplaceable
            _explain(found, self._again, secret=hidden, object_shown=heals)
            if shown.irreplaceable and not shown.masked:
                say("do not pipe this into kubectl: the object is not the one that its key names")
        elif shown.problem:
            self._line(
                f"{display(found.stored.key)}: {shown.problem}, {counted(len(found.stored.value), 'byte')}"
            )
            if not many:
                _next("--raw writes its bytes to a file")
        elif found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            prefix = self._request.layout.prefix
            self._line(f"{display(found.stored.key)}: no object of the API: bookkeeping, or outside {prefix}")

    def end(self) -> None:
        """Say how many lines were left out."""
        if self._lines > _MOST_LINES:
            say(f"and {self._lines - _MOST_LINES} more; -o wide lists all")

    def _line(self, text: str) -> None:
        self._lines += 1
        if self._lines <= _MOST_LINES:
            say(text)


def _verdict(found: Examination, *, secret: bool) -> str:
    cause = f" ({found.verdict.cause.value})" if found.verdict.cause is not None else ""
    return f"{display(found.stored.key)}: {found.verdict.outcome.value}{cause}: {message_of(found, secret=secret)}"


def _explain(found: Examination, again: RepeatedOptions, *, secret: bool, object_shown: bool = False) -> None:
    say(_verdict(found, secret=secret))
    for remedy in remedies_for(found, again)[:1]:
        if object_shown and "kubectl replace" in remedy.command:
            _next("kubectl replace -f - heals the object with this output")
            return
        _next(remedy.action)
        if remedy.command:
            click.echo(f"        {safe_text(remedy.command)}", err=True)


def _code_of(found: Examination) -> ExitCode:
    undetermined = found.verdict.outcome in {Outcome.UNDETERMINED, Outcome.READABLE}
    return ExitCode.INCOMPLETE if undetermined else ExitCode.FINDINGS


def _last_words(result: GetResult, source: Source, request: GetRequest) -> int:
    for problem in result.problems:
        say(f"incomplete: {problem}")
    if result.masked:
        say(f"{counted(result.masked, 'value')} masked: do not pipe this into kubectl; --reveal shows them")
    if result.ended is not None:
        say(f"{result.ended.reason} before the end: what is shown is not everything")
        return result.ended.exit_code if result.seen else result.ended.bare_exit_code
    if not result.seen and result.problems:
        say("nothing was found, and not everything could be read")
        return ExitCode.INCOMPLETE
    if not result.seen:
        _not_found(source, request)
        return ExitCode.NOTHING_WRONG if result.empty else ExitCode.SOURCE
    for name in result.missing:
        say(f"{request.wanted.resource} {name!r}: not found{_where(request)}")
    if result.problems or result.undetermined or result.missing:
        return ExitCode.INCOMPLETE
    return ExitCode.FINDINGS if result.findings else ExitCode.NOTHING_WRONG


def _where(request: GetRequest) -> str:
    wanted = request.wanted
    known = find_resources(wanted.resource, builtin_directories())
    if known and all(directory.namespaced is False for directory in known):
        return ""
    if wanted.all_namespaces:
        return " in any namespace"
    return f" in namespace {wanted.namespace or DEFAULT_NAMESPACE}"


def _not_found(source: Source, request: GetRequest) -> ExitCode:
    """Say that nothing was found, and what may be the reason."""
    wanted, layout = request.wanted, request.layout
    if wanted.key is not None:
        say(f"nothing is stored under {display(wanted.key)}")
        below = next(iter(source.current(wanted.key.rstrip(b"/") + b"/")), None)
        if below is not None:
            _next(
                f"it is a prefix of keys like {display(below.key)}; name one of them, or RESOURCE -n NAMESPACE"
            )
            return ExitCode.SOURCE
    else:
        what = f"{wanted.resource} {', '.join(map(repr, wanted.names))}".strip()
        if not wanted.names:
            what = f"no {wanted.resource}"
        say(f"{what}{': not found' if wanted.names else ''}{_where(request)}")
    if not has_keys(source, layout):
        _next(
            f"no key at all starts with {layout.prefix}: check --etcd-prefix, and that this is the right etcd"
        )
    elif wanted.key is None and not wanted.all_namespaces and _where(request):
        _next(
            "-n NAMESPACE names another namespace, -A all of them"
            if not wanted.namespace
            else "-A looks in all namespaces"
        )
    return ExitCode.SOURCE


def _next(text: str) -> None:
    click.echo(f"  next: {safe_text(text)}", err=True)
