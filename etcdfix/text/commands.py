"""Commands for a person to paste. They are data until they are written: only then do the options of this run come in.

A command is made of words and of :class:`Part`, the places where options of this run belong. The renderer puts them in
with :meth:`Command.line`; nobody else needs to know how the source was named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import cache
from typing import Any, Final

import msgspec

from etcdfix.text.safetext import key_word, quote_command

ACKNOWLEDGEMENT: Final = "--ignore-store-read-error-with-cluster-breaking-potential"
"""Without this flag nothing is deleted."""
GRANTED: Final = (
    "--no-encryption holds only where nothing is encrypted at rest; else give --encryption-config FILE. "
)
"""What a command takes for granted that reads a cluster of which nobody told how its values are encrypted."""


class Part(Enum):
    """Options of this run that a command repeats."""

    SOURCE = (
        auto()
    )  # Where the data is: ``--snapshot FILE``, ``--endpoints …``, with ``--revision N`` where that was given
    NOW = auto()  # The same without ``--revision``
    LIVE = auto()  # The live etcd that was read; nothing, which is the default etcd, where a file was read
    FIRST_ENDPOINT = auto()  # The same with one endpoint, for etcdctl snapshot save, which takes only one
    CREDENTIALS = auto()  # The same without endpoints, for a command that names its own
    LAYOUT = auto()  # ``--etcd-prefix`` and the like, where they are not the default
    PREFIX = auto()  # ``--etcd-prefix`` alone
    READING = auto()  # ``--encryption-config`` and ``--kubernetes-version``, where they were given
    DECIDING = auto()  # The same, with ``--no-encryption`` where nobody said how values are encrypted
    CONFIGURATION = auto()  # The same with ``--encryption-config FILE``, to be filled in
    CONFIGURED = auto()  # READING where it has a configuration, else CONFIGURATION
    RELEASE = auto()  # ``--kubernetes-version``, where it was given
    CHANGING = auto()  # ``--main-endpoints``
    SERVERS = auto()  # Which API servers were asked; nothing where none was
    ASKING = auto()  # The same, and ``--kubeconfig FILE``, to be filled in, where none was asked
    KEPT = auto()  # ``--backup-dir``, ``--audit-log`` and ``--audit-syslog``, where they were given
    RECORD = auto()  # ``--audit-log`` and ``--audit-syslog``
    LOG = auto()  # ``--audit-log``
    SYSLOG = auto()  # ``--audit-syslog``
    SEARCH = auto()  # ``--backup-dir`` and ``--audit-log``
    OTHER_PLACES = (
        auto()
    )  # Options of ``copies`` that name where else to look, each to be filled in or left out
    GIVEN_CONFIGURATION = auto()  # The path of the configuration that was given, else ``FILE``


Word = str | Part


class RunOptions(msgspec.Struct, frozen=True):
    """The options of this run that a command must repeat, so that it looks at the same data; never a password.

    Attributes:
        source: Options that say where the data is (``--snapshot FILE``, ``--endpoints …``).
        layout: ``--etcd-prefix``, where it is not the default.
        reading: ``--encryption-config`` and ``--kubernetes-version``, where they were given.
        changing: ``--main-endpoints``, for commands that change something.
        servers: ``--kubeconfig`` and which API servers of it were asked; empty where none was.
        backups: ``--backup-dir``, as often as it was given.
        log: ``--audit-log``.
        syslog: ``--audit-syslog``.
        keeps_configuration: A server of k3s or RKE2 keeps its EncryptionConfiguration there, encrypted with its token.
    """

    source: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    backups: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    syslog: tuple[str, ...] = ()
    keeps_configuration: bool = False

    @property
    def of_a_file(self) -> bool:
        """Whether a file is read, not a live etcd."""
        return "--snapshot" in self.source or self.of_kine

    @property
    def of_kine(self) -> bool:
        """Whether it is the file of kine: nothing of etcdfix writes to it, and what changes it is an API server."""
        return "--kine" in self.source

    @property
    def of_the_past(self) -> bool:
        """Whether what is read may not be what the cluster holds now: a file, or a revision that was named."""
        return self.of_a_file or "--revision" in self.source

    @property
    def revision(self) -> str:
        """The revision that was named; "" for the newest."""
        return _value(self.source, "--revision")

    @property
    def file(self) -> str:
        """The file that was read; "" for a live etcd."""
        return _value(self.source, "--snapshot") or _value(self.source, "--kine")

    @property
    def told_of_encryption(self) -> bool:
        """Whether anybody said how values are encrypted at rest, or that none is."""
        return bool({"--encryption-config", "--no-encryption"} & set(self.reading))

    def part(self, part: Part) -> Sequence[str]:
        """Return the words of one part."""
        return _parts(self)[part]


@cache
def _parts(run: RunOptions) -> Mapping[Part, Sequence[str]]:
    reading, log, syslog = run.reading, run.log, run.syslog
    now = _without(run.source, "--revision")
    live = () if "--snapshot" in run.source else now
    at = live.index("--endpoints") + 1 if "--endpoints" in live else len(live)
    configuration = _value(reading, "--encryption-config")
    release = _without(_without(reading, "--no-encryption", 1), "--encryption-config")
    to_fill = ("--encryption-config", "FILE", *release)
    asking = run.servers or ("--kubeconfig", "FILE")
    logs = () if run.of_kine else ("--in", "log:DIR", "--in", "snapshot:FILE")
    return {
        Part.SOURCE: run.source,
        Part.NOW: now,
        Part.LIVE: live,
        Part.FIRST_ENDPOINT: (
            *live[:at],
            *(word.partition(",")[0] for word in live[at : at + 1]),
            *live[at + 1 :],
        ),
        Part.CREDENTIALS: _without(live, "--endpoints"),
        Part.LAYOUT: run.layout,
        Part.PREFIX: run.layout[:2] if run.layout[:1] == ("--etcd-prefix",) else (),
        Part.READING: reading,
        Part.DECIDING: reading if run.told_of_encryption else (*reading, "--no-encryption"),
        Part.CONFIGURATION: to_fill,
        Part.CONFIGURED: reading if configuration else to_fill,
        Part.RELEASE: release,
        Part.CHANGING: run.changing,
        Part.SERVERS: run.servers,
        Part.ASKING: asking,
        Part.KEPT: (*run.backups, *log, *syslog),
        Part.RECORD: (*log, *syslog),
        Part.LOG: log,
        Part.SYSLOG: syslog,
        Part.SEARCH: (*run.backups, *log),
        Part.OTHER_PLACES: (*logs, *asking),
        Part.GIVEN_CONFIGURATION: (configuration or "FILE",),
    }


@cache
def _quoted_parts(run: RunOptions) -> Mapping[Part, str]:
    return {part: quote_command(words) for part, words in _parts(run).items()}


def _value(words: Sequence[str], option: str) -> str:
    """Return what stands behind an option; "" where it was not given."""
    return next(iter(words[words.index(option) + 1 :]), "") if option in words else ""


def _without(words: Sequence[str], option: str, length: int = 2) -> tuple[str, ...]:
    """Return words without an option and its value."""
    if option not in words:
        return tuple(words)
    at = words.index(option)
    return (*words[:at], *words[at + length :])


class Command:
    """One command as data; two are equal where they read the same.

    Args:
        words: Of the command line, in order.
        writes: It writes to etcd: kine allows none, since nothing of etcdfix writes to it.
        text: A whole line that is written already, as a saved report has it; then there are no words.
        feeds: A command into which the output of this one is piped.
    """

    __slots__ = ("feeds", "text", "words", "writes")

    def __init__(
        self,
        words: Sequence[Word] = (),
        *,
        writes: bool = False,
        text: str = "",
        feeds: Sequence[str] = (),
    ) -> None:
        self.words, self.writes, self.text, self.feeds = tuple(words), writes, text, tuple(feeds)

    @property
    def place(self) -> str:
        """The place that ``--from`` names; "" for none."""
        return _value([word for word in self.words if isinstance(word, str)], "--from").partition(":")[0]

    def __bool__(self) -> bool:
        return bool(self.words or self.text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((self.words, self.text))

    def __repr__(self) -> str:
        return f"Command({self.line(RunOptions())!r})"

    def line(self, run: RunOptions) -> str:
        """Return the command as one shell line with the options of a run; "" where the run has no such command."""
        if not self.words or (self.writes and run.of_kine):
            return self.text
        parts = _quoted_parts(run)
        pieces = (parts[word] if isinstance(word, Part) else quote_command([word]) for word in self.words)
        line = " ".join(filter(None, pieces))
        return f"{line} | {quote_command(self.feeds)}" if self.feeds else line


NO_COMMAND: Final = Command()


def with_options(typed: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with more options, which go before the ``--`` that ends them."""
    end = typed.index("--") if "--" in typed else len(typed)
    return (*typed[:end], *options, *typed[end:])


