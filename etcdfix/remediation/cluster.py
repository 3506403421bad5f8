"""The etcd that is to be changed: which cluster it holds, how its values are read, and what the operator accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.damage import PEEK_CHECKS
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.key_loss import KeyCounts
from etcdfix.examine.verdicts.plaintext import bits_off
from etcdfix.model.errors import RefusedByRule, SourceUnreachable
from etcdfix.model.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.model.rules import Rule, refuse, unless_accepted
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.grounds import Grounds, RecordedAnswer
from etcdfix.remediation.datastore import Datastore, EtcdNow, KineNow
from etcdfix.remediation.identify import identify
from etcdfix.sources.base import Source
from etcdfix.sources.connection import EtcdConnection, transport_warnings
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.kine import KineSource
from etcdfix.sources.live import LiveSource

MAIN_ETCD: Final = "main etcd"
"""How warnings name the etcd that holds namespace kube-system, where it is another one."""


class Acceptances(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator expects and accepts, as given by flags.

    Attributes:
        words: Each with its name where it has one; a word lifts its own rule.
        key_lost: ``TRANSFORMER[/KEY-ID]`` that was declared lost for ever, or "".
        at_terminal: What is declared has to be typed back; without a terminal it only stands in the command.
    """

    expect_mod_revision: int | None = None
    expect_value_sha256: str = ""
    words: tuple[str, ...] = ()
    key_lost: str = ""
    at_terminal: bool = False

    def accepts(self, rule: Rule) -> bool:
        """Say whether a rule is accepted; not one that is accepted for one thing."""
        return rule.value in self.words

    def named(self, rule: Rule) -> tuple[str, ...]:
        """Return the things for which a rule is accepted."""
        return tuple(word.partition("=")[2] for word in self.words if word.startswith(f"{rule}="))

    def only(self, rule: Rule) -> Acceptances:
        """Return nothing but whether one rule is accepted."""
        return Acceptances(words=(rule,) if self.accepts(rule) else ())

    def as_flags(self) -> tuple[str, ...]:
        """Return the flags that lift a refusal, for the record."""
        flags = [f"--accept {word}" for word in self.words]
        return (*flags, f"--declare-key-lost {self.key_lost}") if self.key_lost else tuple(flags)


