"""The flags that a deletion of a plan asks for beyond its command, which leaves them to be typed by a person."""

from __future__ import annotations

from typing import Final

from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.deletability import AcceptRisk

DECLARE_KEY_LOST: Final = "--declare-key-lost"


def declaration(transformer: str, kms_key_id_sha256: str) -> str:
    """Return the flag that declares a key lost, as a deletion under it takes it.

    Under KMS it names the key id too: other key ids of the same provider may well answer.
    """
    key = f"{transformer}/{kms_key_id_sha256}" if kms_key_id_sha256 else transformer
    return quote_command([DECLARE_KEY_LOST, key])


def acceptance(risk: AcceptRisk) -> str:
    """Return the flag that accepts a risk."""
    return quote_command(["--accept-risk", risk.value])


_MEANINGS: Final = {
    acceptance(AcceptRisk.CLUSTER_BREAKING): "the cluster itself may stand on it, and you go on all the same",
    acceptance(AcceptRisk.UNPROVEN_DAMAGE): "its damage is likely and not proven, and you go on all the same",
    acceptance(AcceptRisk.NEWER_THAN_KNOWN): "a newer release may read it, and you know that yours does not",
    acceptance(AcceptRisk.MASS_DAMAGE): "something damages values in numbers, and you know what",
    acceptance(AcceptRisk.ONLY_COPY): "this state of the object is nowhere else, and you can do without it",
}

_LOST: Final = (
    "its key is gone for ever, and you are certain of that; with --kubeconfig, so that an API server can contradict, "
    "or --accept-no-api-server"
)


def meaning(flag: str) -> str:
    """Return what somebody says who types a flag."""
    return _MEANINGS.get(flag, _LOST)
