"""Which EncryptionConfiguration an API server has loaded, by the digest of the file in its own metrics.

Format:
    ``k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics``: SHA-256 of the bytes of the file. Recorded with
    kube-apiserver 1.36.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from etcdfix.apiserver.client import NoReply, Server

_LONGEST: Final = 64 << 20
"""In bytes: metrics of a large cluster take several million."""

_INFO: Final = re.compile(
    rb'^apiserver_encryption_config_controller_last_config_info\{(?:[^}\n]*,)?hash="(sha256:[0-9a-f]{64})"',
    re.MULTILINE,
)


class Loaded(NamedTuple):
    """What a server says of its configuration; the digest is "" where it says nothing, or no one thing."""

    sha256: str


def loaded_configuration(server: Server) -> Loaded:
    """Return the digest of the file that a server has loaded; its user may not be allowed to ask."""
    reply = server.send("GET", "/metrics", accept="text/plain", longest=_LONGEST)
    if isinstance(reply, NoReply) or reply.status != 200:
        return Loaded("")
    digests = set(_INFO.findall(reply.body or b""))
    return Loaded(digests.pop().decode() if len(digests) == 1 else "")
