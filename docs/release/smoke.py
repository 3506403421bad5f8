"""See that an installed etcdfix does its main work: ``python docs/release/smoke.py COMMAND``.

COMMAND is what is installed: ``ENVIRONMENT/bin/etcdfix``, or the executable of an archive. It is called with HOME and
PATH only, in an empty folder, on the damaged snapshot in ``fixtures/``. Ends with 1 at the first thing that is wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from checkout import ROOT, version

_ALPHA: Final = ROOT / "fixtures/snapshots/alpha"
_SOURCE: Final = (
    "--snapshot", str(_ALPHA / "snapshot.db.gz"), "--encryption-config", str(_ALPHA / "config-lost.yaml"),
)  # fmt: skip
_NOBODY: Final = "http://127.0.0.1:1"
_KUBECONFIG: Final = """apiVersion: v1
kind: Config
current-context: smoke
clusters: [{name: smoke, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: smoke, user: {token: none}}]
contexts: [{name: smoke, context: {cluster: smoke, user: smoke}}]
"""


class NotAsItHasToBeError(Exception):
    """What was run, and what came of it."""


def smoke(command: str, folder: Path) -> None:
    """Run everything in an empty folder.

    Raises:
        NotAsItHasToBeError: Something else came of it.
    """

    def run(*words: str, ends: int = 0, says: str = "") -> str:
        done = subprocess.run(
            [command, *words], cwd=folder, check=False, capture_output=True, text=True,
            env={"HOME": str(folder), "PATH": os.defpath},
        )  # fmt: skip
        if done.returncode != ends or says not in done.stdout + done.stderr:
            told = f"{command} {' '.join(words)}: exit code {done.returncode}, not {ends} with {says!r}"
            raise NotAsItHasToBeError(f"{told}\n{done.stdout}{done.stderr}")
        return done.stdout

    _is_this_version(run)
    # 3: some values need a KMS plugin that is not there, as the README says of the same scan.
    run("scan", *_SOURCE, "-o", "json", "--output-file", "report.json", ends=3)
    found = json.loads((folder / "report.json").read_text())["summary"]
    if not all(found[count] for count in ("readable", "decrypt_failures", "decode_failures", "inconsistent")):
        raise NotAsItHasToBeError(f"scan: found {found}")
    run("report", "render", "report.json", "-o", "html", "--output-file", "report.html", ends=3)
    run("report", "render", "report.json", ends=3, says="DO NOT RESTART AN API SERVER")
    run("get", *_SOURCE, "/registry/pods/shop/dep-0-abc-0", says="kind: Pod")
    run("explain", *_SOURCE, "/registry/configmaps/infra/cm-4", ends=1, says="ciphertext-damaged")
    run("explain", "wrong-key", says="Outcome: `decrypt-failure`")  # a page of docs/causes
    run("completion", "bash", says="complete ")
    run("scan", "--endpoints", _NOBODY, "--no-encryption", ends=5, says="nobody listens there")
    (folder / "kubeconfig").write_text(_KUBECONFIG)  # kubernetes, the extra
    run(
        "doctor",
        "--endpoints",
        _NOBODY,
        "--kubeconfig",
        "kubeconfig",
        ends=1,
        says="no connection comes about",
    )


def _is_this_version(run: Callable[..., str]) -> None:
    told = json.loads(run("version", "-o", "json"))
    if told["tool"]["version"] != version() or not all(told["dependencies"].values()):
        raise NotAsItHasToBeError(f"version: this is {told}, not {version()} with all that it needs")


def main() -> None:
    """Say that all is well, or what is not."""
    command = shutil.which(sys.argv[1])
    if command is None:
        sys.exit(f"{sys.argv[1]}: no such program")
    with tempfile.TemporaryDirectory() as folder:
        try:
            smoke(str(Path(command).absolute()), Path(folder))
        except NotAsItHasToBeError as exc:
            sys.exit(str(exc))
    sys.stdout.write(f"etcdfix {version()} does its main work\n")


if __name__ == "__main__":
    main()
