"""Which release is assumed, and what the Nodes say of it: a source in memory."""

from __future__ import annotations

import pytest

from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.one import Examiner
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.checks.key import MOST_SKEW, misfit, newest_kubelet
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support.decoders import shared_decoder
from tests.support.memory_source import MemorySource
from tests.support.objects import KEY_1, KEY_2, aescbc, configuration, json_object, provider


def node(version: object, name: str = "n") -> bytes:
    return json_object("v1", "Node", name, "", status={"nodeInfo": {"kubeletVersion": version}})


def nodes(*values: bytes) -> MemorySource:
    return MemorySource({f"/registry/minions/n-{number}": value for number, value in enumerate(values)})


def examiner(minor: int | None = None) -> Examiner:
    config = configuration(provider("aescbc", key1=KEY_1), {"identity": {}}, resources=("nodes",))
    transformers = Transformers.from_configuration(config)
    return Examiner(
        StorageLayout(), transformers, shared_decoder(minor), assumed_release=f"1.{minor}" if minor else ""
    )


@pytest.mark.parametrize(
    ("values", "newest"),
    [
        ((), None),
        ((node("v1.34.2"), node("v1.33.9"), node("v1.9.11")), 34),
        ((node("v1.31.4+k3s1"), node("v1.30.0-eks-1a2b"), node("v1.29")), 31),
        ((aescbc(node("v1.34.2")),), 34),
        # What cannot be read, or says nothing, counts for nothing.
        ((b"junk", aescbc(node("v1.40.0"), KEY_2), node("v1.31.0")), 31),
        ((node(""), node("1.35.0"), node("v2.0.0"), node("v1.x"), node("v1.35x")), None),
        ((node("v1." + "9" * 5000), node("v1.31.0")), 31),
        ((json_object("v1", "Node", "n", ""),), None),
        ((json_object("v1", "Node", "n", "", status=None),), None),
        ((json_object("v1", "Node", "n", "", status={"nodeInfo": None}),), None),
        ((json_object("v1", "Node", "n", "", status={"nodeInfo": ["v1.34.0"]}),), None),
        ((unknown(b"v1", b"Node", block(1, object_meta(b"n"))),), None),
        ((json_object("v1", "Pod", "n", "", status={"nodeInfo": {"kubeletVersion": "v1.40.0"}}),), None),
    ],
)
def test_the_newest_kubelet(values: tuple[bytes, ...], newest: int | None) -> None:
    assert newest_kubelet(nodes(*values), examiner()) == newest


def test_only_nodes_are_asked() -> None:
    elsewhere = MemorySource({"/registry/minionsets/x": node("v1.34.0"), "/other/minions/x": node("v1.34.0")})
    assert newest_kubelet(elsewhere, examiner()) is None


@pytest.mark.parametrize("minor", range(31, 37))
def test_a_release_has_to_fit_the_nodes(minor: int) -> None:
    doubt = misfit(f"1.{minor}", 32)
    if 32 <= minor <= 32 + MOST_SKEW:
        assert doubt is None
    else:
        assert doubt is not None
        assert "1.32 to 1.35" in doubt.message