def pack_command(value: object) -> object:
    """Return plain values for a command: an ``enc_hook`` of msgspec."""
    if isinstance(value, Command):
        words = [word.value if isinstance(word, Part) else word for word in value.words]
        return [words, value.writes, value.text, value.feeds]
    raise TypeError(f"no plain values for {type(value).__name__}")


def unpack_command(kind: type, value: Any) -> Any:
    """Return the command of plain values: a ``dec_hook`` of msgspec."""
    if kind is not Command:
        raise TypeError(f"no plain values make a {kind.__name__}")
    words, writes, text, feeds = value
    parts = [Part(word) if isinstance(word, int) else word for word in words]
    return Command(parts, writes=writes, text=text, feeds=feeds)


def look(verb: str, *words: Word) -> Command:
    """Return a command that looks at the same data in the same way."""
    return Command(("etcdfix", *verb.split(), Part.SOURCE, Part.LAYOUT, Part.READING, *words))


def compare(*words: str) -> Command:
    """Return the comparison of all members of the live etcd, for everything where no scope is given."""
    return Command(("etcdfix", "compare", Part.NOW, Part.LAYOUT, Part.READING, *words))


def explain(key: bytes, *options: str) -> Command:
    """Return the command that says everything about one key; ``--history`` and ``--impact`` say more."""
    return look("explain", key_word(key), *options, Part.SEARCH)


