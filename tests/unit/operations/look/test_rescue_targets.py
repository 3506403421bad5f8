"""Which objects a rescue asks for."""

from __future__ import annotations

import msgspec
import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.operations.look.rescue_targets import targets_of
from etcdfix.report.model import Scope
from etcdfix.report.report_file import ReportFile
from etcdfix.report.saved_report import ReportedFinding, SavedFindings, SavedReport
from tests.support.reports import source


def reported(
    mod_revision: int, digest: str, outcome: str, cause: str, transformer: str = "", rule: str = ""
) -> ReportedFinding:
    return ReportedFinding("", outcome, mod_revision, digest, None, cause, transformer, rule)


LOST = reported(17, "sha256:0", "decrypt-failure", "wrong-key", "aescbc/v1/key1", "secrets")
ONE, TWO = b"/registry/secrets/shop/one", b"/registry/secrets/shop/two"
WIDGET, MAP = b"/registry/example.com/widgets/shop/w", b"/registry/configmaps/shop/m"


def report(findings: dict[bytes, ReportedFinding], prefix: str = "/registry") -> SavedReport:
    return SavedReport(
        path="report.json", sha256="sha256:1", generated_at="", source=source(), encryption_config=None,
        scope=Scope(prefix, [], [], [], None), findings=saved(findings), problems=(),
    )  # fmt: skip


def saved(findings: dict[bytes, ReportedFinding]) -> SavedFindings:
    said = [msgspec.structs.replace(value, key=key.decode()) for key, value in findings.items()]
    document = {"apiVersion": "etcdfix/v1", "kind": "ScanReport", "findings": said}
    return SavedFindings(ReportFile(msgspec.json.encode(document)), len(said))


def test_all_that_cannot_be_read_by_etcd_key() -> None:
    found = targets_of(report({TWO: LOST, WIDGET: LOST, ONE: LOST}), [], "/registry")
    assert [target.key for target in found.objects] == [WIDGET, ONE, TWO]
    widget, one, _two = found.objects
    assert (widget.thing.version, widget.kind, widget.thing.group) == ("", "", "example.com")
    assert (one.thing.version, one.kind, one.mod_revision) == ("v1", "Secret", 17)
    assert one.alike == ("secrets", "decrypt-failure", "aescbc/v1/key1", "secrets")
    assert found.left_out == {}


def test_what_is_no_matter_for_a_rescue_is_counted() -> None:
    other = reported(3, "", "inconsistent", "invalid-utf8")
    unknown = reported(3, "", "undetermined", "owner-unknown")
    kms = reported(3, "", "undetermined", "kms-key-unknown")
    newer = reported(3, "", "a-newer-word", "")
    values = {
        ONE: kms, TWO: other, MAP: unknown, b"/registry/configmaps/shop/n": newer,
        b"/registry/ranges/serviceips": LOST, b"/registry/secrets/shop/a/b": LOST, b"/registry/secrets/shop/..": LOST,
        b"/registry/secrets/shop/": LOST,
    }  # fmt: skip
    found = targets_of(report(values), [], "/registry")
    assert [target.key for target in found.objects] == [ONE]
    assert found.left_out == {
        "inconsistent": 1, "undetermined": 1, "a-newer-word": 1, "no-object-of-the-api": 1, "no-request-can-name-it": 3,
    }  # fmt: skip


def test_keys_that_no_report_names_are_each_looked_at() -> None:
    first, second = targets_of(None, [ONE, TWO], "/registry").objects
    assert first.alike != second.alike


def test_another_storage_prefix() -> None:
    key = b"/kubernetes.io/secrets/shop/one"
    (target,) = targets_of(report({key: LOST}, "/kubernetes.io"), [], "/registry").objects
    assert target.thing.name == "one"
    assert targets_of(None, [key], "kubernetes.io").objects[0].thing == target.thing


@pytest.mark.parametrize(
    "key", [b"/registry/ranges/serviceips", b"/other/x", b"compact_rev_key", b"/registry/secrets/a/b/c"]
)
def test_keys_of_no_object(key: bytes) -> None:
    with pytest.raises(ConfigurationError, match="no object of the API|no request"):  # noqa: RUF043 - either will do
        targets_of(None, [key], "/registry")
