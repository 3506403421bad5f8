"""Options that several commands share: where the data is, and how to read it.

Each has an ``ETCDFIX_*`` variable, which most lose on commands that change something (:mod:`etcdfix.cli.command`);
those that etcdctl has too also listen to ``ETCDCTL_*`` (handled where the connection is built, so that a flag wins over
both).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from etcdfix.cli.command import variable_of
from etcdfix.cli.ending import end_after
from etcdfix.cli.on_this_machine import with_what_is_found
from etcdfix.cli.origins import origin_of, origins_of
from etcdfix.cli.output import say
from etcdfix.commands.opening import Inputs, load_encryption
from etcdfix.errors import ConfigurationError
from etcdfix.inputs.overrides import Overrides, parse_overrides, servers_of
from etcdfix.inputs.releases import parse_kubernetes_version
from etcdfix.report.origin import shown_word
from etcdfix.report.render import FORMS
from etcdfix.scope import ScopeRequest
from etcdfix.storagekey import DEFAULT_PREFIX, StorageLayout
from etcdfix.workers.jobs import MOST_JOBS

if TYPE_CHECKING:
    from etcdfix.encryption.config import EncryptionConfiguration
    from etcdfix.inputs.manifest import Manifest


Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def option_group(*options: Decorator) -> Decorator:
    """Return a decorator that adds these options, which are shown in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _option(*names: str, **settings: Any) -> Decorator:
    long = next(n for n in names if n.startswith("--"))
    return click.option(*names, envvar=variable_of(long), show_envvar=False, **settings)


FILE: Final = click.Path(path_type=Path)
"""What an option for a path takes."""
_TLS_FILE: Final = click.Path(readable=False)
"""The same as text; whether it can be read is seen when it is read."""


def _count_time(_context: click.Context, _parameter: click.Parameter, text: str | None) -> None:
    if text is not None:
        end_after(text)


timeout_option = _option(
    "--timeout", metavar="DURATION", expose_value=False, callback=_count_time,
    help="Longest that the whole command may take; what there is by then is given, as incomplete.  [default: no limit]",
)  # fmt: skip
"""Bounds a whole command."""


def _parse_jobs(_context: click.Context, _parameter: click.Parameter, text: str) -> Literal["auto"] | int:
    if text == "auto":
        return "auto"
    if re.fullmatch("[0-9]{1,3}", text) and 1 <= int(text) <= MOST_JOBS:
        return int(text)
    raise ConfigurationError(
        f"--jobs {shown_word(text)!r} is no number of processes", hint=f"give 1 to {MOST_JOBS}, or auto"
    )


jobs_option = _option(
    "--jobs", metavar="N|auto", default="auto", callback=_parse_jobs,
    help="How many processes examine values at once; auto uses more than one where there is enough to do. The "
         "result is the same for any N.  [default: auto]",
)  # fmt: skip
"""``jobs`` is what :func:`etcdfix.workers.jobs.resolve_jobs` takes."""

_snapshot_option = _option(
    "--snapshot", type=FILE, metavar="FILE",
    help="Read a snapshot (etcdctl snapshot save) or a copied member/snap/db; gzip is fine.",
)  # fmt: skip
kine_option = _option(
    "--kine", type=FILE, metavar="FILE",
    help="Read the state.db of k3s on SQLite (kine), beside a k3s that runs or a copy of it. Nothing writes to it.",
)  # fmt: skip
"""Names kine's file as the source."""
_salvage_option = _option(
    "--salvage", is_flag=True, default=None,
    help="Read every whole page of a broken snapshot. Always incomplete, and never a source for changes.",
)  # fmt: skip
_revision_option = _option(
    "--revision", type=click.IntRange(min=0), default=0, metavar="N",
    help="Read at this revision instead of the newest.",
)  # fmt: skip
live_options = option_group(
    _option("--endpoints", metavar="LIST", help="Comma list of etcd endpoints.  [default: 127.0.0.1:2379]"),
    _option("--cacert", metavar="FILE", type=_TLS_FILE, help="CA that signed etcd's server certificate."),
    _option("--cert", metavar="FILE", type=_TLS_FILE, help="Client certificate."),
    _option("--key", "key_file", metavar="FILE", type=_TLS_FILE, help="Key of the client certificate."),
    _option("--user", metavar="NAME[:PASSWORD]", help="etcd user."),
    _option("--password", metavar="PASSWORD", help="Password; better given by ETCDCTL_PASSWORD."),
    _option("--insecure-skip-tls-verify", is_flag=True, default=None,
            help="Do not check who the server is."),
    _option("--dial-timeout", metavar="DURATION", help="Time to reach an endpoint.  [default: 2s]"),
    _option("--command-timeout", metavar="DURATION", help="Time for one request.  [default: 5s]"),
    timeout_option,
    _option("--manifest", type=FILE, metavar="FILE",
            help="Take endpoints, certificates, prefix, configuration and version from a kube-apiserver "
                 "static-pod manifest; flags win."),
    _option("--etcd-servers-overrides", metavar="LIST",
            help="The API server's flag of this name: resources that have an etcd of their own, as "
                 "/events#https://10.0.0.1:2381. What looks at everything reads each from its own etcd; any other "
                 "command asks the etcd of the one resource that is named. A manifest says it too."),
    _option("--etcd-prefix", metavar="PREFIX", help="The API server's --etcd-prefix.  [default: /registry]"),
)  # fmt: skip
"""Which live etcd, as it is now: all that a command takes which changes something."""
etcd_data_options = option_group(_snapshot_option, _salvage_option, live_options, _revision_option)
"""Where the data of etcd is, for what only reads."""
source_options = option_group(kine_option, etcd_data_options)
"""Where the data is, for what only reads."""

