"""Every command opens here what its options name: the source, its configuration, the examiner of its values.

What is slow to import, gRPC and ciphers above all, is imported where it is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from etcdfix.inputs.overrides import overrides_text, servers_of
from etcdfix.model.errors import ConfigurationError, RefusedByRule, SourceError
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.storagekey import DEFAULT_PREFIX, StorageLayout, builtin_directories, likely_prefixes
from etcdfix.text.commands import RunOptions

if TYPE_CHECKING:
    from etcdfix.apiserver.kubeconfig import APIAccess
    from etcdfix.encryption.config_model import EncryptionConfiguration
    from etcdfix.encryption.kms.plugins import KMSPlugins
    from etcdfix.examine.one import Examiner, Reading
    from etcdfix.model.model import ClusterIdentity
    from etcdfix.remediation.audit.record import Record
    from etcdfix.remediation.cluster import Cluster
    from etcdfix.remediation.datastore import Datastore
    from etcdfix.remediation.places import RecordPaths
    from etcdfix.sources.base import Source
    from etcdfix.sources.connection import EtcdConnection
    from etcdfix.sources.live import LiveSource

Say = Callable[[str], None]
"""Takes a sentence for standard error."""

Candidates = dict[Path, "Examiner"]
"""A candidate configuration, to what examines values under it."""


_SAMPLE = 200


class Inputs(msgspec.Struct, frozen=True):
    """The shared options after the manifest has filled in what flags left open.

    Attributes:
        snapshot: Where neither it nor ``kine`` is named, a live etcd is read.
        connection: Keyword arguments for a connection to a live etcd, as given.
        revision: 0 for the newest.
        kms_endpoints: By provider, where it is not the configuration's.
        notices: Sentences to say on standard error before work begins.
        release_source: Where the release comes from, "" where none was named.
        main_endpoints: Comma list of the etcd that holds namespace kube-system, where it may be another one; else "".
        main_named: A flag named it, not only a manifest.
        origins: Where endpoints, certificates and configuration were named, a line each.
        overrides: Resources that have an etcd of their own, to its endpoints; None where nobody says which.
        each_from_its_own: Every resource is read from its own etcd, and not all from one.
    """

    snapshot: Path | None
    connection: dict[str, Any]
    etcd_prefix: str
    revision: int
    encryption_config: Path | None
    kubernetes_minor: int | None
    kms_endpoints: dict[str, str] = msgspec.field(default_factory=dict)
    ask_kms: bool = True
    no_encryption: bool = False
    notices: tuple[str, ...] = ()
    release_source: str = ""
    salvage: bool = False
    main_endpoints: str = ""
    main_named: bool = False
    overrides: dict[str, tuple[str, ...]] | None = None
    each_from_its_own: bool = False
    kine: Path | None = None
    origins: tuple[str, ...] = ()
    manifest: Path | None = None

    def __repr__(self) -> str:
        """Leave the connection out: a password may be in it."""
        return f"Inputs(file={self.file!r}, etcd_prefix={self.etcd_prefix!r}, ...)"

    @property
    def file(self) -> Path | None:
        """The file that is read; None for a live etcd."""
        return self.snapshot if self.snapshot is not None else self.kine

    @property
    def etcd_user(self) -> str:
        """The etcd user without the password, or ""."""
        return str(self.connection.get("user") or "").partition(":")[0]

    @property
    def tls_files(self) -> list[Path]:
        """Return the certificates and the key that a connection reads."""
        files = (self.connection.get(name) for name in ("cacert", "cert", "key_file"))
        return [Path(file) for file in files if file]

    def run_options(self, *, api: APIAccess | None = None, places: RecordPaths | None = None) -> RunOptions:
        """Return the options that a command in a remedy must repeat; a password is never among them.

        Args:
            api: The API servers that are asked.
            places: Where backups and the audit log go, where the command has options for it.
        """
        salvage = ("--salvage",) if self.salvage else ()
        config, minor, prefix = self.encryption_config, self.kubernetes_minor, self.etcd_prefix
        overrides = overrides_text(self.overrides or {}) if self.each_from_its_own else ""
        run = RunOptions(
            source=(
                *(("--snapshot", str(self.snapshot), *salvage) if self.snapshot is not None else ()),
                *(("--kine", str(self.kine)) if self.kine is not None else ()),
                *(self._connection_words() if self.file is None else ()),
                *(("--revision", str(self.revision)) if self.revision else ()),
            ),
            layout=(
                *(("--etcd-prefix", prefix) if prefix != DEFAULT_PREFIX else ()),
                # A change finds the etcd of its resource by it.
                *(("--etcd-servers-overrides", overrides) if overrides else ()),
            ),
            reading=(
                *(("--encryption-config", str(config)) if config is not None else ()),
                *(("--no-encryption",) if self.no_encryption else ()),
                *(w for name, url in self.kms_endpoints.items() for w in ("--kms-endpoint", f"{name}={url}")),
                *(("--no-kms",) if not self.ask_kms else ()),
                *(("--kubernetes-version", f"1.{minor}") if minor is not None else ()),
            ),
            changing=("--main-endpoints", self.main_endpoints) if self.main_endpoints else (),
            servers=api.words if api is not None else (),
        )
        return places.repeated_in(run) if places is not None else run

    def _connection_words(self) -> Iterator[str]:
        for name in ("endpoints", "cacert", "cert", "key_file", "user"):
            value = self.etcd_user if name == "user" else self.connection.get(name)
            if value:
                yield from (f"--{name.removesuffix('_file')}", value)
        if self.connection.get("insecure_skip_tls_verify"):
            yield "--insecure-skip-tls-verify"

    def reading(self, configuration: EncryptionConfiguration | None) -> Reading:
        """Return how the values of the cluster are read."""
        from etcdfix.examine.one import Reading

        return Reading(**self.reading_fields(configuration))

    def reading_fields(
        self,
        configuration: EncryptionConfiguration | None,
        *,
        api: APIAccess | None = None,
        places: RecordPaths | None = None,
    ) -> dict[str, Any]:
        """Return the fields of every request that says how values are read; see :meth:`run_options`."""
        return {
            "layout": StorageLayout(self.etcd_prefix),
            "configuration": configuration,
            "kubernetes_minor": self.kubernetes_minor,
            "run": self.run_options(api=api, places=places),
        }


def open_source(inputs: Inputs, *, say: Say) -> Source:
    """Open the file or connect to etcd; say what makes the connection less than safe."""
    if inputs.snapshot is not None:
        from etcdfix.sources.snapshot import SnapshotSource

        return SnapshotSource(inputs.snapshot, revision=inputs.revision, salvage=inputs.salvage)
    if inputs.kine is not None:
        from etcdfix.sources.kine import KineSource

        return KineSource(inputs.kine, revision=inputs.revision, on_notice=say)
    if not inputs.each_from_its_own:
        return _open_etcd(inputs, say)
    from etcdfix.sources.several import SeveralSources

    with contextlib.ExitStack() as opened:  # each, until all are
        sources: dict[tuple[str, ...], Source] = {(): opened.enter_context(_open_etcd(inputs, say))}
        others = {}
        layout = StorageLayout(inputs.etcd_prefix)
        for directory in builtin_directories():
            urls = servers_of(inputs.overrides or {}, str(directory.group_resource))
            if urls and urls not in sources:
                own = {**inputs.connection, "endpoints": ",".join(urls)}
                one = msgspec.structs.replace(inputs, connection=own)
                sources[urls] = opened.enter_context(_open_etcd(one, say))
            if urls:
                others[layout.directory_prefix(directory)] = sources[urls]
        opened.pop_all()
        return SeveralSources(sources[()], others, on_notice=say)


def _open_etcd(inputs: Inputs, say: Say) -> LiveSource:
    from etcdfix.sources.live import LiveSource

    return LiveSource(
        _connection(inputs.connection, say),
        revision=inputs.revision,
        storage_prefix=StorageLayout(inputs.etcd_prefix).path(),
        on_notice=say,
    )


def _connection(options: dict[str, Any], say: Say, **name: str) -> EtcdConnection:
    from etcdfix.sources.connection import connection_from_options, transport_warnings

    connection = connection_from_options(**options)
    for warning in transport_warnings(connection, **name):
        say(f"warning: {warning}")
    return connection


def first_keys(source: Source) -> list[bytes]:
    """Return the first keys that there are, whatever they are of."""
    return [stored.key for stored in islice(source.current(b""), _SAMPLE)]


def nothing_examined(
    source: Source, layout: StorageLayout, problems: Sequence[str] = (), *, at: str = ""
) -> SourceError:
    """Return the error of a command that saw no key below the storage prefix.

    Args:
        source: Asked where Kubernetes' keys seem to be instead.
        layout: The storage prefix.
        problems: Why not everything could be read.
        at: Which revision was read, where one was named.
    """
    prefix = layout.prefix
    if problems:
        return SourceError(
            f"NOTHING WAS EXAMINED: no key below {prefix} was seen; not everything could be read: {problems[0]}"
        )
    places = " or ".join(likely_prefixes(first_keys(source))[:3])
    return SourceError(
        f"NOTHING WAS EXAMINED: no key starts with {prefix}{at}",
        hint=f"Kubernetes keys seem to be under {places}; give it with --etcd-prefix"
        if places
        else "check --etcd-prefix and that this is the etcd that the API servers use",
    )


def load_encryption(inputs: Inputs) -> EncryptionConfiguration | None:
    """Read the EncryptionConfiguration, if one was named."""
    if inputs.encryption_config is None:
        return None
    from etcdfix.encryption.config import load_configuration

    return load_configuration(inputs.encryption_config, inputs.kubernetes_minor)


def open_plugins(
    inputs: Inputs, *configurations: EncryptionConfiguration | None
) -> contextlib.AbstractContextManager[KMSPlugins | None]:
    """Return the KMS plugins of the configurations, none of them asked yet; None where none is to be asked.

    A provider that several have is one.
    """
    if not inputs.ask_kms or not any(one.kms_providers for one in configurations if one is not None):
        return contextlib.nullcontext()
    from etcdfix.encryption.kms.plugins import KMSPlugins

    return KMSPlugins(inputs.kms_endpoints)


@contextmanager
def open_examiner(
    source: Source, inputs: Inputs, configuration: EncryptionConfiguration | None
) -> Iterator[Examiner]:
    """Return what examines the values of a cluster under a configuration, with its KMS plugins."""
    from etcdfix.examine.one import Examiner

    with open_plugins(inputs, configuration) as plugins:
        yield Examiner.of_cluster(source, inputs.reading(configuration), plugins)


@contextmanager
def open_candidates(source: Source, inputs: Inputs, paths: Iterable[Path]) -> Iterator[Candidates]:
    """Return what examines values under each candidate configuration, with plugins of its own."""
    with contextlib.ExitStack() as stack:
        candidates: Candidates = {}
        for path in paths:
            its_own = msgspec.structs.replace(inputs, encryption_config=path)
            candidates[path] = stack.enter_context(open_examiner(source, its_own, load_encryption(its_own)))
        yield candidates


def _main_etcd(inputs: Inputs, say: Say) -> EtcdConnection | None:
    """Return how to reach the etcd that holds namespace kube-system, where it may be another one."""
    if inputs.kine is not None and inputs.main_named:
        raise ConfigurationError(
            "--kine and --main-endpoints: what kine keeps is all in its file", hint="leave one of them out"
        )
    if inputs.kine is not None or not inputs.main_endpoints:
        return None
    from etcdfix.remediation.cluster import MAIN_ETCD

    return _connection({**inputs.connection, "endpoints": inputs.main_endpoints}, say, name=MAIN_ETCD)


@contextmanager
def open_cluster(
    inputs: Inputs,
    configure: Callable[[Inputs], EncryptionConfiguration | None],
    *,
    say: Say,
    through_the_api: bool = False,
) -> Iterator[Cluster]:
    """Connect to the live etcd, ready to examine.

    Args:
        inputs: Where it is, and how it is read.
        configure: Reads the EncryptionConfiguration, once the source is known to be one that can be changed.
        say: Takes what makes the connection less than safe.
        through_the_api: API servers make the change, so that it may be kine's file too.

    Raises:
        RefusedByRule: The source is kine.
    """
    from etcdfix.remediation.cluster import Cluster
    from etcdfix.sources.kine import KineSource
    from etcdfix.sources.live import LiveSource

    assert (inputs.snapshot, inputs.revision) == (None, 0)  # no command that changes something offers these
    if inputs.kine is not None and not through_the_api:
        raise _kine(str(inputs.kine))
    configuration = configure(inputs)
    main = _main_etcd(inputs, say)
    with (
        open_source(inputs, say=say) as source,
        open_examiner(source, inputs, configuration) as examiner,
    ):
        assert isinstance(source, LiveSource | KineSource)
        if isinstance(source, LiveSource):
            _refuse_kine(source, StorageLayout(inputs.etcd_prefix))
        digest = configuration.sha256 if configuration is not None else ""
        yield Cluster(
            source,
            examiner,
            configured=bool(digest),
            no_encryption=inputs.no_encryption,
            config_sha256=digest,
            config_made_by=configuration.made_by if configuration is not None else "",
            release_source=inputs.release_source,
            main=main,
            main_named=inputs.main_named,
            origins=inputs.origins,
        )


def _refuse_kine(source: LiveSource, layout: StorageLayout) -> None:
    """Refuse what answers like etcd, and is none: kine has no members and no cluster id, and compares little."""
    if not source.client.cluster_id:
        source.get(layout.path())  # an answer of a server that may not be asked for its status
    if not source.client.cluster_id:
        raise _kine(", ".join(source.endpoints))


def _kine(where: str) -> RefusedByRule:
    return refuse(
        Rule.KINE, f"{where} is kine, not etcd: what is compared before a change, and how, it does not know",
        hint="let an API server change the object: fix --from memory, with --kine FILE",
    )  # fmt: skip


@contextmanager
def connect_for_intents(
    inputs: Inputs, intents: Iterable[Record], *, say: Say
) -> Iterator[tuple[Datastore, ClusterIdentity]]:
    """Open what the intents were about and say which cluster it is; their backups may tell where it does not."""
    from etcdfix.examine.one import Examiner
    from etcdfix.remediation.cluster import Cluster, find_cluster
    from etcdfix.sources.kine import KineSource
    from etcdfix.sources.live import LiveSource

    directories = dict.fromkeys(Path(path).parent for intent in intents for path in intent.backups)
    configuration, main = load_encryption(inputs), _main_etcd(inputs, say)
    with open_source(inputs, say=say) as source, open_plugins(inputs, configuration) as plugins:
        assert isinstance(source, LiveSource | KineSource)  # no snapshot and no old revision was let in
        examiner = Examiner.of(inputs.reading(configuration), plugins)
        cluster = Cluster(source, examiner, main=main, main_named=inputs.main_named)
        yield cluster.now, find_cluster(cluster, tuple(directories))
