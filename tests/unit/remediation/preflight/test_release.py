"""Which release is assumed, and what the Nodes say of it: a source in memory."""

from __future__ import annotations

import pytest

from etcdfix.encryption.transformer import Transformers
from etcdfix.errors import RefusedByRule
from etcdfix.examine import Examiner
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.preflight.release import MOST_SKEW, check_release, newest_kubelet
from etcdfix.rules import Rule
from etcdfix.storagekey import StorageLayout
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
        ((node("v1.34.2"),), 34),
        ((node("v1.34.2"), node("v1.33.9"), node("v1.9.11")), 34),
        ((node("v1.31.4+k3s1"), node("v1.30.0-eks-1a2b"), node("v1.29")), 31),
        ((aescbc(node("v1.34.2")),), 34),
        # What cannot be read, or says nothing, counts for nothing.
        ((b"junk", aescbc(node("v1.40.0"), KEY_2), node("v1.31.0")), 31),
        ((node(""), node("1.35.0"), node("v2.0.0"), node("v1.x"), node("v1.35x")), None),
        ((node(7), node(None)), None),
        ((node("v1." + "9" * 5000), node("v1.31.0")), 31),
        ((json_object("v1", "Node", "n", ""),), None),
        ((json_object("v1", "Node", "n", "", status={}),), None),
        ((json_object("v1", "Node", "n", "", status=None),), None),
        ((json_object("v1", "Node", "n", "", status="v1.34.0"),), None),
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


def refusal(minor: int, source: MemorySource, *words: str, rule: Rule = Rule.RELEASE) -> RefusedByRule:
    with pytest.raises(RefusedByRule) as caught:
        check_release(source, examiner(minor), Acceptances(words=words))
    assert caught.value.rule == rule
    return caught.value


def test_without_a_named_release_the_nodes_do_not_matter() -> None:
    assert not check_release(nodes(), examiner(None), Acceptances())
    assert not check_release(nodes(node("v1.34.0")), examiner(None), Acceptances())


@pytest.mark.parametrize("minor", range(31, 37))
def test_a_release_has_to_fit_the_nodes(minor: int) -> None:
    source = nodes(node("v1.32.1"), node("v1.30.1"))
    if 32 <= minor <= 32 + MOST_SKEW:
        # API servers may be as old as the newest kubelet: what a later release dropped they may read.
        assert check_release(source, examiner(minor), Acceptances()) is (minor == 32)
    else:
        error = refusal(minor, source, "unknown-release")
        assert error.message == (
            f"release 1.{minor} was named, and the newest kubelet is 1.32: the API servers are of 1.32 to 1.35"
        )


def test_nobody_vouches_for_a_release() -> None:
    error = refusal(34, nodes(b"junk"), "unknown-cluster", rule=Rule.UNKNOWN_RELEASE)
    assert "no Node can be read" in error.message
    assert error.hint.endswith("--accept unknown-release")
    assert check_release(nodes(b"junk"), examiner(34), Acceptances(words=("unknown-release",))) is False
