"""Runs commands of the tree that is on PYTHONPATH: each line of standard input is a list of arguments.

Everything is imported once, and each command runs in a child of its own: a command costs what it does, not its start.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer each list of arguments with exit code, standard output and standard error."""
    import etcdfix

    for module in pkgutil.walk_packages(etcdfix.__path__, "etcdfix."):
        if not module.name.startswith(("etcdfix.testing", "etcdfix.__main__")):
            with contextlib.suppress(ImportError):  # of packages that are not installed
                importlib.import_module(module.name)
    _say({"package": str(Path(etcdfix.__file__).parent)})
    for line in sys.stdin:
        _say(_run(json.loads(line)))


def _run(arguments: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            _become(arguments)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"code": os.waitstatus_to_exitcode(status), "out": texts[0], "err": texts[1]}


def _become(arguments: list[str]) -> None:
    from etcdfix.__main__ import main as etcdfix_main

    sys.argv = ["etcdfix", *arguments]
    code: object = 1
    try:
        etcdfix_main()
    except SystemExit as exc:
        code = exc.code
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
