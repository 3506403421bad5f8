"""Say what differs between a commit and the working tree: ``python -m tests.oracle COMMIT [GROUP...]``.

Verdicts and forecasts are compared, key by key; words and advice are not. Needs the golden data
(``ETCDFIX_GOLDEN_DIR``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from tests.oracle.reading import GROUPS
from tests.oracle.trees import Tree, unpack
from tests.support.collecting import REPOSITORY


def main() -> int:
    """Compare; return 1 where anything differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracle", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("commit", help="what the working tree is compared with")
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare with this commit instead of the working tree"
    )
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="only every Nth case")
    parser.add_argument(
        "--all", action="store_true", help="print every difference, not the first of each field"
    )
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etcdfix-oracle-")))
        old = unpack(given.commit, folder / "old")
        new = unpack(given.against, folder / "new") if given.against else REPOSITORY
        trees = (
            stack.enter_context(closing(Tree(old, folder / "home-old"))),
            stack.enter_context(closing(Tree(new, folder / "home-new"))),
        )
        different = False
        for name in given.groups or GROUPS:
            begun = time.monotonic()
            place = folder / name
            place.mkdir()
            group = GROUPS[name](trees, place, given.sample)
            print(group.report(every=given.all), f"({time.monotonic() - begun:.0f} s)", flush=True)
            different |= bool(group.differences)
    return int(different)


if __name__ == "__main__":
    sys.exit(main())
