"""Values in which a whole object can still be found, or whose encoding nobody knows: none goes without a word.

What a fitting tag covers, no disk changed: so whatever surrounds the object was written, by a newer release perhaps.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from etcdfix.model.rules import Rule
from etcdfix.testing.servers import EtcdServer
from tests.support import encoders
from tests.support.attacks import EVERY_FLAG, LOCAL, TRUE, Attacked, every_flag_but, seal, secret
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import IDENTITY, crd, json_object, provider, widget
from tests.support.plan_runs import Planned

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

PLAIN: Final = "plain"
KMS: Final = "kms"
SEALINGS: Final = (PLAIN, *LOCAL, KMS)

Shape = Callable[[bytes], bytes]


def _tail(value: bytes) -> bytes:
    return value + value[-30:]


def _cut_state_before(value: bytes) -> bytes:
    return value[:-20] + value


ANY: dict[str, Shape] = {
    "a header of 4 bytes": lambda value: b"K8S\x01" + value,
    "a header of 16 bytes": lambda value: bytes(range(0x90, 0xA0)) + value,
    "zeroes before": lambda value: bytes(9) + value,
    "a byte-order mark": lambda value: b"\xef\xbb\xbf\x01" + value,
    "zeroes behind": lambda value: value + bytes(40),
    "a trailer": lambda value: value + b"\x00crc",
    "the tail of an older state": _tail,
    "two states": lambda value: value + value.replace(b"never", b"newer").replace(b'"size": 1', b'"size": 2'),
    "a state that is cut before": _cut_state_before,
    "gzip": lambda value: gzip.compress(value, mtime=0),
    "base64, a zero behind": lambda value: base64.b64encode(value) + b"\0",
}
_TYPED: Final = b"k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Secret"
PROTOBUF: dict[str, Shape] = {
    "another magic": lambda value: b"k8s\x01" + value[4:],
    "another magic of 8 bytes": lambda value: b"K8SPROTO" + value[4:],
    "CR LF": lambda value: value.replace(b"\n", b"\r\n"),
    "another magic and version": lambda value: b"k8s\x01\n\x0c\n\x02v2\x12\x06Secr" + value[16:],
    "another first block": lambda value: b"K9T\x02" + bytes(11) + b"\x01" + value[16:],
    "contents in snappy": lambda _: _TYPED + b"\x12\x05\x12\x7fabc" + b"\x1a\x06snappy",
    "contents in a field that nobody knows": lambda _: _TYPED + b"\x2a\x04blob",
    "contents in zstd, in a field that nobody knows": lambda _: _TYPED + b"\x1a\x04zstd\x22\x00\x2a\x04blob",
}
JSON: dict[str, Shape] = {
    "a line feed and two documents": lambda value: value + b"\n" + value,
    "an array": lambda value: b"[" + value + b"]",
    "an array of strings": lambda value: json.dumps([value.decode()]).encode(),
    "UTF-16": lambda value: value.decode().encode("utf-16-le"),
    "single quotes": lambda value: value.replace(b'"', b"'") + b"#",
    "YAML with brackets": lambda value: re.sub(rb'"([a-zA-Z]+)":', rb"\1: ", value) + b" !",
    "a comment": lambda value: b"{/* c */" + value[1:],
    "gzip behind a bracket": lambda value: b"{\x00\x01\x02" + gzip.compress(value, mtime=0),
}
OBJECTS: Final = ("protobuf", "json", "custom resource")
_AS_PROTOBUF: Shape = lambda _value: secret("w-0")  # noqa: E731 - as its neighbours


def shapes_of(kind: str) -> dict[str, Shape]:
    if kind == "protobuf":
        return ANY | PROTOBUF
    return ANY | JSON | ({"protobuf": _AS_PROTOBUF} if kind == "custom resource" else {})


class Ground:
    def __init__(self, registry: Attacked, kind: str, sealing: str, plugin: KMSPlugin | None) -> None:
        self.registry = registry
        self.kind = kind
        self._sealing = sealing
        self._plugin = plugin
        if kind == "custom resource":
            registry.put(
                "widgets.example.com", crd(), resource="apiextensions.k8s.io/customresourcedefinitions"
            )
        resource = "widgets.example.com" if kind == "custom resource" else "secrets"
        if plugin is not None:
            kms = {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "5s"}
            registry.rules((resource, ({"kms": kms}, IDENTITY)))
        elif sealing == PLAIN:
            registry.keyed("aesgcm", resource=resource)
        else:
            registry.rules((resource, (provider(sealing, key1=TRUE), IDENTITY)))
        self.source = os.urandom(32)
        self.wrapped = plugin.encrypt(self.source, "") if plugin is not None else None

    def object(self, name: str) -> bytes:
        match self.kind:
            case "protobuf":
                return secret(name)
            case "json":
                data = {"password": base64.b64encode(b"never-to-be-shown").decode()}
                return json_object("v1", "Secret", name, data=data)
            case _:
                return widget(name)

    def key(self, name: str) -> bytes:
        if self.kind == "custom resource":
            return self.registry.key(f"widgets/shop/{name}", "example.com")
        return self.registry.key(f"shop/{name}")

    def put(self, name: str, plaintext: bytes) -> bytes:
        at = self.key(name)
        match self._sealing:
            case "plain":
                value = plaintext
            case "kms":
                assert self._plugin is not None
                value = self._plugin.stored_v2(plaintext, at, source=self.source, wrapped=self.wrapped)
            case _:
                value = seal(self._sealing, plaintext, at)
        self.registry.etcd.put(at, value)
        return at


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-whole-{os.getpid()}-{tmp_path.name}", {"kek-1": b"1" * 32}) as running:
        yield running


@pytest.fixture
def ground(registry: Attacked, plugin: KMSPlugin, request: pytest.FixtureRequest) -> Ground:
    kind, sealing = request.param
    return Ground(registry, kind, sealing, plugin if sealing == KMS else None)


every_ground = pytest.mark.parametrize(
    "ground",
    [
        ("protobuf", PLAIN), ("protobuf", "aesgcm"), ("protobuf", "aescbc"), ("json", "secretbox"), ("json", PLAIN),
        ("custom resource", "aescbc"), ("custom resource", KMS),
    ],
    indirect=True,
    ids=lambda param: f"{param[0]}, {param[1]}",
)  # fmt: skip


@every_ground
def test_none_goes_without_a_word(ground: Ground) -> None:
    registry = ground.registry
    for name in ("before", "more"):
        ground.put(name, ground.object(name))
    both = (Rule.ONLY_COPY, Rule.NEWER_THAN_KNOWN)
    for what, shape in shapes_of(ground.kind).items():
        at = ground.put("w-0", shape(ground.object("w-0")))
        ground.put("zz", ground.object("zz"))
        (ran,) = registry.refuses([at], *every_flag_but(*both))
        refusal = json.loads(ran.out)["refusal"]
        named = [risk for risk in both if f"--accept {risk}" in refusal["next_step"]]
        assert named or refusal["rule"] == "readable", (what, registry.verdict(at), refusal)


@every_ground
def test_what_is_plainly_damaged_goes_as_ever(ground: Ground) -> None:
    """A cut, and a bit in the middle of the object's structure."""
    registry = ground.registry
    for name in ("before", "more"):
        ground.put(name, ground.object(name))
    value = ground.object("w-0")
    at_kind = value.index(b"metadata") - 1 if value.startswith(b"{") else value.index(b"\x0a\x03w-0")
    for damaged in (value[:-9], value[:at_kind] + bytes([value[at_kind] ^ 4]) + value[at_kind + 1 :]):
        at = ground.put("w-0", damaged)
        ground.put("zz", ground.object("zz"))
        with registry.nothing_changes():
            ran = registry.delete(at, "--dry-run")
        assert ran.code == 0, (registry.verdict(at), ran.err)


