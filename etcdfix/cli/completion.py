"""``etcdfix completion``: the script that has a shell complete what is typed."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from etcdfix.cli.command import Command
from etcdfix.cli.output import require_output

_VARIABLE = "_ETCDFIX_COMPLETE"  # click's own: it answers the shell when this is set


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(*, shell: str) -> int:
    """Print the script that has a shell complete commands, options and the words that an option takes.

    \b
    bash:  eval "$(etcdfix completion bash)"     in ~/.bashrc
    zsh:   eval "$(etcdfix completion zsh)"      in ~/.zshrc, after compinit
    fish:  etcdfix completion fish > ~/.config/fish/completions/etcdfix.fish
    """  # noqa: D301 - the mark of click is the character itself
    require_output()
    found = get_completion_class(shell)
    assert found is not None  # click has these three
    click.echo(found(click.get_current_context().find_root().command, {}, "etcdfix", _VARIABLE).source())
    return 0
