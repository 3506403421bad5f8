"""Options that several commands share, each explained once by ``etcdfix help options``.

Each has an ``ETCDFIX_*`` variable, but those of safety, which are given anew each time; most lose it on commands that
change something (:mod:`etcdfix.cli.command`). Those that etcdctl has too also listen to ``ETCDCTL_*``, handled where
the connection is built, so that a flag wins over both.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, Literal

import click
from click.shell_completion import CompletionItem

from etcdfix.apiserver.servers import parse_server_url
from etcdfix.cli.command import SHARED, shared, variable_of
from etcdfix.cli.ending import end_after
from etcdfix.cli.output import say
from etcdfix.copies.finder import TO_LOOK_IN, Named, grammar, parse_named
from etcdfix.copies.model import Place
from etcdfix.encryption.keyring import is_key_text
from etcdfix.examine.workers import MOST_JOBS
from etcdfix.inputs.inputfile import STANDARD_INPUT
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.rules import MEANINGS, NAMED, Rule
from etcdfix.remediation.audit.syslog import Syslog, parse_address
from etcdfix.report.origin import shown_word
from etcdfix.report.render import FORMS
from etcdfix.text.commands import ACKNOWLEDGEMENT

Decorator = Callable[[Any], Any]

FILE: Final = click.Path(path_type=Path)
"""Type of options that take a path."""
_TLS_FILE: Final = click.Path(readable=False)
"""The same as text; whether it can be read is seen when it is read."""


def option_group(*options: Decorator) -> Decorator:
    """Return a decorator that adds these options, which are shown in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _option(section: str, *names: str, **settings: Any) -> Decorator:
    long = next(name for name in names if name.startswith("--"))
    return shared(section, *names, envvar=variable_of(long), **settings)


def _count_time(_context: click.Context, _parameter: click.Parameter, text: str | None) -> None:
    if text is not None:
        end_after(text)


_ETCD: Final = "Which etcd (ETCDCTL_* variables are understood)"
_DATA: Final = "What is read"
_READING: Final = "How values are read"
_REPORT: Final = "The report"
_SERVERS: Final = "API servers"
_CHANGE: Final = "A change, and its record"

timeout_option = _option(
    "Every command", "--timeout", metavar="DURATION", expose_value=False, callback=_count_time,
    help="End the command after this time, and report what it has as incomplete.  [default: no limit]",
)  # fmt: skip
kine_option = _option(
    _DATA, "--kine", type=FILE, metavar="FILE",
    help="The state.db of k3s on SQLite (kine), or a copy. k3s may run. etcdfix never writes to the file.",
)  # fmt: skip
live_options = option_group(
    _option(_ETCD, "--endpoints", metavar="LIST", help="Addresses, separated by commas.  [default: 127.0.0.1:2379]"),
    _option(_ETCD, "--cacert", metavar="FILE", type=_TLS_FILE, help="CA that signed the certificate of etcd."),
    _option(_ETCD, "--cert", metavar="FILE", type=_TLS_FILE, help="Client certificate."),
    _option(_ETCD, "--key", "key_file", metavar="FILE", type=_TLS_FILE, help="Key of the client certificate."),
    _option(_ETCD, "--user", metavar="NAME[:PASSWORD]", help="User of etcd."),
    _option(_ETCD, "--password", metavar="PASSWORD", help="Its password. ETCDCTL_PASSWORD hides it from other users."),
    _option(_ETCD, "--insecure-skip-tls-verify", is_flag=True, default=None, help="Do not check etcd's certificate."),
    _option(_ETCD, "--dial-timeout", metavar="DURATION", help="Time limit to reach an endpoint.  [default: 2s]"),
    _option(_ETCD, "--command-timeout", metavar="DURATION", help="Time limit for one request.  [default: 5s]"),
    timeout_option,
    _option(_ETCD, "--manifest", type=FILE, metavar="FILE",
            help="A static-pod manifest of kube-apiserver: etcdfix takes endpoints, certificates, prefix, "
                 "configuration and release from it. Options win over it."),
    _option(_ETCD, "--etcd-servers-overrides", metavar="LIST",
            help="The API server's flag of this name, for resources with an etcd of their own: "
                 "/events#https://10.0.0.1:2381. A scan reads each resource from its own etcd. A command for one key "
                 "asks the etcd of its resource. --manifest names them too."),
    _option(_ETCD, "--etcd-prefix", metavar="PREFIX", help="The API server's --etcd-prefix.  [default: /registry]"),
)  # fmt: skip
"""The live etcd in its present state; a command that changes something takes no other source."""
main_etcd_options = shared(
    _ETCD, "--main-endpoints", metavar="LIST",
    help="Endpoints of the main etcd, if the resource has an etcd of its own. The namespace kube-system there "
    "identifies the cluster. --manifest names them too.",
)  # fmt: skip
"""The etcd that names the cluster, for commands that change something or judge a change."""
whole_data_options = option_group(
    _option(_DATA, "--snapshot", type=FILE, metavar="FILE",
            help="A snapshot (etcdctl snapshot save), or a copy of member/snap/db. It may be compressed with gzip."),
    live_options,
    _option(_DATA, "--revision", type=click.IntRange(min=0), default=0, metavar="N",
            help="Read the data as of this revision, not the newest."),
)  # fmt: skip
"""The data of etcd, for commands that only read and need all of it."""
etcd_data_options = option_group(
    _option(_DATA, "--salvage", is_flag=True, default=None,
            help="Read every whole page of a broken snapshot. The result is incomplete, and no change can use it."),
    whole_data_options,
)  # fmt: skip
"""The same, and a broken snapshot as far as it goes."""
source_options = option_group(kine_option, etcd_data_options)

