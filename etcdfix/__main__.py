"""Start the command line: ``python -m etcdfix``, and the programs that are installed."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    _end_without_a_word()
    from etcdfix.cli import root  # noqa: PLC0415 - after Ctrl-C has been seen to

    _raise_again()
    root.main()


def _end_without_a_word() -> None:
    """Have Ctrl-C end what has only begun to import, with no traceback; who ignores it, as nohup does, goes on so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _raise_again() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    main()
