"""Profiles: how a cluster is reached and read, under a name that somebody can type at night.

Format (ours): YAML or JSON, one mapping ``profiles`` from names to fields; a field is called as its option is, without
the dashes::

    profiles:
      prod-eu-1:
        endpoints: [https://10.0.0.11:2379, https://10.0.0.12:2379]
        cacert: /etc/kubernetes/pki/etcd/ca.crt
        encryption-config: /etc/kubernetes/enc/enc.yaml

There is no field for a password or for anything that lifts a rule, and paths are absolute: what a profile means does
not depend on where somebody stands.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from etcdfix.errors import ConfigurationError, JSONMalformed, why
from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, Check, any_status, read_input
from etcdfix.text.safetext import quote_command, safe_text

LISTS: Final = frozenset({"endpoints", "kms-endpoint"})
PATHS: Final = frozenset({"cacert", "cert", "key", "encryption-config", "manifest", "snapshot"})
FIELDS: Final = (
    "endpoints", "cacert", "cert", "key", "snapshot", "manifest", "etcd-prefix", "encryption-config", "kms-endpoint",
    "kubernetes-version", "cluster-name",
)  # fmt: skip
"""Each is an option of that name."""

SOURCES: Final = ("endpoints", "snapshot", "manifest")
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What stands under one name.

    Attributes:
        name: Its name.
        file: The file that it stands in.
        values: Field to what its option would be given; lists of several are tuples.
    """

    name: str
    file: Path
    values: Mapping[str, str | tuple[str, ...]]

    @property
    def where(self) -> str:
        """Which profile of which file, as part of a sentence."""
        return safe_text(f"profile {self.name} of {self.file}")

    @property
    def words(self) -> list[str]:
        """The options that say the same."""
        return [
            word
            for field, value in self.values.items()
            for each in (
                [",".join(value)] if field == "endpoints" else [value] if isinstance(value, str) else value
            )
            for word in (f"--{field}", each)
        ]


