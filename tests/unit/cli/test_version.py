from __future__ import annotations

from etcdfix import __version__
from etcdfix.cli.root import run
from tests.support.fixtures import Captured


def test_what_it_says(capfd: Captured, no_variables: None) -> None:
    assert run(["version"]) == 0
    first, _python, *knows = capfd.readouterr().out.splitlines()
    assert first == f"etcdfix {__version__}"
    assert knows == ["Kubernetes: knows 1.17 to 1.37", "reports: writes and reads etcdfix/v1"]
