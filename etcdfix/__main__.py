"""Start the command line: ``python -m etcdfix``, and the programs that are installed."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; an older Python can read this module, and says in one line what is needed."""
    if sys.version_info < (3, 11):  # noqa: UP036 - pip refuses an older one, a zipapp is started with any
        found = ".".join(str(number) for number in sys.version_info[:3])
        sys.exit(
            f"etcdfix: needs Python 3.11 or newer, and this is Python {found}; docs/install.md has other ways"
        )
    _end_without_a_word()
    try:
        from etcdfix.cli import root  # noqa: PLC0415 - after Ctrl-C has been seen to
    except ImportError as error:
        name = error.name or "?"
        if name.startswith("etcdfix"):
            raise
        found = f"{sys.version_info[0]}.{sys.version_info[1]}"
        sys.exit(
            f"etcdfix: {name} cannot be loaded; was this installation made for another Python than {found}?"
        )

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
