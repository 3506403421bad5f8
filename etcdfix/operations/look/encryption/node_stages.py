"""What the servers of k3s and RKE2 say on their Nodes of the EncryptionConfiguration that they run with.

Source: k3s ``pkg/secretsencrypt/config.go``; the annotation begins with the name of the program.
"""

from __future__ import annotations

from typing import Final

import msgspec

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.encryption.bootstrap import Stage
from etcdfix.errors import DecodeError
from etcdfix.examine import Examiner
from etcdfix.sources.base import Source
from etcdfix.storagekey import display

ANNOTATIONS: Final = ("k3s.io/encryption-config-hash", "rke2.io/encryption-config-hash")
_NODES: Final = b"minions/"


class NodeStage(msgspec.Struct, frozen=True):
    """What one Node says.

    Attributes:
        node: Its name, which anybody may have chosen.
        stage: With the hash.
    """

    node: str
    stage: Stage


class NodeStages(msgspec.Struct, frozen=True):
    """What all Nodes say.

    Attributes:
        stages: Of those that say anything, in the order of their names.
        unread: How many could not be read.
    """

    stages: tuple[NodeStage, ...]
    unread: int

    @property
    def naming(self) -> list[NodeStage]:
        """Those that name a file."""
        return [one for one in self.stages if one.stage.names_a_file]


def read_node_stages(source: Source, examiner: Examiner) -> NodeStages:
    """Read the annotation of every stored Node.

    Raises:
        SourceError: The source was lost.
    """
    reader = ObjectReader(examiner.decoder)
    prefix = examiner.layout.prefix_bytes + _NODES
    found: list[NodeStage] = []
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
                found.append(NodeStage(display(stored.key.removeprefix(prefix)), stage))
    return NodeStages(tuple(found), unread)