EIGHT: Final = {
    ("protobuf", "gzip", "aescbc"): ANY["gzip"],
    ("protobuf", "another magic", "aesgcm"): PROTOBUF["another magic"],
    ("json", "a header of 4 bytes", PLAIN): ANY["a header of 4 bytes"],
    ("custom resource", "protobuf", "aesgcm"): _AS_PROTOBUF,
}


@pytest.mark.parametrize(("kind", "what", "sealing"), EIGHT)
def test_eight_of_eight_in_one_unknown_encoding_stay(
    etcd: EtcdServer,
    prefix: bytes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: str,
    what: str,
    sealing: str,
) -> None:
    """No flag lifts that, a plan leaves them out, and a run over one that was made before deletes none of them."""
    registry = Planned(etcd, prefix, tmp_path, capfd)
    ground = Ground(registry, kind, sealing, None)
    shape = EIGHT[kind, what, sealing]
    keys = [ground.put("w-0", shape(ground.object("w-0")))]
    registry.make_plan(all="delete")
    keys += [ground.put(f"w-{number}", shape(ground.object(f"w-{number}"))) for number in range(1, 8)]
    assert len(registry.document()["entries"]) == 1
    with registry.nothing_changes():
        assert registry.work(*EVERY_FLAG).code == 4
    (ran,) = registry.refuses(keys[1:2], *EVERY_FLAG)
    # What looks like noise is shown by no tag to be under the right key.
    assert json.loads(ran.out)["refusal"]["rule"] in {"fails-like-others", "curable-by-configuration"}, ran
    registry.make_plan()
    assert not {"delete"} & {decision["decision"] for decision in registry.document()["decisions"]}