def default_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where profiles are kept: ``$XDG_CONFIG_HOME/etcdfix/config.yaml``, or below ``~/.config``.

    Format:
        XDG Base Directory Specification: a path that is not absolute counts as none.
    """
    base = Path(environ.get("XDG_CONFIG_HOME") or "")
    return (base if base.is_absolute() else Path("~/.config").expanduser()) / "etcdfix" / "config.yaml"


def load_profiles(path: Path, *, trusted: bool = False) -> dict[str, Profile]:
    """Read the profiles of a file.

    Args:
        path: It.
        trusted: A change rests on it: nobody else may be able to write it.

    Raises:
        ConfigurationError: It cannot be read, is not as it has to be, or others could have written it.
    """
    from etcdfix.golang.document import read_document  # noqa: PLC0415 - needs YAML

    try:
        if trusted:
            # Of a link, and of the file.
            for way in dict.fromkeys((path.absolute(), Path(os.path.realpath(path, strict=True)))):
                _require_own(path, way.parent, way.parent.stat())
                for above in way.parent.parents:
                    _require_own(path, above, above.stat(), above=True)
        check: Check = partial(_require_own, path, path) if trusted else any_status
        document, repeated = read_document(read_input(path, most_bytes=MAX_SETTINGS_BYTES, check=check))
    except OSError as exc:
        missing = exc.errno in {errno.ENOENT, errno.ENOTDIR}
        hint = (
            f"profiles stand in {default_file()}, or name their file: --config-file FILE" if missing else ""
        )
        raise ConfigurationError(f"profiles {path}: {why(exc)}", hint=hint) from exc
    except JSONMalformed as exc:
        raise ConfigurationError(f"profiles {path}: neither YAML nor JSON") from exc
    if repeated:
        raise ConfigurationError(
            f"profiles {path}: line {repeated[0].line}: {repeated[0].name!r} stands there twice",
            hint="leave one of them out: nothing says which is meant",
        )
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(profiles, dict):
        raise ConfigurationError(f"profiles {path}: there is no mapping 'profiles' from names to fields")
    _refuse_unknown(path, "", document, ("profiles",))
    return {name: _profile(path, name, fields) for name, fields in profiles.items()}


def load_profile(name: str, path: Path, *, trusted: bool = False) -> Profile:
    """Return one profile of a file.

    Raises:
        ConfigurationError: As :func:`load_profiles`, or there is none of that name.
    """
    profiles = load_profiles(path, trusted=trusted)
    if name not in profiles:
        there = ", ".join(profiles) or "none"
        raise ConfigurationError(
            f"profiles {path}: there is no profile {name!r}{_nearest(name, profiles)}",
            hint=f"profiles there: {there}",
        )
    return profiles[name]


def _require_own(path: Path, what: Path, found: os.stat_result, *, above: bool = False) -> None:
    """Refuse the file, or a directory that leads to it, where somebody else could have written or replaced it.

    Args:
        path: The file.
        what: It, or the directory.
        found: Whose that is, and who may write it.
        above: It is above the file's directory: with the sticky bit, as ``/tmp`` has it, nobody replaces what is in it.

    Raises:
        ConfigurationError: Another user owns it, or others may write it.
    """
    if found.st_uid not in {0, os.geteuid()}:
        raise ConfigurationError(
            f"profiles {path}: {what} belongs to another user, and a change would rest on it",
            hint="name what the change is about by options instead",
        )
    if found.st_mode & _OTHERS and not (above and found.st_mode & stat.S_ISVTX):
        raise ConfigurationError(
            f"profiles {path}: others may write {what}, and a change would rest on it",
            hint=quote_command(["chmod", "go-w", str(what)]),
        )


def _profile(path: Path, name: str, fields: Any) -> Profile:
    where = f"profiles {path}: profile {name!r}"
    if not name or not name.isprintable() or name.startswith("-"):
        raise ConfigurationError(f"{where} has a name that cannot be typed")
    if not isinstance(fields, dict):
        raise ConfigurationError(f"{where} is no mapping of fields")
    _refuse_unknown(path, name, fields, FIELDS)
    values = {field: _value(where, field, fields[field]) for field in FIELDS if field in fields}
    if not any(field in values for field in SOURCES):
        raise ConfigurationError(
            f"{where} says nowhere where the data is", hint=f"add one of {', '.join(SOURCES)}"
        )
    if "snapshot" in values and "endpoints" in values:
        raise ConfigurationError(
            f"{where}: endpoints and snapshot are two different sources", hint="make two profiles"
        )
    return Profile(name=name, file=path, values=values)


def _value(where: str, field: str, value: Any) -> str | tuple[str, ...]:
    if field in LISTS:
        texts = value if isinstance(value, list) else [value]
        if not texts or any(not isinstance(text, str) or not text for text in texts):
            raise ConfigurationError(f"{where}: {field} is no list of texts")
        return tuple(part for text in texts for part in (text.split(",") if field == "endpoints" else [text]))
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{where}: {field} is no text", hint=f'put it in quotes, as {field}: "1.36"')
    if field in PATHS and not Path(value).is_absolute():
        raise ConfigurationError(
            f"{where}: {field} {value!r} is no absolute path", hint="it must mean the same wherever you stand"
        )
    return value


def _refuse_unknown(path: Path, name: str, fields: Mapping[str, Any], known: tuple[str, ...]) -> None:
    of = f"profile {name!r} has" if name else "there is"
    for field in fields:
        if field not in known:
            raise ConfigurationError(
                f"profiles {path}: {of} an unknown field {field!r}{_nearest(field, known)}",
                hint=f"fields are {', '.join(known)}; passwords and what lifts a rule are never in a profile",
            )


def _nearest(word: str, known: Any) -> str:
    found = difflib.get_close_matches(word, known, n=1)
    return f"; do you mean {found[0]!r}?" if found else ""
