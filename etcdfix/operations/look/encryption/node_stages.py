"""What the servers of k3s and RKE2 say on their Nodes of the EncryptionConfiguration that they run with.

Source: k3s ``pkg/secretsencrypt/config.go``; the annotation begins with the name of the program.
"""

from __future__ import annotations

from typing import Final

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.encryption.bootstrap import Stage
from etcdfix.errors import DecodeError
from etcdfix.examine import Examiner
from etcdfix.report.recover import NodeConfiguration
from etcdfix.sources.base import Source
from etcdfix.storagekey import display

ANNOTATIONS: Final = ("k3s.io/encryption-config-hash", "rke2.io/encryption-config-hash")


def read_node_stages(source: Source, examiner: Examiner) -> tuple[list[NodeConfiguration], int]:
    """Return what the annotation of each stored Node says, and how many Nodes could not be read.

    Raises:
        SourceError: The source was lost.
    """
    reader = ObjectReader(examiner.decoder)
    prefix = examiner.layout.prefix_bytes + b"minions/"
    found: list[NodeConfiguration] = []
    unread = 0
    for stored in source.current(prefix):
        plaintext = examiner.plaintext(examiner.examine(stored))
        try:
            node = reader.builtin(plaintext, "", "Node").value if plaintext is not None else None
        except DecodeError:
            node = None
        if node is None:
            unread += 1
            continue
        annotations = (node.get("metadata") or {}).get("annotations") or {}
        for name in ANNOTATIONS:
            stage = Stage.parse(str(annotations.get(name) or "").encode(errors="replace"))
            if stage is not None:
                found.append(
                    NodeConfiguration(display(stored.key.removeprefix(prefix)), stage.name, stage.sha256)
                )
    return found, unread
