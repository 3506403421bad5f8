"""Run the command line as ``python -m etcdfix``."""

from __future__ import annotations

from etcdfix.cli.root import main

if __name__ == "__main__":
    main()
