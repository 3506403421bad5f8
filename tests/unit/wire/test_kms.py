from __future__ import annotations

import pytest

from etcdfix.testing.protobytes import block
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.kms import V1_DECRYPT, V1_VERSION, V2_DECRYPT, V2_STATUS, message


def test_v1_requests_as_they_travel() -> None:
    version = message("v1beta1.VersionRequest")(version="v1beta1")
    assert version.SerializeToString() == block(1, b"v1beta1")
    decrypt = message("v1beta1.DecryptRequest")(version="v1beta1", cipher=b"\xff\x00")
    assert decrypt.SerializeToString() == block(1, b"v1beta1") + block(2, b"\xff\x00")


def test_v2_requests_as_they_travel() -> None:
    assert message("v2.StatusRequest")().SerializeToString() == b""
    decrypt = message("v2.DecryptRequest")(
        ciphertext=b"\xff", uid="u", key_id="k", annotations={"a.example.com": b"\xfe"}
    )
    entry = block(1, b"a.example.com") + block(2, b"\xfe")
    assert decrypt.SerializeToString() == block(1, b"\xff") + block(2, b"u") + block(3, b"k") + block(
        4, entry
    )


def test_responses_as_they_travel() -> None:
    version = message("v1beta1.VersionResponse").FromString(block(1, b"v") + block(2, b"n") + block(3, b"r"))
    assert (version.version, version.runtime_name, version.runtime_version) == ("v", "n", "r")
    assert message("v1beta1.DecryptResponse").FromString(block(1, b"\xff")).plain == b"\xff"
    status = message("v2.StatusResponse").FromString(block(1, b"v2") + block(2, b"ok") + block(3, b"k"))
    assert (status.version, status.healthz, status.key_id) == ("v2", "ok", "k")
    assert message("v2.DecryptResponse").FromString(block(1, b"\xff")).plaintext == b"\xff"


@pytest.mark.parametrize("method", [V1_VERSION, V1_DECRYPT, V2_STATUS, V2_DECRYPT], ids=lambda m: m.path)
def test_a_method_belongs_to_the_package_of_its_messages(method: ReadMethod) -> None:
    package, name = method.request.removesuffix("Request").split(".")
    assert method.path == f"/{package}.KeyManagementService/{name}"
    assert method.response == f"{package}.{name}Response"
    assert message(method.request)().SerializeToString() == b""
    assert message(method.response)().SerializeToString() == b""


@pytest.mark.parametrize("name", ["v1beta1.EncryptRequest", "v2.EncryptRequest"])
def test_nothing_can_be_encrypted(name: str) -> None:
    with pytest.raises(KeyError):
        message(name)
