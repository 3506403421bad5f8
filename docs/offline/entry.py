"""What the executable runs, by the name that it was started under.

The start program of PyInstaller puts the folder's own libraries in front of the system's, by a variable. Programs that
are started from here, such as the plugin of a kubeconfig, must not inherit that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from etcdfix.workers.frozen import work_if_asked


def main() -> None:
    """Run etcdfix, its plugin of kubectl, the completion of that, or a worker of a scan."""
    _give_back_the_environment()
    run: Callable[[], None]
    work_if_asked()
    if Path(sys.argv[0]).name == "kubectl-etcdfix":
        from etcdfix.cli.root import main_of_plugin as run  # noqa: PLC0415 - only what is asked for is imported
    elif Path(sys.argv[0]).name == "kubectl_complete-etcdfix":
        from etcdfix.cli.kubectl_completion import main as run  # noqa: PLC0415 - likewise
    else:
        from etcdfix.cli.root import main as run  # noqa: PLC0415 - likewise
    run()


def _give_back_the_environment() -> None:
    """Put variables back to what they were before the start program; the loader has read them already."""
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    for name in [name for name in os.environ if name.startswith("_PYI_")]:
        del os.environ[name]


main()
