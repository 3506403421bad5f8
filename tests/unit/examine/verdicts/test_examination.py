from __future__ import annotations

import msgspec

from etcdfix.examine.verdicts.examination import KeyName
from etcdfix.model.model import DecodedObject, GroupVersionKind
from tests.support.examinations import examination, readable


def test_kind_is_what_the_value_states() -> None:
    gvk = GroupVersionKind("apps", "v1", "Deployment")
    decoded = DecodedObject(gvk, b"web", b"shop", None, "protobuf")
    assert msgspec.structs.replace(readable(), decoded=decoded).gvk == gvk
    assert examination().gvk is None


def test_a_value_that_does_not_open_counts_under_each_key_of_its_name() -> None:
    found = examination(rule="secrets", key_fingerprints=("fp:1", "fp:2"))
    assert [name.key for name in found.encryption_keys] == ["fp:1", "fp:2"]


def test_behind_a_plugin_the_key_id_counts() -> None:
    found = examination(transformer="kms/v2/prov", kms_key_id="key-7", rule="secrets")
    assert found.encryption_keys == (KeyName("secrets", "kms/v2/prov", found.kms_key_id_sha256),)
    assert found.kms_key_id_sha256.startswith("sha256:")
    assert examination(transformer="kms/v1/prov").encryption_keys == (KeyName("", "kms/v1/prov", ""),)
