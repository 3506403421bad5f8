"""The runbook "k3s, RKE2: the encryption configuration is lost", from top to bottom as it stands there."""

from __future__ import annotations

import json
import re
import stat
import sys
from pathlib import Path

import pytest

from tests.support.fixtures import Captured, StartEtcd
from tests.support.k3s_cluster import NEVER_SHOWN, NEW, NEW_KEY, NEW_NAME, OLD, OLD_KEY, OLD_NAME, K3s
from tests.support.runbooks import Shell, commands_of

pytestmark = pytest.mark.etcd

# What yq does with this expression.
YQ = f"""#!{sys.executable}
import json, sys, yaml
assert sys.argv[1:4] == ["-o", "json", "."]
document = yaml.safe_load(open(sys.argv[4]))
print(json.dumps(document))
"""


def test_each_command_does_what_the_page_says(start_etcd: StartEtcd, tmp_path: Path, capfd: Captured) -> None:
    k3s = K3s(start_etcd(), tmp_path, capfd)
    k3s.keep(OLD)
    k3s.keep(NEW, stage="reencrypt_finished")
    for number in range(3):
        k3s.secret(f"old-{number}", OLD_KEY, OLD_NAME)
        k3s.secret(f"new-{number}", NEW_KEY, NEW_NAME)
    k3s.node("server-1", NEW, "reencrypt_finished")
    k3s.snapshot().rename(tmp_path / "snapshot.db")
    run = Shell(tmp_path, {}, XDG_STATE_HOME=str(tmp_path / "state")).run
    yq = tmp_path / "bin" / "yq"
    yq.write_text(YQ)
    yq.chmod(0o755)
    said: dict[str, str] = {}
    for line in commands_of("k3s-configuration-lost.md"):
        if "NEWEST.yaml" in line:
            # The names, as the command before offers them.
            offered = re.search(r"encryption merge (\S+ \S+) --output-file", "".join(said.values()))
            assert offered is not None
            line = line.replace("recovered/NEWEST.yaml recovered/OLDER.yaml", offered[1])
        if line.startswith("rm "):
            written = [*tmp_path.glob("recovered/*"), tmp_path / "encryption-config.json"]
            served = json.loads((tmp_path / "encryption-config.json").read_text())
            writing = served["resources"][0]["providers"][0]["aescbc"]["keys"][0]["name"]
            assert writing == NEW_NAME, "another key would write than the one that the servers had last"
            assert [stat.S_IMODE(path.stat().st_mode) for path in written] == [0o600] * 3
        log = " --audit-log audit.jsonl" if "--save-dir" in line or " merge " in line else ""
        said[line] = run(line + log)
        assert not any(hidden in said[line] for hidden in NEVER_SHOWN)
    told = "\n".join(said.values())
    assert "RECOVERED 2 EncryptionConfigurations: opening 6 of 6 values that are encrypted" in told
    assert re.search(r"recovered-1 .* 1 of 1 ", told)
    assert "No value becomes unreadable" in told
    assert not list(tmp_path.glob("recovered*"))
