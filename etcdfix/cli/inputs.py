"""Options, variables, a manifest and this machine together say what is read, and how."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.core import ParameterSource

from etcdfix.cli.command import Command, variable_of
from etcdfix.cli.output import say
from etcdfix.commands.opening import Inputs, load_encryption
from etcdfix.inputs import machine
from etcdfix.inputs.on_this_machine import find_distributions
from etcdfix.inputs.overrides import Overrides, parse_overrides, servers_of
from etcdfix.inputs.releases import KNOWN_RELEASES, find_minor, parse_kubernetes_version
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import DEFAULT_PREFIX, StorageLayout
from etcdfix.sources.connection import DEFAULT_ENDPOINT

if TYPE_CHECKING:
    from etcdfix.encryption.config_model import EncryptionConfiguration

_CONNECTION: Final = (
    "endpoints", "cacert", "cert", "key_file", "user", "password", "insecure_skip_tls_verify", "dial_timeout",
    "command_timeout",
)  # fmt: skip
_OF_ETCD: Final = ("endpoints", "cacert", "cert", "key_file", "user")
_NAMING: Final = (*_OF_ETCD, "snapshot", "kine", "manifest", "etcd_servers_overrides")
_OF_ETCDCTL: Final = {
    "endpoints": "ETCDCTL_ENDPOINTS",
    "cacert": "ETCDCTL_CACERT",
    "cert": "ETCDCTL_CERT",
    "key_file": "ETCDCTL_KEY",
}
NOTHING_NAMED: Final = ScopeRequest()
_PATHS: Final = frozenset({"manifest", "kine", "encryption_config"})


def what_to_read(
    options: dict[str, Any], scope: ScopeRequest = NOTHING_NAMED, **more: Any
) -> tuple[Inputs, EncryptionConfiguration | None]:
    """Return what :func:`gather_inputs` does, and the configuration that is named; say what is odd about them."""
    inputs = gather_inputs(options, scope, **more)
    return inputs, configuration_of(inputs)


def configuration_of(inputs: Inputs) -> EncryptionConfiguration | None:
    """Return the configuration that the options name, and say what is odd about either."""
    for notice in inputs.notices:
        say(notice)
    configuration = load_encryption(inputs)
    known = (
        {provider.name for provider in configuration.kms_providers} if configuration is not None else set()
    )
    for name in inputs.kms_endpoints.keys() - known:
        say(f"--kms-endpoint names the KMS provider {name!r}, which --encryption-config does not have")
    for warning in configuration.warnings if configuration is not None else ():
        say(f"{inputs.encryption_config}: {warning}")
    return configuration


def gather_inputs(
    options: dict[str, Any],
    scope: ScopeRequest = NOTHING_NAMED,
    *,
    keys: Iterable[bytes] = (),
    each_from_its_own: bool = False,
) -> Inputs:
    """Combine flags, variables, what is found on this machine, and the manifest.

    Args:
        options: What click collected.
        scope: What is looked at; where it has an etcd of its own, that one is asked.
        keys: More of it.
        each_from_its_own: Everything is looked at, each resource in its own etcd.
    """
    options = _with_what_is_found(options)
    origins = {name: _origin_of(name) for name, value in options.items() if value}
    named: str | None = options.get("etcd_servers_overrides")
    overrides = parse_overrides(named) if named is not None else None
    main: str = options.get("main_endpoints") or ""
    notices: list[str] = []
    # Whoever names endpoints beside a manifest has all read from there.
    several = _is_live(options) and (named is not None or not options.get("endpoints"))
    if options.get("manifest") is not None:
        from etcdfix.inputs.manifest import load_manifest  # noqa: PLC0415 - needs YAML, only here

        manifest = load_manifest(options["manifest"])
        overrides = overrides if overrides is not None else dict(manifest.overrides)
        main = main or manifest.endpoints
        where = f"{options['manifest']} ({origins['manifest']})"
        for name, value in msgspec.structs.asdict(manifest).items():
            if not value or options.get(name) not in ({None} if name == "etcd_prefix" else {None, ""}):
                continue
            if name == "kubernetes_version" and find_minor(value) is None:
                known = f"this version knows {KNOWN_RELEASES}, and accepts each of them"
                notices.append(f"{where} names an image of release {value}; {known}")
                continue
            options[name], origins[name] = value, where
    connection = {name: options.get(name) for name in _CONNECTION}
    if named is not None:
        main = main or connection["endpoints"] or ""
    several = several and bool(overrides)
    prefix = options.get("etcd_prefix")
    prefix = prefix if prefix is not None else DEFAULT_PREFIX
    config, revision = options.get("encryption_config"), options.get("revision") or 0
    own = ""
    if several and each_from_its_own and revision:
        raise ConfigurationError(
            "--revision is that of one etcd, and some resources have an etcd of their own",
            hint="name one of them with --endpoints, without --manifest and --etcd-servers-overrides",
        )
    if several and not each_from_its_own:
        resources = scope.resources_in(StorageLayout(prefix), keys)
        if _choose_etcd(connection, overrides or {}, resources, notices):
            own = origins.get("etcd_servers_overrides", "--manifest")
    if revision and origins["revision"].startswith("variable"):
        notices.append(
            f"read at revision {revision} ({origins['revision']}): what was written later is not seen"
        )
    if options.get("no_encryption") and config is not None:
        raise ConfigurationError(
            f"--no-encryption, and {config} is named as the encryption configuration: one of them is wrong",
            hint="leave --no-encryption out where the API servers have an --encryption-provider-config",
        )
    return Inputs(
        snapshot=options.get("snapshot"),
        kine=options.get("kine"),
        connection=connection,
        etcd_prefix=prefix,
        revision=revision,
        encryption_config=config,
        kubernetes_minor=parse_kubernetes_version(options.get("kubernetes_version")),
        kms_endpoints=_kms_endpoints(options.get("kms_endpoints") or ()),
        ask_kms=not options.get("no_kms"),
        no_encryption=bool(options.get("no_encryption")),
        notices=tuple(notices),
        main_endpoints="" if main == connection["endpoints"] else main,
        salvage=bool(options.get("salvage")),
        main_named=bool(options.get("main_endpoints")),
        overrides=overrides,
        each_from_its_own=several and each_from_its_own,
        release_source=origins.get("kubernetes_version", ""),
        manifest=options.get("manifest"),
        origins=tuple(_told(origins, own, of_kine=options.get("kine") is not None)),
    )


def _is_live(options: Mapping[str, Any]) -> bool:
    """Say whether a live etcd is read."""
    given = [f"--{name}" for name in ("snapshot", "kine") if options.get(name) is not None]
    context = click.get_current_context(silent=True)
    for name in _OF_ETCD if given and context is not None else ():
        assert context is not None
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            given.append(f"--{name.removesuffix('_file')}")
    if len(given) > 1:
        raise ConfigurationError(
            f"{given[0]} and {given[1]} name two different sources", hint="leave one of them out"
        )
    if options.get("snapshot") is None and options.get("salvage"):
        raise ConfigurationError("--salvage reads a broken snapshot", hint="name it with --snapshot FILE")
    return not given


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


def _choose_etcd(
    connection: dict[str, Any], overrides: Overrides, resources: Sequence[str], notices: list[str]
) -> bool:
    """Name the etcd of the resources in question, and say whether it is not the main one; tell what is not read."""
    by_etcd: dict[tuple[str, ...], str] = {}
    for resource in resources:
        by_etcd.setdefault(servers_of(overrides, resource), resource)
    if len(by_etcd) > 1:
        first, other, *_ = by_etcd.values()
        raise ConfigurationError(
            f"{first} and {other} lie in different etcds (--etcd-servers-overrides), and this command asks one",
            hint="one command for each etcd; a report of the resources of one alone: etcdfix scan RESOURCE -o json",
        )
    for urls, resource in by_etcd.items():
        if urls:
            connection["endpoints"] = ",".join(urls)
            notices.append(
                f"{resource} live in an etcd of their own, and this command reads no other one: who uses an object is "
                "stored elsewhere, and etcdfix explain KEY --impact reads it all"
            )
            return True
    notices += (
        f"{resource} live in an etcd of their own ({', '.join(urls)}), which this command does not read"
        for resource, urls in overrides.items()
    )
    return False


def _with_what_is_found(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what a distribution on this machine says of its data, where nothing names any.

    Only for a command that looks: a change rests on nothing that was only found.
    """
    context = click.get_current_context(silent=True)
    command = context.command if context is not None else None
    named = any(map(options.get, _NAMING)) or any(map(os.environ.get, _OF_ETCDCTL.values()))
    looks = isinstance(command, Command) and not command.changing
    found = find_distributions(machine.ROOT) if looks and not named else []
    if not found:
        return dict(options)
    if len(found) > 1:
        both = " and ".join(f"{distribution.name} ({distribution.file})" for distribution in found)
        flags = " or ".join(distribution.flags for distribution in found)
        raise ConfigurationError(f"both {both} are on this machine: name the one that is meant, {flags}")
    distribution = found[0]
    say(f"{distribution.name} found by {distribution.file}: reading {distribution.flags}")
    options = dict(options)
    for field, value in distribution.values.items():
        name = "key_file" if field == "key" else field.replace("-", "_")
        options[name] = options.get(name) or (Path(value) if name in _PATHS else value)
    return options


def _origin_of(name: str) -> str:
    """Return where the value of an option was named."""
    flag = "--key" if name == "key_file" else f"--{name.replace('_', '-')}"
    context = click.get_current_context(silent=True)
    source = context.get_parameter_source(name) if context is not None else None
    return f"variable {variable_of(flag)}" if source is ParameterSource.ENVIRONMENT else flag


def _told(origins: dict[str, str], own: str, *, of_kine: bool) -> Iterator[str]:
    """Yield where endpoints, certificates and configuration were named, a line each, for a person to check."""
    named = {name: f"variable {one}" for name, one in _OF_ETCDCTL.items() if os.environ.get(one)} | origins
    if of_kine:
        yield f"data: {origins['kine']}"
    else:
        endpoints = named.get("endpoints", f"the default, {DEFAULT_ENDPOINT}")
        yield f"endpoints: {f'{own}; those of the main etcd: ' if own else ''}{endpoints}"
        files = dict.fromkeys(named[name] for name in ("cacert", "cert", "key_file") if name in named)
        if files:
            yield f"certificates: {', '.join(files)}"
    if "encryption_config" in named:
        yield f"configuration: {named['encryption_config']}"
