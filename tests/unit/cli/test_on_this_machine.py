"""What is found on a machine is read only by commands that look, and only where nobody names anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.cli.inputs import gather_inputs
from etcdfix.cli.root import run
from etcdfix.commands.opening import Inputs
from tests.support.distributions import k3s, k3s_sqlite, kubeadm, pod, rke2, write
from tests.support.fixtures import Captured, Patch
from tests.unit.cli.test_variables import CHANGING, COMMANDS, NEEDED, context_of

pytestmark = pytest.mark.usefixtures("no_variables")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setattr("etcdfix.inputs.machine.ROOT", tmp_path)
    return tmp_path


def look(*words: str, command: str = "scan") -> Inputs:
    with COMMANDS[command].make_context(command, list(words)) as context:
        return gather_inputs(context.params)


def test_kubeadm_is_read_by_its_manifest_and_said(root: Path, capfd: Captured) -> None:
    kubeadm(root)
    inputs = look()
    manifest = root / "etc/kubernetes/manifests/kube-apiserver.yaml"
    assert inputs.connection["endpoints"] == "https://127.0.0.1:2379"
    assert inputs.connection["cacert"] == "/etc/kubernetes/pki/etcd/ca.crt"
    assert inputs.encryption_config == Path("/srv/enc/enc.yaml")  # not where the container has it
    assert (inputs.manifest, inputs.kubernetes_minor) == (manifest, 34)
    assert capfd.readouterr().err == f"etcdfix: kubeadm found by {manifest}: reading --manifest {manifest}\n"


def test_k3s_on_sqlite_is_read_by_its_file(root: Path, capfd: Captured) -> None:
    k3s_sqlite(root)
    inputs = look(command="doctor")
    assert inputs.file == inputs.kine == root / "var/lib/rancher/k3s/server/db/state.db"
    assert "k3s found by " in capfd.readouterr().err


def test_what_is_named_beside_it_wins(root: Path) -> None:
    k3s(root)
    inputs = look("--encryption-config", "/e", "--etcd-prefix", "/p")
    assert (inputs.encryption_config, inputs.etcd_prefix) == (Path("/e"), "/p")
    assert inputs.connection["key_file"] == str(root / "var/lib/rancher/k3s/server/tls/etcd/client.key")


NAMED = ["--endpoints a:1", "--snapshot /s", "--kine /k", "--manifest {manifest}", "--cacert /c"]


@pytest.mark.parametrize("words", NAMED)
def test_nothing_is_looked_for_where_something_is_named(words: str, root: Path, capfd: Captured) -> None:
    kubeadm(root)
    k3s(root)  # or else: two fit
    look(*words.format(manifest=root / "etc/kubernetes/manifests/kube-apiserver.yaml").split())
    assert "found by" not in capfd.readouterr().err


@pytest.mark.parametrize("variable", ["ETCDFIX_SNAPSHOT", "ETCDFIX_KINE", "ETCDCTL_ENDPOINTS"])
def test_nor_where_a_variable_names_something(
    variable: str, root: Path, monkeypatch: Patch, capfd: Captured
) -> None:
    kubeadm(root)
    monkeypatch.setenv(variable, "/x")
    look()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", sorted(CHANGING - {"log prune"}))
def test_a_change_rests_on_nothing_that_was_only_found(name: str, root: Path, capfd: Captured) -> None:
    for make in (kubeadm, rke2):
        make(root)
    assert name in NEEDED
    with context_of(name) as context:
        inputs = gather_inputs(context.params)
    assert {value for key, value in inputs.connection.items() if key != "insecure_skip_tls_verify"} == {None}
    assert (inputs.manifest, inputs.kine, inputs.encryption_config) == (None, None, None)
    assert capfd.readouterr().err == ""


def test_two_that_fit_are_refused_with_both(root: Path, capfd: Captured) -> None:
    k3s(root)
    kubeadm(root)
    assert run(["scan"]) == 2
    (refusal,) = capfd.readouterr().err.splitlines()
    assert refusal.startswith("etcdfix: both ")
    assert "k3s (" in refusal
    assert "kubeadm (" in refusal


@pytest.mark.parametrize(
    "words", [("--etcd-servers-overrides", "/events#http://own:1"), ("--user", "root:password")]
)
def test_what_says_anything_of_a_live_etcd_stands_against_what_is_found(
    root: Path, words: tuple[str, ...]
) -> None:
    k3s_sqlite(root)
    assert look(*words).kine is None


@pytest.mark.parametrize(
    "words", [["scan"], ["doctor"], ["namespace", "shop"], ["encryption", "usage"], ["get", "pods"]]
)
def test_a_manifest_that_names_no_etcd_is_never_replaced_by_a_default(
    root: Path, words: list[str], capfd: Captured
) -> None:
    """Neither where it was found nor where it was named."""
    manifest = write(root, "etc/kubernetes/manifests/kube-apiserver.yaml", pod("--etcd-prefix=/other"))
    for named in ([], ["--manifest", str(manifest)]):
        assert run([*words, *named]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert f"{manifest}: no --etcd-servers" in err
        assert "--endpoints" in err.splitlines()[-1]