reading_options = option_group(
    _option(_READING, "--encryption-config", type=FILE, metavar="FILE",
            help="The EncryptionConfiguration of the API servers."),
    _option(_READING, "--no-encryption", is_flag=True, default=None,
            help="The cluster encrypts nothing at rest and has no EncryptionConfiguration."),
    _option(_READING, "--kms-endpoint", "kms_endpoints", metavar="NAME=unix:///PATH", multiple=True,
            help="Address of the plugin of this KMS provider, instead of the one in the configuration (may be "
                 "repeated)."),
    _option(_READING, "--no-kms", is_flag=True, default=None,
            help="Do not ask KMS plugins. Values that need one are undetermined."),
    _option(_READING, "--kubernetes-version", metavar="X.Y",
            help="Release of the API servers. Only its kinds count as known.  [default: all releases]"),
)  # fmt: skip
"""Options that say how to read values."""
etcd_options = option_group(live_options, main_etcd_options, reading_options)
"""The etcd of a change, and how to read its values."""


def _parse_jobs(_context: click.Context, _parameter: click.Parameter, text: str) -> Literal["auto"] | int:
    if text == "auto":
        return "auto"
    if re.fullmatch("[0-9]{1,3}", text) and 1 <= int(text) <= MOST_JOBS:
        return int(text)
    raise ConfigurationError(
        f"--jobs {shown_word(text)!r} is not a number of processes", hint=f"give 1 to {MOST_JOBS}, or auto"
    )


jobs_option = _option(
    _READING, "--jobs", metavar="N|auto", default="auto", callback=_parse_jobs,
    help="Number of processes that examine values. The result is the same for any N.  [default: auto]",
)  # fmt: skip

namespace_options = option_group(
    _option(_DATA, "-n", "--namespace", "namespaces", multiple=True, metavar="NAMESPACE",
            help="Only this namespace (may be repeated)."),
    shared(_DATA, "-A", "--all-namespaces", is_flag=True, help="All namespaces, whatever ETCDFIX_NAMESPACE says."),
)  # fmt: skip
scope_options = option_group(
    click.argument("scope", nargs=-1, metavar="[RESOURCE|TYPE/NAME|KEY-PREFIX]..."), namespace_options
)
"""Nothing named is everything."""


def form_option(
    forms: Collection[str], *, help_text: str = "Form of the report.", otherwise: str = ""
) -> Decorator:
    """Return ``-o``. Its variable counts on every command that changes nothing."""
    default = None if otherwise else next(iter(forms))
    return click.option(
        "-o", "--output", "output", type=click.Choice(list(forms)), default=default, show_default=otherwise or True,
        envvar=variable_of("--output"), help=help_text,
    )  # fmt: skip


output_file_option = _option(
    _REPORT, "--output-file", type=FILE, metavar="FILE",
    help="Write the report to this file instead of standard output.",
)  # fmt: skip


def report_options(forms: Collection[str] = tuple(FORMS)) -> Decorator:
    """Return ``-o`` and ``--output-file``."""
    return option_group(form_option(forms), output_file_option)


def look_options(forms: Collection[str] = tuple(FORMS)) -> Decorator:
    """Return the options of a look at many values: what is read and how, by how many processes, and the report."""
    return option_group(source_options, reading_options, jobs_option, report_options(forms))


TEXT: Final = "text"
change_output_option = form_option(
    [TEXT, "json", "yaml"], help_text="Form of the result, a refusal too. The preview goes to standard error."
)
"""The form option of commands that change something."""


def _syslog(context: click.Context, _parameter: click.Parameter, value: str | None) -> Syslog | None:
    if value is None:
        return None
    parse_address(value)
    syslog = Syslog(value)
    context.call_on_close(partial(_tell, syslog))  # however the command ends
    return syslog