reading_options = option_group(
    _option("--encryption-config", type=FILE, metavar="FILE", help="The EncryptionConfiguration of the API servers."),
    _option("--no-encryption", is_flag=True, default=None,
            help="This cluster encrypts nothing at rest, so there is no EncryptionConfiguration."),
    _option("--kms-endpoint", "kms_endpoints", metavar="NAME=unix:///PATH", multiple=True,
            help="Where the plugin of this KMS provider listens, instead of the configuration's endpoint "
                 "(may be repeated)."),
    _option("--no-kms", is_flag=True, default=None,
            help="Ask no KMS plugin; values under KMS stay undetermined."),
    _option("--kubernetes-version", metavar="X.Y",
            help="Only kinds that this release registers count as known.  [default: every known release]"),
)  # fmt: skip
"""How values are to be read."""

main_etcd_options = option_group(
    click.option(
        "--main-endpoints", metavar="LIST",
        help="Where the resource has an etcd of its own: endpoints of the main one, whose namespace kube-system says "
        "which cluster this is. A manifest names them too.",
    ),
)  # fmt: skip
"""Of commands that change something, or judge a change: the etcd that names the cluster."""


def audit_log_option(
    help_text: str = "The audit log, the hash-chained record of all that is done.  [default: audit.jsonl in "
    "/var/lib/etcdfix for root, else in $XDG_STATE_HOME/etcdfix]",
) -> Decorator:
    """Return ``--audit-log``."""
    return _option("--audit-log", type=FILE, metavar="FILE", help=help_text)


def backup_dirs_option(
    help_text: str = "Directory of backups (may be repeated; a new backup goes to each).  [default: /var/lib/etcdfix "
    "for root, else $XDG_STATE_HOME/etcdfix]",
) -> Decorator:
    """Return ``--backup-dir``."""
    return _option("--backup-dir", "backup_dirs", type=FILE, multiple=True, metavar="DIR", help=help_text)


def form_option(
    forms: Collection[str], *, help_text: str = "Form of the report.", otherwise: str = ""
) -> Decorator:
    """Return ``-o``. Its variable counts on every command that changes nothing."""
    default = None if otherwise else next(iter(forms))
    return _option(
        "-o", "--output", "output", type=click.Choice(list(forms)), default=default, show_default=otherwise or True,
        help=help_text,
    )  # fmt: skip


output_file_option = _option(
    "--output-file",
    type=FILE,
    metavar="FILE",
    help="Write the report to this file instead of standard output.",
)
"""Where a report goes."""


def report_options(forms: Collection[str] = tuple(FORMS)) -> Decorator:
    """Return ``-o`` and ``--output-file``."""
    return option_group(form_option(forms), output_file_option)


def look_options(forms: Collection[str] = tuple(FORMS)) -> Decorator:
    """Return the options of a look at many values: what is read and how, by how many processes, and the report."""
    return option_group(source_options, reading_options, jobs_option, report_options(forms))


TEXT: Final = "text"
change_output_option = form_option(
    [TEXT, "json", "yaml"],
    help_text="Form of the result, a refusal too. The preview goes to standard error in any form.",
)
"""Of every command that changes something."""


