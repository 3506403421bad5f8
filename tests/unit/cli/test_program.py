"""How the program is started and interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("ignored", [False, True])
def test_an_interruption_while_it_starts_has_no_traceback(tmp_path: Path, *, ignored: bool) -> None:
    """Ctrl-C before the first line of ours runs: nothing is said, and a shell sees 130. Under nohup it goes on."""
    begun = tmp_path / "begun"
    slow = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep({'0.2' if ignored else '60'})"
    (tmp_path / "msgspec.py").write_text(f"{slow}\nraise SystemExit(7)\n")
    handler = "signal.SIG_IGN" if ignored else "signal.default_int_handler"
    code = (
        f"import signal; signal.signal(signal.SIGINT, {handler}); from etcdfix.__main__ import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not begun.exists():
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (7 if ignored else -signal.SIGINT, "")


def test_it_can_be_interrupted_once_it_has_started() -> None:
    code = (
        "import os, signal; from etcdfix import __main__; from etcdfix.cli import root\n"
        "root.main = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        "try: __main__.main()\n"
        "except KeyboardInterrupt: print('as Python does it')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("as Python does it\n", "")
