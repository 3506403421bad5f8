"""``etcdfix encryption``: what encryption keys are needed for, and what a configuration would do."""

from __future__ import annotations

import click

from etcdfix.cli.lazy_group import Commands, LazyGroup

_HERE = "etcdfix.cli.encryption"

COMMANDS: Commands = {
    "usage": (
        f"{_HERE}.usage",
        "Show which encryption key is needed by how many objects, and which you can remove.",
    ),
    "try": (
        f"{_HERE}.try_",
        "Show which candidate opens which of the values that cannot be read.",
    ),
    "what-if": (
        f"{_HERE}.what_if",
        "Show what another configuration would make unreadable, before you deploy it.",
    ),
    "check": (f"{_HERE}.check", "Check EncryptionConfigurations, and compare several."),
    "merge": (f"{_HERE}.merge", "Merge EncryptionConfigurations into one that reads what any of them reads."),
    "recover": (
        f"{_HERE}.recover",
        "Recover a lost EncryptionConfiguration from the datastore of k3s or RKE2.",
    ),
}


@click.group(
    "encryption",
    cls=LazyGroup,
    commands_at=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def command() -> None:
    """Check encryption keys and EncryptionConfigurations, before and after a key is lost.

    Nothing here changes anything in etcd.
    """