_CONNECTION = (
    "endpoints", "cacert", "cert", "key_file", "user", "password", "insecure_skip_tls_verify", "dial_timeout",
    "command_timeout",
)  # fmt: skip


def gather_inputs(
    options: dict[str, Any],
    *,
    resources: tuple[str, ...] = (),
    key: bytes | None = None,
    each_from_its_own: bool = False,
) -> Inputs:
    """Combine flags, variables, what is found on this machine, and the manifest.

    Raises:
        ConfigurationError: Options contradict each other or make no sense.
    """
    options = with_what_is_found(options)
    connection = {name: options.get(name) for name in _CONNECTION}
    snapshot: Path | None = options.get("snapshot")
    kine: Path | None = options.get("kine")
    if snapshot is not None and kine is not None:
        raise ConfigurationError(
            "--snapshot and --kine name two different sources", hint="leave one of them out"
        )
    if snapshot is not None or kine is not None:
        _refuse_two_sources("--kine" if snapshot is None else "--snapshot")
    if snapshot is None and options.get("salvage"):
        raise ConfigurationError("--salvage reads a broken snapshot", hint="name it with --snapshot FILE")
    prefix, config = options.get("etcd_prefix"), options.get("encryption_config")
    version: str | None = options.get("kubernetes_version")
    notices: list[str] = []
    release_source = ""
    main: str = options.get("main_endpoints") or ""
    live = snapshot is None and kine is None
    named: str | None = options.get("etcd_servers_overrides")
    overrides = parse_overrides(named) if named is not None else None
    overrides_count = named is not None
    own = ""
    manifest: Manifest | None = None
    if options.get("manifest") is not None:
        from etcdfix.inputs.manifest import load_manifest  # noqa: PLC0415 - needs YAML, only here

        manifest = load_manifest(options["manifest"])
        prefix = prefix if prefix is not None else manifest.etcd_prefix
        if overrides is None:
            overrides = dict(manifest.overrides)
        overrides_count = overrides_count or not connection["endpoints"]
        _fill_connection(connection, manifest)
        main = main or ",".join(manifest.endpoints)
        config = config or manifest.encryption_config
        release_source = "" if version or not manifest.kubernetes_version else "--manifest"
        version = version or manifest.kubernetes_version
    if named is not None:
        main = main or connection["endpoints"] or ""
    each_from_its_own = each_from_its_own and live and overrides_count and bool(overrides)
    if each_from_its_own and options.get("revision"):
        raise ConfigurationError(
            "--revision is that of one etcd, and some resources have an etcd of their own",
            hint="name one of them with --endpoints, without --manifest and --etcd-servers-overrides",
        )
    if live and overrides and overrides_count and not each_from_its_own:
        layout = StorageLayout(prefix if prefix is not None else DEFAULT_PREFIX)
        if key is not None:
            resources = (str(layout.locate(key)[0].group_resource),)
        if _choose_etcd(connection, overrides, resources, notices):
            own = (
                origin_of("--etcd-servers-overrides", "etcd_servers_overrides")
                if named is not None
                else "--manifest"
            )
    named_by = origin_of("--revision", "revision")
    if options.get("revision") and named_by.startswith("variable"):
        notices.append(
            f"read at revision {options['revision']} ({named_by}): what was written later is not seen"
        )
    if options.get("no_encryption") and config is not None:
        raise ConfigurationError(
            f"--no-encryption, and {config} is named as the encryption configuration: one of them is wrong",
            hint="leave --no-encryption out where the API servers have an --encryption-provider-config",
        )
    return Inputs(
        snapshot=snapshot,
        kine=kine,
        connection=connection,
        etcd_prefix=prefix if prefix is not None else DEFAULT_PREFIX,
        revision=options.get("revision") or 0,
        encryption_config=config,
        kubernetes_minor=parse_kubernetes_version(version),
        kms_endpoints=_kms_endpoints(options.get("kms_endpoints") or ()),
        ask_kms=not options.get("no_kms"),
        no_encryption=bool(options.get("no_encryption")),
        notices=tuple(notices),
        main_endpoints="" if main == connection["endpoints"] else main,
        salvage=bool(options.get("salvage")),
        main_named=bool(options.get("main_endpoints")),
        overrides=overrides,
        each_from_its_own=each_from_its_own,
        release_source=release_source
        or (origin_of("--kubernetes-version", "kubernetes_version") if version else ""),
        manifest=options.get("manifest"),
        origins=origins_of(options, manifest, options.get("manifest"), own),
    )


