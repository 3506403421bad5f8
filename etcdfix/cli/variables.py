"""Which options listen to environment variables, on a command that reads and on one that changes something."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from etcdfix.cli.output import say

HEEDED_BY_CHANGES: Final = frozenset(
    {
        "ETCDFIX_ENDPOINTS", "ETCDFIX_CACERT", "ETCDFIX_CERT", "ETCDFIX_KEY", "ETCDFIX_USER", "ETCDFIX_PASSWORD",
        "ETCDFIX_DIAL_TIMEOUT", "ETCDFIX_COMMAND_TIMEOUT", "ETCDFIX_TIMEOUT",
        "ETCDFIX_ENCRYPTION_CONFIG", "ETCDFIX_MANIFEST",
    }
)  # fmt: skip
"""All variables of ours that a command which changes something listens to: where etcd is, and how it is encrypted."""

_UNCHECKED: Final = "insecure_skip_tls_verify"
_UNCHECKED_OF_ETCDCTL: Final = "ETCDCTL_INSECURE_SKIP_TLS_VERIFY"


def variable_of(option: str) -> str:
    """Return the variable of a long option, ``ETCDFIX_ETCD_PREFIX`` for ``--etcd-prefix``."""
    return "ETCDFIX_" + option.removeprefix("--").replace("-", "_").upper()


class ChangingCommand(click.Command):
    """A command that changes something: what was exported once must not decide tonight.

    Of the variables of its options only :data:`HEEDED_BY_CHANGES` count. One that is set and does not is named on
    standard error. Whether TLS certificates are checked, no variable decides, etcdctl's neither.
    """

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._unheeded: set[str] = set()
        for option in self.params:
            if not isinstance(option, click.Option):
                continue
            own = {variable_of(name) for name in option.opts if name.startswith("--")}
            if own & HEEDED_BY_CHANGES:
                continue
            self._unheeded |= own
            option.envvar = None
            if option.name == _UNCHECKED:
                option.default = False  # None would ask the variable of etcdctl
                self._unheeded.add(_UNCHECKED_OF_ETCDCTL)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the variables that are set in vain, then do as any command."""
        set_in_vain = sorted(name for name in self._unheeded if os.environ.get(name))
        if set_in_vain:
            say(
                f"not heeded: {', '.join(set_in_vain)}; a command that changes something takes this from its "
                "command line alone"
            )
        return super().parse_args(ctx, args)
