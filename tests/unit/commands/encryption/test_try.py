"""Which candidate opens what: proven by opening, counted once, and nothing is claimed of what was not told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.model.errors import EndedEarly
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.encryption import EncryptionTryReport, FindingGroup
from etcdfix.report.render.text import text_lines
from etcdfix.text.commands import RunOptions
from tests.support.memory_source import MemorySource
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    configuration,
    crd,
    namespace_object,
    provider,
    secret,
    widget,
)
from tests.support.reports import line

KEY_3 = b"3" * 16
BASE = {"/registry/namespaces/kube-system": namespace_object("kube-system")}
TODAY = configuration(provider("aesgcm", new=KEY_1), IDENTITY)
KMS = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///nowhere.sock"}}


def name(number: int) -> str:
    return f"/registry/secrets/shop/web-{number}"


def sealed(*numbers: int, key: bytes = KEY_2, called: str = "old") -> dict[str, bytes]:
    return {name(n): aesgcm(secret(f"web-{n}"), name(n), key=key, name=called) for n in numbers}


def config(label: str, *providers: Any, resources: tuple[str, ...] = ("secrets",)) -> NamedCandidate:
    return NamedCandidate(label, configuration(*providers, resources=resources))


def tried(
    values: Mapping[str, bytes] | MemorySource,
    *candidates: NamedCandidate,
    today: EncryptionConfiguration | None = TODAY,
    **settings: Any,
) -> EncryptionTryReport:
    source = values if isinstance(values, MemorySource) else MemorySource({**BASE, **values})
    request = TryRequest(layout=StorageLayout(), configuration=today, candidates=candidates, **settings)
    return try_candidates(source, request)[0]


def opened_by(group: FindingGroup) -> list[str]:
    return [name for name, opens in group.opened_by.items() if opens == group.findings]


def counts(report: EncryptionTryReport) -> list[tuple[str, int, int, int]]:
    return [(c.name, c.opens, c.right_key, c.undetermined) for c in report.candidates]


RIGHT = config("right.yaml", provider("aesgcm", old=KEY_2))
WRONG = config("wrong.yaml", provider("aesgcm", old=KEY_3), IDENTITY)


def test_each_candidate_is_told_what_it_opens() -> None:
    report = tried({**sealed(1, 2, 3), **sealed(4, key=KEY_1, called="new")}, WRONG, RIGHT)
    assert (report.findings, report.opened, report.complete) == (3, 3, True)
    assert counts(report) == [("wrong.yaml", 0, 0, 0), ("right.yaml", 3, 0, 0)]
    wrong, right = report.candidates
    assert (wrong.opened, wrong.not_opened) == ([], [name(1), name(2), name(3)])
    assert (right.opened, right.not_opened) == ([name(1), name(2), name(3)], [])
    (group,) = report.groups
    assert (group.transformer, group.resources, group.findings) == ("aesgcm/v1/old", ["secrets"], 3)
    assert opened_by(group) == ["right.yaml"]
    assert group.next is not None
    assert line(group.next).startswith(f"etcdfix fix {name(1)} --from candidate:")
    assert report.next is not None
    assert line(report.next).startswith("etcdfix encryption merge")


def test_no_rewrite_is_offered_for_kine() -> None:
    (group,) = tried(sealed(1), RIGHT, run=RunOptions(source=("--kine", "state.db"))).groups
    assert group.next is not None
    assert not group.next.command


def test_groups_that_several_candidates_open_are_told_apart() -> None:
    values = {
        **sealed(1, 2),
        **sealed(3, key=KEY_3, called="older"),
        **sealed(4, key=b"4" * 16, called="gone"),
    }
    older = config("older.yaml", provider("aesgcm", older=KEY_3))
    report = tried(values, RIGHT, older)
    found = {group.transformer: (group.opened, opened_by(group), group.not_opened) for group in report.groups}
    assert found == {
        "aesgcm/v1/old": (2, ["right.yaml"], []),
        "aesgcm/v1/older": (1, ["older.yaml"], []),
        "aesgcm/v1/gone": (0, [], [name(4)]),
    }
    assert len([*text_lines(report.document(), RunOptions(), 100)]) <= 24
    assert [group.next is None for group in report.groups] == [False, True, False]
    assert (report.findings, report.opened) == (4, 3)


def damaged(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


@pytest.mark.parametrize(
    ("values", "keys", "expected"),
    [
        pytest.param(sealed(1, 2), provider("aesgcm", mine=KEY_2), (0, 2, 0), id="under another name"),
        pytest.param(
            {name(1): damaged(sealed(1)[name(1)]), **sealed(2)}, provider("aesgcm", old=KEY_2), (1, 1, 0), id="damaged"
        ),
        pytest.param(
            {name(7): aescbc(secret("web-1"), KEY_2, name="old")}, provider("aescbc", old=KEY_2), (0, 1, 0), id="moved"
        ),
    ],
)  # fmt: skip
def test_the_right_key_is_seen_where_it_opens_nothing(
    values: dict[str, bytes], keys: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    report = tried(values, config("c.yaml", keys))
    assert counts(report) == [("c.yaml", *expected)]
    assert report.opened == expected[0]


def test_damage_that_is_proven_today_is_told() -> None:
    value = sealed(1, key=KEY_1, called="new")[name(1)]
    (group,) = tried({name(1): damaged(value), **sealed(2, key=KEY_1, called="new")}, RIGHT).groups
    assert (group.findings, group.damaged, group.opened) == (1, 1, 0)


def test_values_that_must_not_be_plain_are_opened_by_a_configuration_with_identity() -> None:
    strict = configuration(provider("aesgcm", new=KEY_1))
    report = tried({name(1): secret("web-1")}, WRONG, RIGHT, today=strict)
    assert [row[1] for row in counts(report)] == [1, 0]


def test_without_a_configuration_everything_that_is_encrypted_is_tried() -> None:
    report = tried({**sealed(1, 2), name(3): secret("web-3")}, WRONG, RIGHT, today=None)
    assert (report.findings, report.opened) == (2, 2)
    assert report.next is not None
    assert line(report.next).startswith("etcdfix scan")


def test_what_a_plugin_that_is_not_asked_would_open_is_undetermined() -> None:
    value = {name(1): b"k8s:enc:kms:v2:prov:" + b"\x0a\x20" + b"c" * 32 + b"\x12\x02id\x1a\x03dek"}
    report = tried(value, config("kms.yaml", KMS), RIGHT)
    assert counts(report) == [("kms.yaml", 0, 0, 1), ("right.yaml", 0, 0, 0)]
    assert not report.complete
    (group,) = report.groups
    assert group.kms_key_id_sha256 is not None


def test_custom_resources_whose_definition_only_the_candidate_reads() -> None:
    place = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
    thing = "/registry/example.com/widgets/shop/w-0"
    values = {
        place: aesgcm(crd(), place, key=KEY_2, name="old"),
        thing: aesgcm(widget(), thing, key=KEY_2, name="old"),
    }
    everything = config("all.yaml", provider("aesgcm", old=KEY_2), resources=("*.*",))
    today = configuration(provider("aesgcm", new=KEY_1), resources=("*.*",))
    report = tried(MemorySource(values), everything, today=today)
    assert (report.findings, report.opened) == (2, 2)


def test_an_interruption_gives_what_was_tried() -> None:
    def interrupted(items: Any, label: str, _estimate: int | None) -> Any:
        for count, item in enumerate(items):
            if label == "values to try" and count == 2:
                raise EndedEarly("interrupted", 130, 130)
            yield item

    request = TryRequest(layout=StorageLayout(), configuration=TODAY, candidates=(RIGHT,))
    report, ended = try_candidates(
        MemorySource({**BASE, **sealed(1, 2, 3, 4)}), request, progress=interrupted
    )
    assert ended is not None
    assert (report.findings, report.opened) == (2, 2)
    assert "after 2 of 4 values" in report.incomplete_reasons[0]
