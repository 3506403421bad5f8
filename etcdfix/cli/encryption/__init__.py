"""``etcdfix encryption``: what encryption keys are needed for, and what a configuration would do."""

from __future__ import annotations

import click

from etcdfix.cli.lazy_group import Commands, LazyGroup

_HERE = "etcdfix.cli.encryption"

COMMANDS: Commands = {
    "usage": (
        f"{_HERE}.usage",
        "Say which encryption key is needed by how many objects, and which is safe to remove.",
    ),
    "try": (
        f"{_HERE}.try_",
        "Say which candidate opens which of the values that cannot be read.",
    ),
    "what-if": (
        f"{_HERE}.what_if",
        "Say what another configuration would make unreadable, before it is deployed.",
    ),
    "check": (f"{_HERE}.check", "Check EncryptionConfigurations, and compare several."),
    "merge": (f"{_HERE}.merge", "Join several EncryptionConfigurations to one that reads what any reads."),
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
    """Say which encryption keys are needed, and what a change of the configuration would do.

    Nothing here changes anything in etcd.
    """