def _tell(syslog: Syslog) -> None:
    if syslog.warning:
        with suppress(OSError):  # how the command ended is told by its exit code
            say(f"warning: {syslog.warning}")


_KEPT: Final = "/var/lib/etcdfix for root, else in $XDG_STATE_HOME/etcdfix"
backup_dirs_option = _option(
    _CHANGE, "--backup-dir", "backup_dirs", type=FILE, multiple=True, metavar="DIR",
    help=f"Directory for backups. Repeat it to write each backup to several.  [default: {_KEPT}]",
)  # fmt: skip
audit_log_option = _option(
    _CHANGE, "--audit-log", type=FILE, metavar="FILE",
    help=f"The audit log, a chain of hashed records of every change.  [default: audit.jsonl in {_KEPT}]",
)  # fmt: skip
syslog_option = shared(
    _CHANGE, "--audit-syslog", "syslog", metavar="ADDRESS", callback=_syslog,
    help="Also send the number and hash of each audit record to syslog: /dev/log, or HOST:PORT with TCP. If syslog "
    "does not answer, you get a warning.",
)  # fmt: skip
place_options = option_group(backup_dirs_option, audit_log_option, syslog_option)
"""Directories of backups, and the audit log."""


def _require_there(option: str, named: Named) -> None:
    """Refuse a file or directory that is not there, before anything is opened."""
    if named.place not in TO_LOOK_IN or named.path == STANDARD_INPUT or is_key_text(named.what):
        return
    try:
        is_directory = stat.S_ISDIR(named.path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        what = "it cannot be read: no such file or directory"
    except (OSError, ValueError):  # whoever opens it says why
        return
    else:
        if is_directory is (named.place is Place.LOG):
            return
        what = "it is a directory, not a file" if is_directory else "it is a file, not a directory"
    raise ConfigurationError(
        f"{option} {named.place}: {shown_word(named.what)}: {what}", hint=f"write {grammar([named.place])}"
    )


def _place_option(option: str, name: str, places: Sequence[Place], told: str, **settings: Any) -> Decorator:
    """Return an option that takes places; those that are files have to be there once the command runs."""

    def parse(_context: click.Context, _parameter: click.Parameter, given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(parse_named(word, places) for word in dict.fromkeys(given))
        return parse_named(given, places) if given is not None else None

    def decorate(command: Any) -> Any:
        @wraps(command)
        def checked(**options: Any) -> Any:
            given = options[name]
            for named in given if isinstance(given, tuple) else filter(None, (given,)):
                _require_there(option, named)
            return command(**options)

        told_all = f"{told}: {grammar(places)}."
        return click.option(option, name, metavar="PLACE", callback=parse, help=told_all, **settings)(checked)

    return decorate


def in_option(places: Sequence[Place] = TO_LOOK_IN) -> Decorator:
    """Return ``--in``, which names where copies are looked for besides; its value is a tuple of :class:`Named`."""
    return _place_option("--in", "places", places, "Also look there (may be repeated)", multiple=True)


from_option = _place_option("--from", "named", tuple(Place), "Put this copy back")

access_options = option_group(
    shared(_SERVERS, "--kubeconfig", type=FILE, metavar="FILE",
           help="Ask the API servers of the cluster, as this user. A change asks whether a server still reads the "
                "object, which refuses the change, and whether you have the verbs delete and "
                "unsafe-delete-ignore-read-errors. A look asks what they hold in memory."),
    shared(_SERVERS, "--context", metavar="NAME", help="Context in the kubeconfig."),
    shared(_SERVERS, "--server", "servers", multiple=True, metavar="URL",
           help="Ask this API server too, with the same credentials (may be repeated)."),
)  # fmt: skip
"""The API servers to ask."""
rescued_option = shared(
    _SERVERS, "--rescued", type=FILE, metavar="DIR",
    help="Directory in which etcdfix rescue saved objects. fix --from memory needs it. A deletion checks it, because "
    "API servers then drop what they hold of the kind.",
)  # fmt: skip
where_else_options = option_group(
    in_option(), access_options, rescued_option, backup_dirs_option, audit_log_option
)
"""Places to search for copies, our backups among them."""


def _acknowledged(_context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if not given:
        raise click.UsageError(f"a deletion needs {ACKNOWLEDGEMENT}")


reason_options = option_group(
    click.option("--reason", required=True, metavar="TEXT", help="Your reason. Backup and audit log record it."),
    click.option("--dry-run", is_flag=True, help="Check everything and change nothing."),
)  # fmt: skip
"""Why, and whether at all."""
acknowledgement_option = click.option(
    ACKNOWLEDGEMENT, is_flag=True, required=True, expose_value=False, callback=_acknowledged,
    help="Required. It says that you know what can break.",
)  # fmt: skip
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation (for scripts).")
change_options = option_group(
    reason_options, yes_option, change_output_option, place_options, access_options, etcd_options
)
"""Options of every change of one key."""


class _Digest(click.ParamType[str]):
    """A digest as reports have it; ``sha256:`` may be left out."""

    name = "digest"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as ``sha256:<hex>``."""
        digits = value.removeprefix("sha256:")
        if not re.fullmatch("[0-9a-f]{64}", digits):
            self.fail(f"{value!r} is not a digest: sha256: and 64 hexadecimal digits", param, ctx)
        return f"sha256:{digits}"


DIGEST: Final = _Digest()
"""Type of each option that expects a digest."""

expectation_options = option_group(
    shared(_CHANGE, "--expect-mod-revision", type=click.IntRange(min=1), metavar="N",
           help="Refuse if the key has another mod_revision. For undo: if what the change wrote has another."),
    shared(_CHANGE, "--expect-value-sha256", type=DIGEST, metavar="sha256:HEX",
           help="Refuse if the stored bytes have another digest. For undo: if the bytes to put back have another. "
                "With the digest that the change printed, undo works without the audit log."),
)  # fmt: skip
"""Expectations about the stored value."""
key_lost_option = shared(
    _CHANGE, "--declare-key-lost", "key_lost", default="", metavar="TRANSFORMER[/KEY-ID]",
    help="Declare that this encryption key is lost for ever, so that you may delete or replace its values.",
)  # fmt: skip

CLUSTER_RULES: Final = (Rule.NO_API_SERVER, Rule.UNKNOWN_CLUSTER, Rule.UNKNOWN_RELEASE, Rule.UNCHECKED_MEMBER)
"""Rules about the cluster that every change can accept which etcdfix writes itself."""
REPLACING_RULES: Final = (
    Rule.CLUSTER_BREAKING,
    Rule.UNPROVEN_DAMAGE,
    Rule.NEWER_THAN_KNOWN,
    Rule.MASS_DAMAGE,
    Rule.ONLY_COPY,
    Rule.UNDEPLOYED_WRITE_KEY,
)
"""Rules that can be accepted for a value which a change deletes or replaces."""
DELETION_RULES: Final = (*REPLACING_RULES, Rule.ENDS_CACHED_READS)
"""Rules that can be accepted for a value which a change deletes."""


class _Word(click.ParamType[str]):
    """A rule that a command asks about, with the name of what it is accepted for where it has one."""

    name = "rule"

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, with a name as it is compared."""
        word, equals, name = value.partition("=")
        named = bool(name) if word in NAMED else not equals
        if word not in self._rules or not named:
            known = ", ".join(map(_shown, self._rules))
            self.fail(f"{value!r} is not a word of this command, which knows {known}", param, ctx)
        if word != Rule.UNCHECKED_SERVER:
            return value
        try:
            return f"{word}={parse_server_url(name)}"
        except ConfigurationError as exc:
            self.fail(f"{word}={exc.message.removeprefix('--server ')}", param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the words that begin like this."""
        words = (f"{rule}=" if rule in NAMED else rule.value for rule in self._rules)
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _shown(rule: Rule) -> str:
    return f"{rule}={NAMED[rule]}" if rule in NAMED else rule.value


def accept_option(*rules: Rule) -> Decorator:
    """Return the option that accepts any of these rules: those that a command asks about, and no other.

    It has no variable: each command is told anew.
    """
    return click.option(
        "--accept", "accepted_words", multiple=True, type=_Word(rules), metavar="RULE",
        help=f"Continue although this rule refuses (may be repeated): {', '.join(map(_shown, rules))}.",
    )  # fmt: skip


def options_page(context: click.Context) -> str:
    """Return what ``etcdfix help options`` shows: the options that commands share, and the words of ``--accept``."""
    formatter = context.make_formatter()
    formatter.write_text(
        "Options that several commands share. The help of a command lists those that it has. You can set each with a "
        "variable: ETCDFIX_ENDPOINTS for --endpoints. A command that changes something reads only the variables that "
        "name etcd and the EncryptionConfiguration. No safety option has a variable."
    )
    for title, options in SHARED.items():
        with formatter.section(title):
            formatter.write_dl([record for one in options if (record := one.get_help_record(context))])
    with formatter.section("Words of --accept, one for each rule"):
        formatter.write_dl([(_shown(rule), MEANINGS[rule]) for rule in Rule if rule in MEANINGS])
    return formatter.getvalue().rstrip("\n")
