"""A kine that is named as etcd: nothing is written to it, and nothing is asked of it that it would misunderstand."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.objects import namespace_object
from tests.support.scripted_etcd import ScriptedEtcd, Store

pytestmark = pytest.mark.usefixtures("no_variables")

KEY = "/registry/configmaps/shop/settings"
CHANGES = [
    ["delete", KEY, "--ignore-store-read-error-with-cluster-breaking-potential"],
    ["fix", KEY],
    ["fix", KEY, "--from", "revision:2"],
    ["fix", KEY, "--from", "candidate:none.yaml"],
]


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_what_answers_without_a_cluster_id_is_no_target(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(
        {KEY.encode(): b"broken", b"/registry/namespaces/kube-system": namespace_object("kube-system")}
    )
    places = ["--backup-dir", str(tmp_path / "backups"), "--audit-log", str(tmp_path / "audit.jsonl")]
    with ScriptedEtcd(store, cluster_id=0) as kine:
        candidate = tmp_path / "none.yaml"
        candidate.write_text(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
            "resources: [{resources: [secrets], providers: [{identity: {}}]}]\n"
        )
        words = [word.replace("none.yaml", str(candidate)) for word in words]
        config = ["--encryption-config", str(candidate)]
        code = run(
            [*words, *config, "--endpoints", kine.endpoint, "--reason", "x", "--yes", "-o", "json", *places]
        )
        asked = {call.path for call in kine.calls}
    assert code == 4
    said = capsys.readouterr()
    assert '"rule": "kine"' in said.out
    assert "is kine, not etcd" in said.out + said.err
    assert not any("Txn" in path or "Put" in path or "Delete" in path for path in asked)
    assert list(tmp_path.iterdir()) == [candidate]


def test_an_etcd_is_not_taken_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store({KEY.encode(): b"broken"})
    with ScriptedEtcd(store) as etcd:
        code = run([*CHANGES[0], "--no-encryption", "--endpoints", etcd.endpoint, "--reason", "x", "--yes"])
    assert code == 4
    assert "kine" not in capsys.readouterr().err
