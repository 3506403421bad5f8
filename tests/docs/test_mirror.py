"""What contributing.md promises of the packages that prove and change things: where the tests of a module are."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MIRRORED = (
    "apiserver",
    "decoding",
    "encryption",
    "golang",
    "inputs",
    "remediation",
    "sources",
    "verdicts",
    "wire",
    "workers",
)

# These are only used by another module, or are its tables, and tested with it.
WITH_ANOTHER = {
    "decoding/render/fieldorder.py": "unit/decoding/render/test_typed.py",
    "encryption/candidates.py": "unit/encryption/test_ciphers.py",
    "encryption/config_text.py": "unit/encryption/test_config_merge.py",
    "encryption/kms/answers.py": "unit/encryption/kms/test_client.py",
    "encryption/providers/aescbc.py": "unit/encryption/test_ciphers.py",
    "encryption/providers/aesgcm.py": "unit/encryption/test_ciphers.py",
    "encryption/providers/ghash.py": "unit/encryption/test_cipher.py",
    "encryption/providers/poly1305.py": "unit/encryption/test_cipher.py",
    "encryption/providers/secretbox.py": "unit/encryption/test_ciphers.py",
    "encryption/undo.py": "unit/encryption/test_peek.py",
    "inputs/startcommand.py": "unit/inputs/test_manifest.py",
    "remediation/audit/grounds.py": "integration/remediation/test_identify.py",
    "remediation/preflight/cluster.py": "integration/remediation/test_identify.py",
    "remediation/preflight/surroundings.py": "integration/operations/change/test_kept_look.py",
    "remediation/same_etcd.py": "integration/remediation/test_reconcile.py",
    "sources/base.py": "unit/sources/test_live.py",
    "sources/wal/base.py": "unit/sources/wal/test_replay.py",
    "sources/wal/comparison.py": "unit/sources/wal/test_history.py",
    "sources/wal/model.py": "unit/sources/wal/test_history.py",
    "sources/wal/requests.py": "unit/sources/wal/test_replay.py",
    "sources/wal/trace.py": "unit/sources/wal/test_history.py",
    "verdicts/server_messages.py": "docs/test_cause_pages.py",
    "verdicts/observation.py": "unit/verdicts/test_judge.py",
    "workers/process.py": "integration/workers/test_pool.py",
    "workers/worker.py": "integration/workers/test_pool.py",
}


def mirrors(module: Path) -> list[Path]:
    """Return the tests of a module that stand at its own path."""
    named = module.with_name(f"test_{module.name}")
    places = (REPOSITORY / "tests" / kind / named for kind in ("unit", "integration"))
    return [place for place in places if place.exists()]


@pytest.mark.parametrize("package", MIRRORED)
def test_each_module_has_its_tests_at_its_own_path_or_where_the_list_says(package: str) -> None:
    found = (REPOSITORY / "etcdfix" / package).rglob("*.py")
    modules = {path.relative_to(REPOSITORY / "etcdfix") for path in found if path.name != "__init__.py"}
    without = {str(module) for module in modules if not mirrors(module)}
    assert without == {module for module in WITH_ANOTHER if module.startswith(f"{package}/")}


def test_the_others_are_tested_where_the_list_says() -> None:
    for place in WITH_ANOTHER.values():
        assert (REPOSITORY / "tests" / place).exists(), place
