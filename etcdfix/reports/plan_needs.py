"""The flags that a deletion of a plan asks for beyond its command, which leaves them to be typed by a person."""

from __future__ import annotations

from typing import Final

from etcdfix.reports.safetext import quote_command

ACCEPT_RISK: Final = "--accept-risk cluster-breaking"
DECLARE_KEY_LOST: Final = "--declare-key-lost"


def declaration(transformer: str, kms_key_id_sha256: str) -> str:
    """Return the flag that declares a key lost, as a deletion under it takes it.

    Under KMS it names the key id too: other key ids of the same provider may well answer.
    """
    key = f"{transformer}/{kms_key_id_sha256}" if kms_key_id_sha256 else transformer
    return quote_command([DECLARE_KEY_LOST, key])


def meaning(flag: str) -> str:
    """Return what somebody says who types a flag."""
    if flag == ACCEPT_RISK:
        return "the cluster itself may stand on it, and you go on all the same"
    return "its key is gone for ever, and you are certain of that"
