"""The configurations that were once in force, tried on the damaged cluster: each opens what was written with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.commands.encryption import whole
from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.encryption import EncryptionTryReport
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.alpha_oracle import CONFIGURATIONS, ORACLE, corrupt_for_the_server
from tests.support.collecting import ALPHA
from tests.support.kms_plugin import KMSPlugin, load_keks

PREFIXES = {
    "write-cbc-key1.yaml": b"k8s:enc:aescbc:v1:key1:",
    "write-cbc-key2.yaml": b"k8s:enc:aescbc:v1:key2:",
    "write-gcm.yaml": b"k8s:enc:aesgcm:v1:gcmA:",
    "write-secretbox.yaml": b"k8s:enc:secretbox:v1:sbA:",
    "write-kmsv1.yaml": b"k8s:enc:kms:v1:kmsold:",
    "write-kmsv2.yaml": b"k8s:enc:kms:v2:kmsnew:",
}


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncryptionTryReport]:
    folder = tmp_path_factory.mktemp("kms")
    with (
        pytest.MonkeyPatch.context() as patch,
        KMSPlugin("v2", folder / "1.sock", load_keks(ALPHA / "kms1.keys")) as new,
        KMSPlugin("v1", folder / "2.sock", load_keks(ALPHA / "kms2.keys")) as old,
        KMSPlugins(
            {"kmsnew": new.endpoint, "kmsold": old.endpoint}, max_rate=0, patience_seconds=0.5
        ) as plugins,
        SnapshotSource(ALPHA / "snapshot.db.gz") as source,
    ):
        patch.setattr(whole, "MOST_EXAMPLES", 1000)
        candidates = tuple(NamedCandidate(name, load_configuration(ALPHA / name)) for name in PREFIXES)
        request = TryRequest(
            layout=StorageLayout(),
            candidates=candidates,
            scope=ScopeRequest(("secrets",)),
            kubernetes_minor=36,
        )
        yield try_candidates(source, request, plugins=plugins)[0]


@pytest.mark.parametrize("name", sorted(PREFIXES))
def test_each_opens_what_was_written_with_it(tried: EncryptionTryReport, name: str) -> None:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        written = {
            value.key.decode()
            for value in source.current(b"/registry/secrets/")
            if value.value.startswith(PREFIXES[name])
        }
    (found,) = [candidate for candidate in tried.candidates if candidate.name == name]
    opened = set(found.opened)
    assert len(opened) == found.opens
    assert written - set(ORACLE["damage"]) <= opened <= written


def test_none_opens_what_is_damaged_under_a_key_that_is_there(tried: EncryptionTryReport) -> None:
    opened = {key for candidate in tried.candidates for key in candidate.opened}
    always = set.intersection(*(set(corrupt_for_the_server(config, "secrets")) for config in CONFIGURATIONS))
    lost = {key for key in opened if "cbc-key2" in key}  # neither configuration of the oracle has its key
    assert opened & always == lost
