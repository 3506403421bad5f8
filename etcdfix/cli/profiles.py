"""``--profile``: fills in what the command line leaves open. What stands on the command line wins.

With a profile no variable says where the data is or how it is read: a profile is of one cluster, and what was exported
may be of another. What is set in vain is named. A user, passwords and time-outs still have their variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from etcdfix.cli.output import say
from etcdfix.errors import ConfigurationError
from etcdfix.inputs.profiles import FIELDS, Profile, default_file, load_profile

PROFILE_PARAMETER: Final = "profile"
_META: Final = "etcdfix.profile"

PARAMETERS: Final = {
    field: {"key": "key_file", "kms-endpoint": "kms_endpoints"}.get(field, field.replace("-", "_"))
    for field in FIELDS
}
"""Field to the parameter of its option."""

_BESIDE: Final = (
    "kine", "no_encryption", "etcd_servers_overrides", "revision", "salvage", "insecure_skip_tls_verify", "no_kms",
)  # fmt: skip
"""Parameters without a field, whose variables would say of another cluster what a profile says of its own."""

OF_ETCDCTL: Final = ("ETCDCTL_ENDPOINTS", "ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY")


def profile_in_use() -> Profile | None:
    """Return the profile that the command line names, if any."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_META) if context is not None else None


def heeded_variables() -> Mapping[str, str]:
    """Return the variables that may say how etcd is reached."""
    if profile_in_use() is None:
        return os.environ
    return {name: value for name, value in os.environ.items() if name not in OF_ETCDCTL}


def use_profile(context: click.Context, *, changing: bool) -> None:
    """Fill in what the profile says and the command line does not.

    Args:
        context: Of a command whose words are parsed.
        changing: The command changes something: nobody else may be able to write the file.

    Raises:
        ConfigurationError: The file or the profile is not as it has to be, or a manifest says the same things.
        click.UsageError: A file is named, and no profile.
    """
    options = {option.name or "": option for option in context.command.params}
    if PROFILE_PARAMETER not in options:
        return
    name: str | None = context.params.get(PROFILE_PARAMETER)
    path: Path | None = context.params.get("config_file")
    if name is None:
        if path is not None:
            raise click.UsageError("--config-file names a file of profiles: add --profile NAME")
        return
    profile = load_profile(name, path if path is not None else default_file(), trusted=changing)
    context.meta[_META] = profile
    sources = {parameter: context.get_parameter_source(parameter) for parameter in options}
    typed = {parameter for parameter, source in sources.items() if source is ParameterSource.COMMANDLINE}
    if "manifest" in typed:
        raise ConfigurationError(
            "--profile and --manifest both say where the data is and how it is read",
            hint="leave one of them out",
        )
    _forget_variables(context, options, sources, profile)
    for field, value in profile.values.items():
        parameter = PARAMETERS[field]
        if parameter in options and parameter not in typed | _beaten(typed):
            given: Any = ",".join(value) if field == "endpoints" else value
            context.params[parameter] = options[parameter].type_cast_value(context, given)
            context.set_parameter_source(parameter, ParameterSource.DEFAULT_MAP)


def _beaten(typed: set[str]) -> set[str]:
    """Return the sources that a profile may name, and that another one on the command line takes the place of."""
    if typed & {"snapshot", "kine"}:
        return {"endpoints", "snapshot"}
    return {"snapshot"} if "endpoints" in typed else set()


def _forget_variables(
    context: click.Context,
    options: Mapping[str, click.Parameter],
    sources: Mapping[str, ParameterSource | None],
    profile: Profile,
) -> None:
    in_vain = [name for name in OF_ETCDCTL if os.environ.get(name)]
    for parameter in (*PARAMETERS.values(), *_BESIDE):
        if sources.get(parameter) is ParameterSource.ENVIRONMENT:
            option = options[parameter]
            in_vain.append(str(option.envvar))
            context.params[parameter] = () if option.multiple else None  # what a default stands for
            context.set_parameter_source(parameter, ParameterSource.DEFAULT)
    if in_vain:
        say(
            f"not heeded: {', '.join(sorted(in_vain))}; where the data is and how it is read is said by "
            f"{profile.where}, and on the command line"
        )
