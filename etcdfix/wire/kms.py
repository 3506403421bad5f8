"""The messages of both KMS plugin APIs, as far as reading needs them, and the paths of their methods.

Format: Kubernetes 1.36, ``k8s.io/kms/apis/v1beta1/api.proto`` and ``k8s.io/kms/apis/v2/api.proto``. Encrypt has no
message here: whoever only reads never asks a plugin to wrap a key.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from etcdfix.wire.descriptors import MessageClasses, ReadMethod, build_pool, parse_table

_TABLE = """
v1beta1.VersionRequest: 1 version string
v1beta1.VersionResponse: 1 version string, 2 runtime_name string, 3 runtime_version string
v1beta1.DecryptRequest: 1 version string, 2 cipher bytes
v1beta1.DecryptResponse: 1 plain bytes
v2.StatusRequest:
v2.StatusResponse: 1 version string, 2 healthz string, 3 key_id string
v2.DecryptRequest: 1 ciphertext bytes, 2 uid string, 3 key_id string, 4 annotations string>bytes
v2.DecryptResponse: 1 plaintext bytes
"""

V1_VERSION = ReadMethod(
    "/v1beta1.KeyManagementService/Version", "v1beta1.VersionRequest", "v1beta1.VersionResponse"
)
V1_DECRYPT = ReadMethod(
    "/v1beta1.KeyManagementService/Decrypt", "v1beta1.DecryptRequest", "v1beta1.DecryptResponse"
)
V2_STATUS = ReadMethod("/v2.KeyManagementService/Status", "v2.StatusRequest", "v2.StatusResponse")
V2_DECRYPT = ReadMethod("/v2.KeyManagementService/Decrypt", "v2.DecryptRequest", "v2.DecryptResponse")


def message(name: str) -> Any:
    """Return the protobuf class of a message, by package and name: ``v2.DecryptRequest``.

    Raises:
        KeyError: The message is not in our table.
    """
    return _classes()[name]


@cache
def _classes() -> MessageClasses:
    return build_pool(parse_table(_TABLE), "etcdfix.kms")
