"""What tests must not see of the machine that they run on; its places are in ``etcdfix.inputs.machine``."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

FOR_TESTS: Final = (
    "ETCDFIX_BENCH_", "ETCDFIX_EXAM_", "ETCDFIX_GOLDEN_DIR", "ETCDFIX_REQUIRE_", "ETCDFIX_TEST_",
    "ETCDFIX_UPDATE_SNAPSHOTS",
)  # fmt: skip
"""How the variables begin that the tests themselves read."""

_NOWHERE: Final = "/nonexistent"


def forget_machine(environ: MutableMapping[str, str]) -> None:
    """Take away the variables of etcd, etcdctl and etcdfix, and the time zone."""
    for name in list(environ):
        if name.startswith("ETCD") and not name.startswith(FOR_TESTS):
            del environ[name]
    environ.update(KUBECONFIG=f"{_NOWHERE}/kubeconfig", TZ="UTC", XDG_STATE_HOME=_NOWHERE)
