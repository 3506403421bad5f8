"""The messages of both KMS plugin APIs, as far as reading needs them, and the paths of their methods.

Format: Kubernetes 1.36, ``k8s.io/kms/apis/v1beta1/api.proto`` and ``k8s.io/kms/apis/v2/api.proto``. Encrypt has no
message here: whoever only reads never asks a plugin to wrap a key.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from etcdfix.wire.descriptors import MessageClasses, WireField, build_pool

_FIELDS = {
    "v1beta1.VersionRequest": [WireField(1, "version", "optional", "string")],
    "v1beta1.VersionResponse": [
        WireField(1, "version", "optional", "string"),
        WireField(2, "runtime_name", "optional", "string"),
        WireField(3, "runtime_version", "optional", "string"),
    ],
    "v1beta1.DecryptRequest": [
        WireField(1, "version", "optional", "string"),
        WireField(2, "cipher", "optional", "bytes"),
    ],
    "v1beta1.DecryptResponse": [WireField(1, "plain", "optional", "bytes")],
    "v2.StatusRequest": [],
    "v2.StatusResponse": [
        WireField(1, "version", "optional", "string"),
        WireField(2, "healthz", "optional", "string"),
        WireField(3, "key_id", "optional", "string"),
    ],
    "v2.DecryptRequest": [
        WireField(1, "ciphertext", "optional", "bytes"),
        WireField(2, "uid", "optional", "string"),
        WireField(3, "key_id", "optional", "string"),
        WireField(4, "annotations", "map", "bytes", "string"),
    ],
    "v2.DecryptResponse": [WireField(1, "plaintext", "optional", "bytes")],
}


class KMSMethod(NamedTuple):
    """One call that a plugin answers.

    Attributes:
        path: Full name, as HTTP/2 sends it.
        request: Name of the request message.
        response: Name of the response message.
    """

    path: str
    request: str
    response: str


V1_VERSION = KMSMethod(
    "/v1beta1.KeyManagementService/Version", "v1beta1.VersionRequest", "v1beta1.VersionResponse"
)
V1_DECRYPT = KMSMethod(
    "/v1beta1.KeyManagementService/Decrypt", "v1beta1.DecryptRequest", "v1beta1.DecryptResponse"
)
V2_STATUS = KMSMethod("/v2.KeyManagementService/Status", "v2.StatusRequest", "v2.StatusResponse")
V2_DECRYPT = KMSMethod("/v2.KeyManagementService/Decrypt", "v2.DecryptRequest", "v2.DecryptResponse")


def message(name: str) -> Any:
    """Return the protobuf class of a message, by package and name: ``v2.DecryptRequest``.

    Raises:
        KeyError: The message is not in our table.
    """
    return _classes()[name]


@cache
def _classes() -> MessageClasses:
    return build_pool(_FIELDS, "etcdfix.kms")