@pytest.fixture
def annotated(registry: Attacked, plugin: KMSPlugin) -> Callable[..., bytes]:
    ground = Ground(registry, "protobuf", KMS, plugin)

    def put(
        name: str, annotations: dict[str, bytes], *, source_type: int = 1, shape: Shape = lambda value: value
    ) -> bytes:
        at = ground.key(name)
        assert ground.wrapped is not None
        data = encoders.kms_v2_seeded_data(shape(secret(name)), ground.source, b"i" * 32, b"n" * 12, at)
        body = encoders.kms_v2_body(
            data,
            key_id=ground.wrapped.key_id,
            dek_source=ground.wrapped.ciphertext,
            annotations={**ground.wrapped.annotations, **annotations},
            source_type=source_type,
        )
        registry.etcd.put(at, b"k8s:enc:kms:v2:prov:" + body)
        return at

    return put


@pytest.mark.parametrize(
    "annotations",
    [{"version": b"1"}, {"Version.example.com": b"1"}, {"big.example.com": b"x" * 40_000}, {"": b"1"}],
    ids=["one label", "upper case", "too large", "no name"],
)
def test_annotations_by_a_rule_that_is_not_ours(
    registry: Attacked, annotated: Callable[..., bytes], annotations: dict[str, bytes]
) -> None:
    annotated("before", {})
    at = annotated("w-0", annotations)
    annotated("zz", {})
    registry.refuses([at], *every_flag_but(Rule.NEWER_THAN_KNOWN), accept="newer-than-known")
    # In a long envelope no bit is searched for, so that the wrapped key of a neighbour is the only thing that fits.
    mended = ("--accept", Rule.ONLY_COPY.value) if max(map(len, annotations.values())) > 1 << 12 else ()
    ran = registry.delete(at, "--accept", Rule.NEWER_THAN_KNOWN.value, *mended, "--dry-run")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("what", ["another magic", "two states"])
@pytest.mark.parametrize("envelope", [{"source_type": 2}, {"annotations": {"nodots": b"x"}}], ids=str)
def test_what_is_unknown_below_an_unknown_envelope(
    registry: Attacked, annotated: Callable[..., bytes], envelope: dict[str, Any], what: str
) -> None:
    """One goes with a word; of two no flag lets any go."""
    shape = (ANY | PROTOBUF)[what]
    envelope = {"annotations": {}} | envelope
    annotated("before", {})
    at = annotated("w-0", **envelope, shape=shape)
    annotated("zz", {})
    registry.refuses([at], *every_flag_but(Rule.NEWER_THAN_KNOWN), accept="newer-than-known")
    ran = registry.delete(at, "--accept", "newer-than-known", "--dry-run")
    assert ran.code == 0, ran.err
    keys = [at, *(annotated(f"w-{number}", **envelope, shape=shape) for number in range(1, 8))]
    registry.refuses(keys[:2], *EVERY_FLAG, rule="fails-like-others")


REPAIRED: dict[str, Callable[[Ground, bytes], bytes]] = {
    "a version of the envelope": lambda ground, at: seal("aesgcm", secret("w-0"), at).replace(b":v1:", b":v2:", 1),
    "a trailer": lambda ground, at: secret("w-0") + b"\x00crc",
    "another magic": lambda ground, at: b"k8s\x01" + secret("w-0")[4:],
    "JSON and a trailer": lambda ground, at: json_object("v1", "Secret", "w-0") + bytes(8),
}  # fmt: skip


@pytest.mark.parametrize("what", REPAIRED)
def test_what_a_newer_release_may_have_written_is_not_undone_without_a_word(
    registry: Attacked, what: str
) -> None:
    ground = Ground(registry, "protobuf", "aesgcm", None)
    ground.put("more", ground.object("more"))
    at = ground.key("w-0")
    registry.etcd.put(at, REPAIRED[what](ground, at))
    hint = f"--accept {Rule.NEWER_THAN_KNOWN}"
    others = ("--accept", "unproven-repair", "--accept", "cluster-breaking")
    for flags in ((), others):
        with registry.nothing_changes():
            ran = registry.put_back(at, "bit", *flags, "-o", "json")
        assert ran.code == 4, ran
        refusal = json.loads(ran.out)["refusal"]
        assert refusal["rule"] == "newer-than-known", refusal
        assert hint in refusal["next_step"], refusal
    # The command that a refused deletion prints goes through.
    refusal = json.loads(registry.delete(at, "-o", "json").out)["refusal"]
    assert refusal["rule"] == "only-copy", refusal
    command = refusal["next_step"].partition("put it right: ")[2].partition(";")[0]
    assert hint in command
    ran = registry.paste(command.replace("--dry-run", "").replace("REASON", "x") + " --accept no-api-server")
    assert ran.code == 0, ran.err
    assert registry.stored(at) is not None
    assert registry.delete(at, *EVERY_FLAG).code == 4  # it reads