def scan(
    *words: str, source: Sequence[Word] = (Part.SOURCE,), reading: Sequence[Word] = (Part.READING,)
) -> Command:
    """Return the scan of a scope, of everything for no words.

    Args:
        words: Keys as words, resources, prefixes.
        source: ``[Part.NOW]`` for what stands there now.
        reading: ``[Part.CONFIGURATION]`` for another EncryptionConfiguration.
    """
    return Command(("etcdfix", "scan", *source, Part.LAYOUT, *reading, *words))


def get(key: bytes, *options: str, revision: int = 0, file: str = "") -> Command:
    """Return the command that shows the object of one key.

    Args:
        key: Complete key.
        options: Further ones.
        revision: Of etcd, at which to read it; 0 for the one that was read, or the newest of ``file``.
        file: Another snapshot than what this run reads; "" for none.
    """
    source: Word = Part.NOW if revision else Part.SOURCE
    where = (
        *(("--snapshot", file) if file else (source,)),
        *(("--revision", str(revision)) if revision else ()),
    )
    log = (Part.LOG,) if "--reveal" in options else ()
    return Command(("etcdfix", "get", *where, Part.LAYOUT, Part.READING, *log, key_word(key), *options))


def copies(*words: str, options: Sequence[Word] = ()) -> Command:
    """Return the command that looks for every copy: of keys as words, or of ``--from-report`` and a file."""
    how: tuple[Word, ...] = (Part.SOURCE, Part.LAYOUT, Part.READING, Part.SEARCH)
    named: tuple[Word, ...] = (*words, *how) if words[:1] == ("--from-report",) else (*how, *words)
    return Command(("etcdfix", "copies", *named, *options))


def plan(report: str, file: str, *, rescued: str = "") -> Command:
    """Return the command that makes a plan from a saved report, and from what was rescued, and writes it to a file."""
    saved = ("--rescued", rescued) if rescued else ()
    how = ("--from-report", report, *saved, Part.SOURCE, Part.LAYOUT, Part.DECIDING)
    return Command(("etcdfix", "plan", *how, "-o", "json", "--output-file", file))


def run_plan(file: str, *words: str) -> Command:
    """Return the command that works through a plan, on the live etcd that was read."""
    how: tuple[Word, ...] = (
        Part.LIVE, Part.LAYOUT, Part.DECIDING, Part.CHANGING, Part.SERVERS, Part.KEPT,
    )  # fmt: skip
    options = ("--run", file, *how, ACKNOWLEDGEMENT, "--reason", "REASON", *words)
    return Command(("etcdfix", "plan", *options), writes=True)


def encryption_check() -> Command:
    """Return the command that compares the configurations of API servers, the one that was given among them."""
    return Command(("etcdfix", "encryption", "check", Part.GIVEN_CONFIGURATION, "FILE"))


def encryption_try(words: Sequence[str]) -> Command:
    """Return the command that says which values of a scope another configuration opens."""
    return look("encryption try", "--in", "candidate:FILE", *words)


def encryption_merge(paths: Sequence[str]) -> Command:
    """Return the command that merges configurations, today's first, to a file to be named."""
    return Command(("etcdfix", "encryption", "merge", *paths, "--output-file", "FILE"))


def recover(token_files: Sequence[str], *options: str) -> Command:
    """Return the command that recovers a configuration from the datastore of k3s or RKE2."""
    tokens = [word for file in token_files for word in ("--token-file", file)]
    how = (Part.SOURCE, Part.LAYOUT, Part.READING, Part.LOG)
    return Command(("etcdfix", "encryption", "recover", *tokens, *how, *options))


def save_snapshot(file: str = "FILE") -> Command:
    """Return the command that saves a snapshot to a file, from the first endpoint."""
    return Command(("etcdctl", Part.FIRST_ENDPOINT, "snapshot", "save", file), writes=True)


