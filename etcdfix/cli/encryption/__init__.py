"""``etcdfix encryption``: what encryption keys are needed for, and what a configuration would do."""

from __future__ import annotations

import click

from etcdfix.cli.lazy_group import Commands, LazyGroup

COMMANDS: Commands = {
    "Commands": {
        "usage": "Show which encryption key is needed by how many objects, and which you can remove.",
        "try": "Show which candidate opens which of the values that cannot be read.",
        "what-if": "Show what another configuration would make unreadable, before you deploy it.",
        "check": "Check EncryptionConfigurations, and compare several.",
        "merge": "Merge EncryptionConfigurations into one that reads what any of them reads.",
        "recover": "Recover a lost EncryptionConfiguration from the datastore of k3s or RKE2.",
    }
}


@click.group("encryption", cls=LazyGroup, listed=COMMANDS, package=__name__)
def command() -> None:
    """Check encryption keys and EncryptionConfigurations, before and after a key is lost.

    Nothing here changes anything in etcd.
    """
