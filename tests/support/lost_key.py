"""A cluster that lost an encryption key with 1,200 Secrets, and the saved scan of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from etcdfix.commands.plan import PlanRequest
from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.one import Examiner
from etcdfix.model.model import KeptRevision, Revision, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.saved_report import load_report
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions
from tests.support.decoders import shared_decoder
from tests.support.impact_objects import Cluster
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, configuration, provider

CONFIGURATION = configuration(provider("aescbc", key1=KEY_1), IDENTITY)
LOST = "aescbc/v1/lost"
CERT_MANAGER, EXTERNAL_SECRETS = "cert-manager.io", "external-secrets.io"


def lose(cluster: Cluster, *keys: str) -> None:
    """Encrypt what stands under keys with a key that the configuration does not have."""
    for key in keys:
        cluster.values[key] = aescbc(cluster.values[key], KEY_2, name="lost")


def base() -> Cluster:
    """Return a cluster with its namespaces and the CRDs of two operators."""
    cluster = Cluster()
    for name in ("kube-system", "shop", "pay"):
        cluster.namespace(name)
    cluster.define(CERT_MANAGER, "Certificate")
    cluster.define(EXTERNAL_SECRETS, "ExternalSecret")
    return cluster


def certificate(cluster: Cluster, name: str, secret: str) -> str:
    """Add a Certificate of cert-manager that writes a Secret."""
    spec = {"secretName": secret, "dnsNames": ["a.example"]}
    return cluster.add(f"{CERT_MANAGER}/v1", "Certificate", name, "shop", spec=spec)


def using_pod(cluster: Cluster, name: str, secret: str) -> str:
    """Add a Pod whose environment comes from a Secret."""
    container = {"name": "main", "image": "web", "envFrom": [{"secretRef": {"name": secret}}]}
    return cluster.pod(name, "shop", spec={"containers": [container]})


def lost_cluster(each: int = 240) -> Cluster:
    """Return a cluster with five kinds of Secrets, so many of each, all under the lost key; one more opens."""
    cluster = base()
    lost = []
    for number in range(each):
        account, token = f"robot-{number}", f"robot-{number}-token-x7k2p"
        cluster.add("v1", "ServiceAccount", account, "shop", secrets=[{"name": token}])
        lost.append(cluster.secret(token, "shop"))
        certificate(cluster, f"site-{number}", f"site-{number}-tls")
        lost.append(cluster.secret(f"site-{number}-tls", "shop"))
        lost.append(cluster.secret(f"sh.helm.release.v1.app.v{number}", "shop"))
        target = {"target": {"name": f"from-vault-{number}"}} if number % 2 else {}
        name = f"store-{number}" if number % 2 else f"from-vault-{number}"
        cluster.add(f"{EXTERNAL_SECRETS}/v1", "ExternalSecret", name, "shop", spec=target)
        lost.append(cluster.secret(f"from-vault-{number}", "shop"))
        using_pod(cluster, f"web-{number}", f"password-{number}")
        lost.append(cluster.secret(f"password-{number}", "shop"))
    lose(cluster, *lost)
    key = cluster.secret("readable", "pay")
    cluster.values[key] = aescbc(cluster.values[key], KEY_1)
    return cluster


def examiner_of(
    cluster: Cluster, source: Source, config: EncryptionConfiguration = CONFIGURATION
) -> Examiner:
    """Return an examiner that has learned the CRDs."""
    transformers = Transformers.from_configuration(config, no_plugin)
    examiner = Examiner(cluster.layout, transformers, shared_decoder())
    examiner.learn_custom_resources(source)
    return examiner


def scan_to(
    path: Path,
    cluster: Cluster,
    *,
    source: Source | None = None,
    config: EncryptionConfiguration | None = CONFIGURATION,
    lines: bool = False,
) -> Path:
    with path.open("wb") as stream:
        reporter = SCAN_FORMS["jsonl" if lines else "json"](stream, RunOptions())
        source = source if source is not None else cluster.source()
        run_scan(source, ScanRequest(layout=cluster.layout, configuration=config), reporter)
    return path


def request_for(path: Path, config: EncryptionConfiguration = CONFIGURATION) -> PlanRequest:
    """Return the request for a plan from a saved report."""
    return PlanRequest(layout=StorageLayout(), report=load_report(path), configuration=config)


class KeptMemory(MemorySource):
    """A source in memory that still keeps earlier revisions.

    Args:
        kept: Earlier revisions, oldest first.
    """

    def __init__(self, values: Mapping[str, bytes], kept: Iterable[StoredValue]) -> None:
        super().__init__(
            stored(k, v, mod_revision=n, create_revision=5)
            for n, (k, v) in enumerate(values.items(), start=10)
        )
        self._kept = list(kept)

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield the earlier revisions, and the present one."""
        for record in self._kept:
            if record.key == key:
                yield KeptRevision(Revision(record.mod_revision, 0), record)
        yield from super().history(key)