def _kms_endpoints(texts: Sequence[str]) -> dict[str, str]:
    endpoints = {}
    for text in texts:
        # A provider's name may hold a "="; an endpoint that is accepted holds "=unix:" nowhere but at its start.
        name, separator, rest = text.rpartition("=unix:")
        if not name or not separator:
            raise ConfigurationError(
                f"--kms-endpoint {text!r} does not name a provider and its socket",
                hint="write it as NAME=unix:///run/kms.sock, with the provider's name in the configuration",
            )
        if name in endpoints:
            raise ConfigurationError(f"--kms-endpoint names the provider {name!r} twice")
        endpoints[name] = f"unix:{rest}"
    return endpoints


def _refuse_two_sources(file_option: str) -> None:
    context = click.get_current_context()
    for name in ("endpoints", "cacert", "cert", "key_file", "user"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise ConfigurationError(
                f"{file_option} and --{name.removesuffix('_file')} name two different sources",
                hint="leave one of them out",
            )


def _choose_etcd(
    connection: dict[str, Any], overrides: Overrides, resources: Sequence[str], notices: list[str]
) -> bool:
    """Name the etcd of the one resource in question, and say whether it has one; tell of others that are not read."""
    own = servers_of(overrides, resources[0]) if len(resources) == 1 else ()
    if own:
        connection["endpoints"] = ",".join(own)
        notices.append(
            f"{resources[0]} live in an etcd of their own, and this command reads no other one: who uses an object is "
            "stored elsewhere, and etcdfix explain KEY --impact reads it all"
        )
        return True
    notices += (
        f"{resource} live in an etcd of their own ({', '.join(urls)}), which this command does not read"
        for resource, urls in overrides.items()
    )
    return False


def _fill_connection(connection: dict[str, Any], manifest: Manifest) -> None:
    connection["endpoints"] = connection["endpoints"] or ",".join(manifest.endpoints) or None
    connection["cacert"] = connection["cacert"] or manifest.cacert
    connection["cert"] = connection["cert"] or manifest.cert
    connection["key_file"] = connection["key_file"] or manifest.key


def what_to_read(
    options: dict[str, Any],
    *,
    scope: ScopeRequest | None = None,
    keys: Iterable[bytes] = (),
    each_from_its_own: bool = False,
) -> tuple[Inputs, EncryptionConfiguration | None]:
    """Return what the source and reading options say, and the configuration they name; say what is odd about them.

    Raises:
        ConfigurationError: They make no sense, or what is looked at lies in several etcds.
    """
    if each_from_its_own:
        inputs = gather_inputs(options, each_from_its_own=True)
    else:
        inputs = inputs_of_one_etcd(options, scope or ScopeRequest(), keys)
    return inputs, configuration_of(inputs)


def inputs_of_one_etcd(options: dict[str, Any], scope: ScopeRequest, keys: Iterable[bytes] = ()) -> Inputs:
    """Return what the options say for a command that asks one etcd: the one that has what is named.

    Raises:
        ConfigurationError: Options make no sense, or what is named lies in several etcds.
    """
    options = with_what_is_found(options)  # it is said once
    inputs = gather_inputs(options)
    if not inputs.overrides:
        return inputs
    one_of_each: dict[tuple[str, ...], str] = {}
    for resource in scope.resources_in(StorageLayout(inputs.etcd_prefix), keys):
        one_of_each.setdefault(servers_of(inputs.overrides, resource), resource)
    # Options may say that all is read from one place whatever a manifest says, so they are asked for each.
    gathered = [gather_inputs(options, resources=(resource,)) for resource in one_of_each.values()]
    if len({each.connection["endpoints"] for each in gathered}) > 1:
        first, other = list(one_of_each.values())[:2]
        raise ConfigurationError(
            f"{first} and {other} lie in different etcds (--etcd-servers-overrides), and this command asks one",
            hint="one command for each etcd; a report of the resources of one alone: etcdfix scan RESOURCE -o json",
        )
    return gathered[0] if gathered else inputs


def configuration_of(inputs: Inputs) -> EncryptionConfiguration | None:
    """Return the configuration that the options name, and say what is odd about either.

    Raises:
        ConfigurationError: It cannot be read, or makes no sense.
    """
    for notice in inputs.notices:
        say(notice)
    configuration = load_encryption(inputs)
    for warning in configuration.warnings if configuration is not None else ():
        say(f"{inputs.encryption_config}: {warning}")
    return configuration
