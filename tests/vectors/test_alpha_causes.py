"""Every damage that was done to alpha gets the cause that says so, once the keys that wrote its values are at hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from etcdfix.report.model import Finding
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.alpha_oracle import ORACLE
from tests.support.collecting import ALPHA, alpha_plugins, ask, scan

# What was done, in the words of the oracle, and which cause says so. One flipped bit can make anything of an object:
# those are listed by key below.
CAUSES = {
    "aescbc last ciphertext byte flipped": "ciphertext-damaged",
    "aescbc truncated, not a block multiple": "value-truncated",
    "aescbc shorter than an IV": "value-truncated",
    "aescbc IV flipped: garbles only the first plaintext block": "iv-damaged",
    "aescbc value copied to another key: decrypts (no associated data), metadata.name differs from the key": (
        "identity-mismatch"
    ),
    "aesgcm ciphertext flipped": "ciphertext-damaged",
    "aesgcm value copied to another key: associated data differs": "value-moved",
    "aesgcm shorter than a nonce": "value-truncated",
    "aesgcm (configmap) flipped": "ciphertext-damaged",
    # The key stands there under another name.
    "aesgcm key name replaced by one not configured": "key-renamed",
    "secretbox flipped": "ciphertext-damaged",
    "secretbox (serviceaccount) flipped": "ciphertext-damaged",
    "secretbox too short": "value-truncated",
    # Byte 40 belongs to what the data key is derived with.
    "kms v2 envelope byte 40 flipped": "nonce-damaged",
    # The tail holds the wrapped data key.
    "kms v2 envelope tail flipped": "kms-envelope-damaged",
    "kms v2 keyID replaced by one the plugin does not know": "kms-key-unknown",
    "kms v1 DEK length flipped": "kms-envelope-damaged",
    "kms v1 data flipped": "ciphertext-damaged",
    "empty value": "empty-value",
    "plaintext protobuf truncated": "value-truncated",
    "zeroed value": "zeroed-value",
    "unknown encryption prefix": "unknown-envelope",
    "apiVersion v7: not registered": "kind-not-registered",
    "kind Sekret: not registered": "kind-not-registered",
    "another kind (Service) under a secrets key": "wrong-kind-for-key",
    "pod: truncated by 1 byte": "value-truncated",
    "pod: 40 random bytes in the middle": "protobuf-damaged",
    "pod: trailing garbage after the envelope": "trailing-bytes",
    "pod: magic damaged": "magic-damaged",
    # An unknown field, whatever is in it: the API server serves it.
    "pod: tag of a nested field set to an illegal wire type": None,
    "custom resource: JSON cut short": "value-truncated",
    "custom resource: kind missing": "kind-missing",
    # Of noise nobody can say that it is no encoding which is newer.
    "custom resource: not JSON": "unknown-encoding",
    "custom resource: other kind": "identity-mismatch",
}
FLIPPED = {
    "pods/pay/dep-1-abc-0": "identity-mismatch",  # its name
    "pods/infra/dep-1-abc-0": "raw-json-invalid",  # its managedFields
    "pods/infra/dep-2-abc-1": "raw-json-invalid",
    "pods/shop/dep-2-abc-1": "raw-json-invalid",
    "statefulsets/pay/db": "raw-json-invalid",
    "replicasets/shop/dep-0-abc": "raw-json-invalid",
    "pods/shop/dep-1-abc-0": "protobuf-damaged",
    "ingress/shop/web": "kind-not-registered",  # its apiVersion
    # Text that is as good as any other, an unknown field: in order by every rule there is.
    "pods/shop/dep-0-abc-0": None,
    "pods/pay/dep-3-abc-1": None,
    "pods/infra/dep-3-abc-0": None,
    "pods/infra/dep-2-abc-0": None,
    "pods/shop/dep-2-abc-0": None,
    "statefulsets/infra/db": None,
    "replicasets/pay/dep-1-abc": None,
    "cronjobs/shop/nightly": None,
}


def all_keys() -> dict[str, Any]:
    rules: dict[tuple[str, ...], list[Any]] = {}
    for path in sorted(ALPHA.glob("write-*.yaml")):
        for rule in yaml.safe_load(path.read_text())["resources"]:
            held = rules.setdefault(tuple(rule["resources"]), [])
            held += [provider for provider in rule["providers"] if provider not in held]
    for held in rules.values():
        held.sort(key=lambda provider: "identity" in provider)
    resources = [{"resources": list(names), "providers": held} for names, held in rules.items()]
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": resources,
    }


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    folder = tmp_path_factory.mktemp("causes")
    configuration = folder / "all.yaml"
    configuration.write_text(yaml.safe_dump(all_keys()))
    with (
        alpha_plugins(folder) as plugins,
        ask(plugins) as asked,
        SnapshotSource(ALPHA / "snapshot.db.gz") as source,
    ):
        reporter, _ = scan(source, configuration, plugins=asked, kubernetes_minor=36)
    return reporter.findings


def expected(key: str) -> str | None:
    done = ORACLE["damage"][key]
    return FLIPPED[key.removeprefix("/registry/")] if "bit flipped at byte" in done else CAUSES[done]


@pytest.mark.parametrize("key", sorted(ORACLE["damage"]))
def test_the_cause_says_what_was_done(key: str, findings: dict[str, Finding]) -> None:
    found = findings.get(key)
    said = found.cause if found is not None else None
    assert said == expected(key), found and msgspec.structs.replace(found, remedies=[])


def test_nothing_else_is_wrong(findings: dict[str, Finding]) -> None:
    assert set(findings) <= set(ORACLE["damage"])
    assert len(ORACLE["damage"]) == 50
