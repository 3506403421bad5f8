from __future__ import annotations

import msgspec

from etcdfix.model import DecodedObject, GroupVersionKind
from tests.support.examinations import examination, readable


def test_kind_is_what_the_value_states() -> None:
    gvk = GroupVersionKind("apps", "v1", "Deployment")
    decoded = DecodedObject(gvk, b"web", b"shop", None, "protobuf")
    assert msgspec.structs.replace(readable(), decoded=decoded).gvk == gvk
    assert examination().gvk is None
