"""Commands of ours for a person to paste: they must do there what they say here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from etcdfix.text.safetext import key_word, quote_command

ACKNOWLEDGEMENT = "--ignore-store-read-error-with-cluster-breaking-potential"
"""Without this flag nothing is deleted."""
GRANTED = (
    "--no-encryption holds only where nothing is encrypted at rest; else give --encryption-config FILE. "
)
"""What a command takes for granted that reads a cluster of which nobody told how its values are encrypted."""


class KeptOptions(msgspec.Struct, frozen=True):
    """Options that name where backups and the audit log are, as far as they were given; each command takes its own.

    Attributes:
        backups: ``--backup-dir``, as often as it was given.
        log: ``--audit-log``.
        syslog: ``--audit-syslog``.
    """

    backups: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    syslog: tuple[str, ...] = ()

    @property
    def of_change(self) -> tuple[str, ...]:
        """Of a command that changes something."""
        return (*self.backups, *self.record)

    @property
    def record(self) -> tuple[str, ...]:
        """Of a command that keeps no backup, and a record."""
        return (*self.log, *self.syslog)

    @property
    def of_search(self) -> tuple[str, ...]:
        """Of a command that looks for backups."""
        return (*self.backups, *self.log)


class RepeatedOptions(msgspec.Struct, frozen=True):
    """What a command must repeat so that it looks at the same data in the same way; never a password.

    Attributes:
        source: Options that say where the data is (``--snapshot FILE``, ``--endpoints …``).
        layout: ``--etcd-prefix``, where it is not the default.
        reading: ``--encryption-config`` and ``--kubernetes-version``, where they were given.
        changing: ``--main-endpoints``, for commands that change something.
        servers: ``--kubeconfig`` and which API servers of it were asked; empty where none was.
        kept: Where a change keeps what it replaces, and its record; nothing where nobody said.
        keeps_configuration: A server of k3s or RKE2 keeps its EncryptionConfiguration there, encrypted with its token.
    """

    source: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    kept: KeptOptions = KeptOptions()
    keeps_configuration: bool = False

    @property
    def layout_but_prefix(self) -> tuple[str, ...]:
        """The rest of :attr:`layout`, for another prefix."""
        return self.layout[2:] if self.layout[:1] == ("--etcd-prefix",) else self.layout

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
        words = iter(self.source)
        return next(words, "") if "--revision" in words else ""

    @property
    def when_it_answers(self) -> str:
        """When what could not be asked may be asked again, as part of a sentence."""
        return "when the file can be read again" if self.of_kine else "when etcd answers again"

    @property
    def can_heal(self) -> bool:
        """Whether ``heal`` can take what is read for its source: what stands now in etcd, or in kine's file."""
        return "--snapshot" not in self.source and "--revision" not in self.source

    @property
    def told_of_encryption(self) -> bool:
        """Whether anybody said how values are encrypted at rest, or that none is."""
        return bool({"--encryption-config", "--no-encryption"} & set(self.reading))

    @property
    def _deciding(self) -> tuple[str, ...]:
        """How a command reads that decides by what it finds: it must be told whether anything is encrypted."""
        return self.reading if self.told_of_encryption else (*self.reading, "--no-encryption")

    @property
    def now(self) -> tuple[str, ...]:
        """Where the data is, as it stands now: not at an older revision that was read."""
        words = list(self.source)
        if "--revision" in words:
            at = words.index("--revision")
            del words[at : at + 2]
        return tuple(words)

    @property
    def _live(self) -> tuple[str, ...]:
        """The live etcd that was read, or the default one for a snapshot: what alone can be changed."""
        return () if self.of_a_file else self.now

    def after_change(self, *, known_cluster: bool = True) -> tuple[str, ...]:
        """Return what a command repeats that settles or undoes a change: the uid of kube-system is read for it, too.

        Args:
            known_cluster: Something named the cluster of the change; else that has to be accepted again.
        """
        accepted = () if known_cluster else ("--accept", "unknown-cluster")
        return (*self.source, *self.layout, *self.reading, *self.changing, *accepted, *self.kept.syslog)

    def _change(self, words: Sequence[str]) -> str:
        """Return a command that writes to etcd; "" for kine, to which nothing is ever written."""
        return "" if self.of_kine else quote_command(words)

    def _dry_run(self, *words: str, reading: Sequence[str] | None = None) -> str:
        """Return the dry run of a change to the live etcd, with another way of reading where one is given; or ""."""
        how = self._deciding if reading is None else reading
        words = ("etcdfix", *words, *self._live, *self.layout, *how, *self.changing, *self.kept.of_change)
        return self._change([*words, "--reason", "REASON", "--dry-run"])

    def _look(self, command: str, *words: str) -> str:
        """Return a command that looks at the same data."""
        return quote_command(["etcdfix", command, *self.source, *self.layout, *self.reading, *words])

    def etcdctl(self, *words: str) -> str:
        """Return a command of etcdctl on the live etcd that was read, or on the default one; "" for kine."""
        return self._change(["etcdctl", *self._live, *words])

    def save_snapshot(self, file: str = "FILE") -> str:
        """Return the command that saves a snapshot to a file, from the first endpoint: it takes one only.

        Of kine it is a copy of the database by SQLite itself, which takes what its log holds, too.
        """
        if self.of_kine:
            database = self.source[self.source.index("--kine") + 1]
            return quote_command(["sqlite3", "-readonly", database, f".backup {file}"])
        where = list(self._live)
        if "--endpoints" in where:
            at = where.index("--endpoints") + 1
            where[at] = where[at].partition(",")[0]
        return quote_command(["etcdctl", *where, "snapshot", "save", file])

    def scan(
        self,
        key: bytes,
        *,
        source: Sequence[str] | None = None,
        reading: Sequence[str] | None = None,
    ) -> str:
        """Return the scan of one key, with another source or other ways of reading where these are given."""
        return self.scan_of([key_word(key)], source=source, reading=reading)

    def scan_of(
        self,
        words: Sequence[str] = (),
        *,
        source: Sequence[str] | None = None,
        reading: Sequence[str] | None = None,
    ) -> str:
        """Return the scan of a scope, of everything for no words; see :meth:`scan`."""
        where = self.source if source is None else source
        how = self.reading if reading is None else reading
        return quote_command(["etcdfix", "scan", *where, *self.layout, *how, *words])

    @property
    def with_configuration(self) -> tuple[str, ...]:
        """How to read with an EncryptionConfiguration, to be named in the place of ``FILE``."""
        words = [word for word in self.reading if word != "--no-encryption"]
        if "--encryption-config" in words:
            at = words.index("--encryption-config")
            words[at : at + 2] = []
        return ("--encryption-config", "FILE", *words)

    def get(self, key: bytes, *options: str, revision: int = 0) -> str:
        """Return the command that shows the object of one key, with further options behind it.

        Args:
            key: Complete key.
            options: Further ones.
            revision: Of etcd, at which to read it; 0 for the one that was read.
        """
        where = (*self.now, "--revision", str(revision)) if revision else self.source
        log = self.kept.log if "--reveal" in options else ()
        return quote_command(
            ["etcdfix", "get", *where, *self.layout, *self.reading, *log, key_word(key), *options]
        )

    def recover(self, token_files: Sequence[str], *options: str) -> str:
        """Return the command that recovers a configuration from the datastore of k3s or RKE2, with further options."""
        tokens = [word for file in token_files for word in ("--token-file", file)]
        how = (*self.source, *self.layout, *self.reading, *self.kept.log)
        return quote_command(["etcdfix", "encryption", "recover", *tokens, *how, *options])

    def impact(self, key: bytes) -> str:
        """Return the command that shows what a deletion sets off."""
        return self._look("impact", key_word(key))

    def orphans(self) -> str:
        """Return the command that lists what belongs to nobody."""
        return self._look("orphans")

    def plan(self, report: str, file: str) -> str:
        """Return the command that makes a plan from a saved report, and writes it to a file."""
        words = ["etcdfix", "plan", "--from-report", report, *self.source, *self.layout, *self._deciding]
        return quote_command([*words, "-o", "json", "--output-file", file])

    def run_plan(self, file: str, *words: str) -> str:
        """Return the command that works through a plan, on the live etcd that was read."""
        how = (
            *self._live,
            *self.layout,
            *self._deciding,
            *self.changing,
            *self.servers,
            *self.kept.of_change,
        )
        return self._change(
            ["etcdfix", "plan", "--run", file, *how, ACKNOWLEDGEMENT, "--reason", "REASON", *words]
        )

    def encryption_diff(self) -> str:
        """Return the command that compares the configurations of API servers, the one that was given among them."""
        words = iter(self.reading)
        given = next(words, "FILE") if "--encryption-config" in words else "FILE"
        return quote_command(["etcdfix", "encryption", "diff", given, "FILE"])

    def encryption_try(self, words: Sequence[str]) -> str:
        """Return the command that says which values of a scope another configuration opens."""
        how = (*self.source, *self.layout, *self.reading, "--candidate-config", "FILE")
        return quote_command(["etcdfix", "encryption", "try", *how, *words])

    def delete(
        self, key: bytes, accepting: Sequence[str] = (), *, asking: bool = False, rescued: bool = False
    ) -> str:
        """Return the dry run of a deletion, on the live etcd that was read, or the default one for a file; or "".

        Args:
            key: Complete key.
            accepting: The rules to accept.
            asking: Every API server has to be asked.
            rescued: Others of its kind have lost their encryption key and must be saved first, in ``DIR``.
        """
        command = self.deletions()(key)
        more = [
            *(self.asking if asking else ()),
            *(["--rescued", "DIR"] if rescued else []),
            *_accepting(accepting),
        ]
        return f"{command} {quote_command(more)}" if command and more else command

    def deletions(self) -> Callable[[bytes], str]:
        """Return what makes :meth:`delete` of one key after the other."""
        words = [*self._live, *self.layout, *self._deciding, *self.changing, *self.kept.of_change]
        rest = self._change([*words, "--reason", "REASON", ACKNOWLEDGEMENT, "--dry-run"])
        return lambda key: rest and f"etcdfix delete {quote_command([key_word(key)])} {rest}"

    def reencrypt(self, key: bytes, candidate: str) -> str:
        """Return the dry run that rewrites a value which a candidate configuration opens, on the live etcd.

        Args:
            key: Complete key.
            candidate: The file of that configuration.
        """
        words = (key_word(key), "--candidate-config", candidate)
        return self._dry_run("reencrypt", *words, reading=self.reading)

    def repair(self, key: bytes, accepting: Sequence[str] = ()) -> str:
        """Return the dry run of a repair, on the live etcd that was read, or on the default one for a snapshot.

        Args:
            key: Complete key.
            accepting: The rules to accept.
        """
        return self._dry_run("repair", key_word(key), *_accepting(accepting))

    def restore(
        self,
        key: bytes,
        revision: int,
        *,
        replacing: int = 0,
        accepting: Sequence[str] = (),
        asking: bool = False,
    ) -> str:
        """Return the dry run that puts back what a key held at a revision; see :meth:`restore_from`.

        ``asking``: every API server has to be asked.
        """
        words = ("--from-revision", str(revision), *(self.asking if asking else ()))
        return self.restore_from(words, key, replacing=replacing, accepting=accepting)

    def restore_from(
        self,
        words: Sequence[str],
        key: bytes | None,
        *,
        replacing: int = 0,
        accepting: Sequence[str] = (),
        unlisted: bool = False,
    ) -> str:
        """Return the dry run that puts a value back, on the live etcd.

        Args:
            words: Which value: the path of a backup, or options and what they take.
            key: Complete key; None for a backup, which names it.
            replacing: mod_revision of the value that is there; 0 where none is.
            accepting: The rules to accept.
            unlisted: The source is none that the audit log lists.
        """
        return self._dry_run(
            "restore",
            *words,
            *([key_word(key)] if key is not None else ()),
            *(["--accept", "unlisted-source"] if unlisted else []),
            *(["--replace-mod-revision", str(replacing)] if replacing else []),
            *_accepting(accepting),
        )

    @property
    def asking(self) -> tuple[str, ...]:
        """Which API servers to ask, to be filled in where none was named."""
        return self.servers or ("--kubeconfig", "FILE")

    @property
    def other_places(self) -> tuple[str, ...]:
        """Options of ``copies`` that name where else to look, each to be filled in or left out."""
        logs = () if self.of_kine else ("--wal", "DIR", "--older-snapshot", "FILE")
        return (*logs, *self.asking)

    def copies_of_report(self, report: str, *options: str) -> str:
        """Return the command that looks for every copy of what a saved report found."""
        return self._copies(["--from-report", report], *options)

    def copies(self, key: bytes, *options: str) -> str:
        """Return the command that looks for every copy of one object, with further options behind it."""
        return self._copies([], key_word(key), *options)

    def _copies(self, first: Sequence[str], *options: str) -> str:
        how = (*self.source, *self.layout, *self.reading, *self.kept.of_search)
        return quote_command(["etcdfix", "copies", *first, *how, *options])

    def rescue(self, words: Sequence[str], directory: str = "DIR", *options: str) -> str:
        """Return the command that saves what API servers still hold in memory.

        Args:
            words: Of what: keys as words of a command, or ``--from-report`` and a file.
            directory: Where to, to be named in the place of ``DIR``.
            options: Further ones.
        """
        prefix = self.layout[:2] if self.layout[:1] == ("--etcd-prefix",) else ()
        places = (*self.asking, "--save-dir", directory, "--reveal")
        return quote_command(["etcdfix", "rescue", *words, *prefix, *places, *self.kept.record, *options])

    def heal(self, words: Sequence[str], directory: str = "DIR") -> str:
        """Return the dry run of having an API server write anew what it holds; see :meth:`rescue`."""
        places = ("--saved", directory, *self.asking)
        # An encryption key is lost: there is a configuration, with the key of today.
        reading = self.reading if "--encryption-config" in self.reading else self.with_configuration
        source = self.now if self.of_kine else self._live
        options = (*source, *self.layout, *reading, *self.changing, *self.kept.of_change)
        return quote_command(
            ["etcdfix", "heal", *words, *places, *options, "--reason", "REASON", "--dry-run"]
        )

    def restore_from_key(self, other: bytes, key: bytes) -> str:
        """Return the dry run that puts the bytes of another etcd key where they belong, on the live etcd; or ""."""
        return self.restore_from(("--from-key", key_word(other)), key, unlisted=True)

    def restore_from_file(self, key: bytes) -> str:
        """Return the dry run that puts back what a key holds in the snapshot that was read: on the default etcd."""
        file = self.source[self.source.index("--snapshot") + 1]
        return self.restore_from(("--from-snapshot", file), key, unlisted=True)

    def history(self, key: bytes, *options: str) -> str:
        """Return the command that shows every kept revision of a key."""
        return self._look("history", *options, key_word(key))

    def explain(self, key: bytes) -> str:
        """Return the command that says everything about one key."""
        return self._look("explain", key_word(key))


def _accepting(rules: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for rule in rules for word in ("--accept", rule))


def piped(first: str, words: Sequence[str]) -> str:
    """Return a shell line that feeds the output of a command, quoted already, to another."""
    return f"{first} | {quote_command(words)}"
