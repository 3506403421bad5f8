"""Which objects a rescue asks for."""

from __future__ import annotations

from typing import cast

import pytest

from etcdfix.commands.rescuing.objects import targets_of_keys, targets_of_report
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.model import ScanHeader, Scope
from etcdfix.report.origin import TOOL
from etcdfix.report.saved_report import ReportedFinding, SavedFindings, SavedReport
from tests.support.reports import source

DEFAULT, OTHER = StorageLayout("/registry"), StorageLayout("kubernetes.io")


def reported(
    mod_revision: int, digest: str, outcome: str, cause: str, transformer: str = "", rule: str = ""
) -> ReportedFinding:
    return ReportedFinding("", outcome, mod_revision, digest, None, cause, transformer, rule)


LOST = reported(17, "sha256:0", "decrypt-failure", "wrong-key", "aescbc/v1/key1", "secrets")
ONE, TWO = b"/registry/secrets/shop/one", b"/registry/secrets/shop/two"
WIDGET, MAP = b"/registry/example.com/widgets/shop/w", b"/registry/configmaps/shop/m"


def report(findings: dict[bytes, ReportedFinding], prefix: str = "/registry") -> SavedReport:
    header = ScanHeader(
        tool=TOOL,
        generated_at="",
        source=source(),
        encryption_config=None,
        scope=Scope(prefix, [], [], [], None),
    )
    return SavedReport(
        path="report.json", sha256="sha256:1", header=header, findings=cast("SavedFindings", findings), problems=(),
    )  # fmt: skip


def test_all_that_cannot_be_read_by_etcd_key() -> None:
    found = targets_of_report(report({TWO: LOST, WIDGET: LOST, ONE: LOST}))
    assert [target.key for target in found] == [WIDGET, ONE, TWO]
    widget, one, _two = found
    assert (widget.thing.version, widget.kind, widget.thing.group) == ("", "", "example.com")
    assert (one.thing.version, one.kind, one.mod_revision) == ("v1", "Secret", 17)


def test_what_is_no_matter_for_a_rescue_is_left_out() -> None:
    values = {
        ONE: reported(3, "", "undetermined", "kms-key-unknown"), TWO: reported(3, "", "inconsistent", "invalid-utf8"),
        MAP: reported(3, "", "undetermined", "owner-unknown"),
        b"/registry/configmaps/shop/n": reported(3, "", "a-newer-word", ""),
        b"/registry/ranges/serviceips": LOST, b"/registry/secrets/shop/a/b": LOST, b"/registry/secrets/shop/..": LOST,
        b"/registry/secrets/shop/": LOST,
    }  # fmt: skip
    assert [target.key for target in targets_of_report(report(values))] == [ONE]
    del values[ONE]
    with pytest.raises(ConfigurationError, match="no object is unreadable"):
        targets_of_report(report(values))


def test_another_storage_prefix() -> None:
    key = b"/kubernetes.io/secrets/shop/one"
    (target,) = targets_of_report(report({key: LOST}, "/kubernetes.io"))
    assert target.thing.name == "one"
    assert targets_of_keys([key], OTHER)[0].thing == target.thing


@pytest.mark.parametrize(
    "key", [b"/registry/ranges/serviceips", b"/other/x", b"compact_rev_key", b"/registry/secrets/a/b/c"]
)
def test_keys_of_no_object(key: bytes) -> None:
    with pytest.raises(ConfigurationError, match="holds no object"):
        targets_of_keys([key], DEFAULT)