def save_copy(run: RunOptions, file: str = "FILE") -> Command:
    """Return the command that saves a snapshot of etcd, or a copy of kine's database with what its log holds."""
    if not run.of_kine:
        return save_snapshot(file)
    return Command(("sqlite3", "-readonly", run.file, f".backup {file}"))


FORCE: Final = ("--grace-period=0", "--force", "--dry-run=server")
"""How kubectl forces a pod away, as a dry run."""
_OF_KUBECTL: Final = frozenset(
    {"-n", "-o", "-f", "-p", "--raw", "--type=json", "--type=merge", *FORCE}
    | {f"--cascade={policy}" for policy in ("background", "foreground", "orphan")}
)


def etcdctl(*words: str) -> Command:
    """Return a command of etcdctl on the live etcd that was read, or on the default one."""
    return Command(("etcdctl", Part.LIVE, *words), writes=True)


def kubectl(*words: str) -> Command:
    """Return a command of kubectl; none where a name would not survive the way through a shell, or is an option."""
    odd = any(not word.isprintable() or (word.startswith("-") and word not in _OF_KUBECTL) for word in words)
    return NO_COMMAND if odd else Command(("kubectl", *words))


def rescue(words: Sequence[str], directory: str = "DIR") -> Command:
    """Return the command that saves what API servers still hold in memory.

    Args:
        words: Of what: resources, of which it is looked up in etcd what does not open; keys as words of a command; or
            ``--from-report`` and a file.
        directory: Where to, to be named in the place of ``DIR``.
    """
    of_kinds = not words[0].startswith(("/", "base64:", "--from-report"))
    how = (Part.SOURCE, Part.LAYOUT, Part.READING) if of_kinds else (Part.PREFIX,)
    return Command(("etcdfix", "rescue", *words, *how, Part.ASKING, "--rescued", directory, Part.RECORD))


def dry_run(*words: Word, deciding: Part = Part.DECIDING, more: Sequence[Word] = ()) -> Command:
    """Return the dry run of a change to the live etcd.

    Args:
        words: The verb, and what it changes.
        deciding: ``Part.READING`` where the command itself refuses without a configuration.
        more: Words behind ``--reason REASON``.
    """
    how = (Part.LIVE, Part.LAYOUT, deciding, Part.CHANGING, Part.KEPT)
    return Command(("etcdfix", *words, *how, "--reason", "REASON", *more, "--dry-run"), writes=True)


def fix(
    key: bytes,
    source: str,
    accepted: Sequence[str] = (),
    *,
    more: Sequence[Word] = (),
    seals: bool = False,
) -> Command:
    """Return the dry run that puts a copy back.

    Args:
        key: Complete key.
        source: What ``--from`` takes: ``revision:712``, ``bit``.
        accepted: The rules to accept.
        more: Further options.
        seals: Today's write key has to be known, and API servers may have to write: ``--encryption-config`` is needed.
    """
    words = dry_run(
        "fix", key_word(key), "--from", source, deciding=Part.CONFIGURED if seals else Part.DECIDING
    ).words
    return Command((*words, *more, *accepting(accepted)), writes=source != "memory")


def fix_from_memory(key: bytes, rescued: str = "DIR") -> Command:
    """Return the dry run that has an API server write anew what it holds, once all of the kind is in a directory."""
    return fix(key, "memory", more=("--rescued", rescued, Part.ASKING), seals=True)


def undo(backup: str, accepted: Sequence[str] = ()) -> Command:
    """Return the dry run that undoes the change which made a backup."""
    return dry_run("undo", backup, *accepting(accepted))


def delete(
    key: bytes, accepted: Sequence[str] = (), *, asking: bool = False, rescued: bool = False
) -> Command:
    """Return the dry run of a deletion.

    Args:
        key: Complete key.
        accepted: The rules to accept.
        asking: Every API server has to be asked.
        rescued: Others of its kind have lost their encryption key and must be saved first, in ``DIR``.
    """
    more: list[Word] = [*([Part.ASKING] if asking else []), *(["--rescued", "DIR"] if rescued else [])]
    words = dry_run("delete", key_word(key), more=(ACKNOWLEDGEMENT,)).words
    return Command((*words, *more, *accepting(accepted)), writes=True)


def accepting(rules: Sequence[str]) -> tuple[str, ...]:
    """Return the words that accept these rules."""
    return tuple(word for rule in rules for word in ("--accept", rule))


def after_change(*, known_cluster: bool = True) -> tuple[Word, ...]:
    """Return what a command repeats that settles or undoes a change: the uid of kube-system is read for it, too.

    Args:
        known_cluster: Something named the cluster of the change; else that has to be accepted again.
    """
    accepted = () if known_cluster else accepting(["unknown-cluster"])
    return (Part.SOURCE, Part.LAYOUT, Part.READING, Part.CHANGING, *accepted, Part.SYSLOG)