class Cluster(msgspec.Struct, frozen=True):
    """A live etcd, or for who has API servers change it the file of kine, and how its values are read.

    Attributes:
        examiner: Says what each value is; it knows the custom resources.
        configured: An EncryptionConfiguration was given.
        config_made_by: The command of etcdfix that made it: whether API servers have it is not known; "" for no such.
        no_encryption: Instead, the operator says that this cluster encrypts nothing at rest.
        release_source: Where the release comes from that the examiner assumes, "" for none.
        main: How to reach the main etcd, where one was named; it holds namespace kube-system.
        main_named: It was named on purpose, so that it must be of the same cluster.
        origins: Where it was said how the cluster is reached and read, a line each.
        gone: What this run has deleted or replaced: it goes on counting among what fails, so that no deletion speaks
            for the next one.
    """

    source: LiveSource | KineSource
    examiner: Examiner
    configured: bool = True
    config_sha256: str = ""
    config_made_by: str = ""
    release_source: str = ""
    no_encryption: bool = False
    main: EtcdConnection | None = None
    main_named: bool = False
    origins: tuple[str, ...] = ()
    gone: tuple[Examination, ...] = ()

    @property
    def is_kine(self) -> bool:
        """It is the file of kine, which nothing writes to but kine."""
        return isinstance(self.source, KineSource)

    @property
    def kept_in(self) -> str:
        """What keeps the keys, as part of a sentence."""
        return "kine" if self.is_kine else "etcd"

    @property
    def client(self) -> EtcdClient:
        """The connection to etcd."""
        assert isinstance(self.source, LiveSource)  # what needs one is refused where there is none
        return self.source.client

    @property
    def now(self) -> Datastore:
        """What stands there now."""
        return KineNow(self.source) if isinstance(self.source, KineSource) else EtcdNow(self.client)

    @contextmanager
    def kept(self, revision: int) -> Iterator[Source]:
        """Read what is still kept of keys: in etcd up to a revision, or in the file of kine as it stood at first.

        Raises SourceError.
        """
        if isinstance(self.source, KineSource):
            yield self.source
            return
        with LiveSource(self.client.connection, revision=revision) as source:
            yield source

    def require_everything(self) -> None:
        """Refuse where not all could be read: what was not seen may be what speaks against a change.

        Raises SourceUnreachable.
        """
        if self.source.problems:
            why = f"not everything in etcd could be read: {self.source.problems[0]}"
            raise SourceUnreachable(why, hint="nothing was changed; scan says what can be read")

    @property
    def where(self) -> tuple[str, ...]:
        """Endpoints as given, or the absolute path of kine's file."""
        if isinstance(self.source, KineSource):
            return (str(self.source.path.absolute()),)
        return self.source.endpoints

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the connections less than safe."""
        here = () if self.is_kine else transport_warnings(self.client.connection)
        main = () if self.main is None else transport_warnings(self.main, name=MAIN_ETCD)
        return (*here, *main)


def grounds_of(
    cluster: Cluster,
    found: Examination,
    servers: ServerAnswers,
    identity: ClusterIdentity,
    counts: Mapping[KeyName, KeyCounts] = MappingProxyType({}),
) -> Grounds:
    """Return what a change rests on, for the record."""
    return Grounds(
        configuration_sha256=cluster.config_sha256 or None,
        no_encryption=cluster.no_encryption,
        rule=found.rule,
        transformer=found.transformer,
        key_fingerprints=found.key_fingerprints,
        kms_key_id_sha256=found.kms_key_id_sha256,
        counts=tuple(counts.values()),
        release=cluster.examiner.assumed_release,
        release_source=cluster.release_source,
        warnings=cluster.warnings,
        server_answers=tuple(
            RecordedAnswer(each.server, f"{each.answer}: {each.detail}" if each.detail else each.answer.value)
            for each in servers.answers
        ),
        cluster=identity,
        peek=peek_lines(found),
    )


def peek_lines(found: Examination) -> tuple[str, ...]:
    """Return what a look without tag or padding showed, one line for each check."""
    seen = (evidence for evidence in found.verdict.evidence if evidence.check in PEEK_CHECKS)
    return tuple(f"{e.check}: {e.result}; {e.detail}" if e.detail else f"{e.check}: {e.result}" for e in seen)


def refuse_unknown(
    cluster: Cluster, identity: ClusterIdentity, accepted: Acceptances
) -> Iterator[RefusedByRule]:
    """Yield why a cluster without a name is not changed: that has to be accepted, and one Namespace must be there."""
    if identity.is_known:
        return
    if not accepted.accepts(Rule.UNKNOWN_CLUSTER):
        why = "there is no namespace kube-system here, so it is not certain which cluster this is"
        hint = "if another etcd is the main one: --main-endpoints LIST, or --manifest FILE"
        yield unless_accepted(Rule.UNKNOWN_CLUSTER, why, hint=hint)
    layout = cluster.examiner.layout
    examined = map(cluster.examiner.examine, cluster.source.current(layout.path("namespaces/")))
    if not any(found.verdict.outcome is Outcome.READABLE for found in examined):
        # Anything may lie under a prefix of which nothing says that an API server stores there.
        why = f"no Namespace can be read under {layout.prefix}: prefix or configuration may be wrong"
        hint = "--etcd-prefix, and --encryption-config if namespaces are encrypted"
        yield refuse(Rule.UNKNOWN_CLUSTER, why, hint=hint)


def find_cluster(cluster: Cluster, backup_directories: Sequence[Path] = ()) -> ClusterIdentity:
    """Return which cluster this is, by its own etcd or by the main one that was named.

    Raises RefusedByRule or SourceError.
    """
    here = identify(cluster.source, cluster.examiner, backup_directories)
    if cluster.main is None or (here.is_known and not cluster.main_named):
        return here
    endpoints = ", ".join(cluster.main.endpoints)
    with LiveSource(cluster.main) as source:
        main = identify(source, cluster.examiner, backup_directories)
    if not main.is_known:
        why = f"the main etcd at {endpoints} has no namespace kube-system either"
        hint = "name the etcd of the API servers' --etcd-servers, and their --etcd-prefix"
        raise refuse(Rule.UNKNOWN_CLUSTER, why, hint=hint)
    if not here.is_known:
        return msgspec.structs.replace(main, main_endpoints=cluster.main.endpoints)
    if not here.is_same(main):
        text = f"this etcd is of {here.describe()}, the main etcd at {endpoints} of {main.describe()}"
        instead = "leave --main-endpoints out: this etcd has its own namespace kube-system"
        raise refuse(Rule.OTHER_CLUSTER, text, hint=instead)
    return here


_ENVELOPE: Final = b"k8s:enc:"

_MOST_WRONG_BITS: Final = 3
"""``k8s`` and a zero byte, as unencrypted values begin, differs from it in more."""


def looks_enveloped(value: bytes) -> bool:
    """Say whether a value begins like the envelope of an encryption provider, but for a few bits."""
    return bits_off(value, _ENVELOPE) <= _MOST_WRONG_BITS


def require_unencrypted(cluster: Cluster, value: StoredValue) -> None:
    """Hold every value in this etcd, and one that is changed or put, against ``--no-encryption``, where that was given.

    Whatever the storage prefix: under another one lies another cluster, or the same one of before. Where the user may
    read no more than this prefix, the source says so. Raises RefusedByRule or SourceError.
    """
    if not cluster.no_encryption:
        return
    for stored in chain([value], cluster.source.current(b"")):
        if looks_enveloped(stored.value):
            raise encrypted(stored.key)
    cluster.require_everything()


def encrypted(key: bytes) -> RefusedByRule:
    """Return the refusal to raise where the value of a key is encrypted."""
    why = f"--no-encryption, and the value of {display(key)} is encrypted: there is encryption at rest"
    hint = "--encryption-config FILE: the file of the API servers; an undo needs no such option"
    return refuse(Rule.CONFIGURATION_WRONG, why, hint=hint)
