"""Where the data is and how to read it: flags, variables and the manifest put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from etcdfix.cli.inputs import gather_inputs
from etcdfix.cli.options import jobs_option, reading_options, source_options
from etcdfix.cli.root import run
from etcdfix.commands.opening import Inputs
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.scope import ScopeRequest
from etcdfix.text.commands import RunOptions, scan
from tests.support.distributions import k3s, k3s_sqlite, kubeadm, pod, rke2, write
from tests.support.fixtures import Captured, Patch
from tests.unit.cli.test_variables import CHANGING, COMMANDS, NEEDED, context_of

pytestmark = pytest.mark.usefixtures("no_variables")


EVERYTHING = ScopeRequest()
MANIFEST = """
spec:
  containers:
  - name: kube-apiserver
    image: registry.k8s.io/kube-apiserver:v1.30.3
    command:
    - kube-apiserver
    - --etcd-servers=https://10.0.0.1:2379,https://10.0.0.2:2379
    - --etcd-servers-overrides=/events#https://10.0.0.9:2379
    - --etcd-cafile=/pki/ca.crt
    - --etcd-certfile=/pki/client.crt
    - --etcd-keyfile=/pki/client.key
    - --etcd-prefix=/kubernetes.io
    - --encryption-provider-config=/enc/config.yaml
"""


def gather(*arguments: str, scope: ScopeRequest = EVERYTHING, env: dict[str, str] | None = None) -> Inputs:
    """Return what a command with the shared options makes of a command line."""
    seen: list[Inputs] = []

    @click.command()
    @source_options
    @reading_options
    def probe(**options: Any) -> None:
        seen.append(gather_inputs(options, scope))

    result = CliRunner().invoke(probe, list(arguments), env=env or {}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen[0]


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "kube-apiserver.yaml"
    path.write_text(MANIFEST)
    return str(path)


def test_a_password_is_not_in_the_repr() -> None:
    assert "letmein" not in repr(gather("--password", "letmein", "--user", "root:letmein"))


def test_other_variables_and_flags_win() -> None:
    env = {
        "ETCDFIX_SNAPSHOT": "s.db", "ETCDFIX_ETCD_PREFIX": "/x", "ETCDFIX_REVISION": "5",
        "ETCDFIX_ENCRYPTION_CONFIG": "e.yaml", "ETCDFIX_KUBERNETES_VERSION": "1.31",
    }  # fmt: skip
    inputs = gather(env=env)
    assert inputs.snapshot == Path("s.db")
    assert (inputs.etcd_prefix, inputs.revision, inputs.kubernetes_minor) == ("/x", 5, 31)
    assert inputs.encryption_config == Path("e.yaml")
    inputs = gather("--etcd-prefix", "/y", "--kubernetes-version", "1.20", env=env)
    assert (inputs.etcd_prefix, inputs.kubernetes_minor) == ("/y", 20)


def test_flags_win_over_the_manifest(manifest: str) -> None:
    inputs = gather(
        "--manifest", manifest, "--endpoints", "a:1", "--cacert", "ca", "--etcd-prefix", "/x",
        "--encryption-config", "e.yaml", "--kubernetes-version", "1.36",
    )  # fmt: skip
    assert inputs.connection["endpoints"] == "a:1"
    assert inputs.connection["cacert"] == "ca"
    assert inputs.connection["cert"] == "/pki/client.crt"
    assert (inputs.etcd_prefix, inputs.kubernetes_minor) == ("/x", 36)
    assert inputs.encryption_config == Path("e.yaml")
    assert inputs.notices == ()


@pytest.mark.parametrize(
    "scope",
    [
        ScopeRequest(("ev/web", "events")),
        ScopeRequest(("/kubernetes.io/events",)),
        ScopeRequest(("/kubernetes.io/events/shop/web", "events"), (b"/kubernetes.io/events/x/\xff",)),
    ],
)
def test_the_etcd_of_what_is_named_is_asked_however_it_is_named(manifest: str, scope: ScopeRequest) -> None:
    assert gather("--manifest", manifest, scope=scope).connection["endpoints"] == "https://10.0.0.9:2379"
    assert gather("--manifest", manifest, "--endpoints", "a:1", scope=scope).connection["endpoints"] == "a:1"
    inputs = gather("--manifest", manifest, scope=ScopeRequest(("po", "secrets")))
    assert inputs.connection["endpoints"] == "https://10.0.0.1:2379,https://10.0.0.2:2379"
    assert "(https://10.0.0.9:2379)" in inputs.notices[0]


@pytest.mark.parametrize(
    "scope",
    [
        ScopeRequest(("po", "events")),
        ScopeRequest(("events",), (b"/kubernetes.io/pods/shop/web",)),
        ScopeRequest(keys=(b"/kubernetes.io/pods/shop/web", b"/kubernetes.io/events/shop/web")),
    ],
)
def test_two_etcds_at_once_are_refused(manifest: str, scope: ScopeRequest) -> None:
    with pytest.raises(ConfigurationError, match=r"pods .*events|events and pods") as refused:
        gather("--manifest", manifest, scope=scope)
    assert "one command for each etcd" in refused.value.hint
    # A file has all of them, and so has an etcd that was named.
    assert gather("--manifest", manifest, "--snapshot", "s.db", scope=scope).snapshot == Path("s.db")
    assert gather("--manifest", manifest, "--endpoints", "a:1", scope=scope).connection["endpoints"] == "a:1"


@pytest.mark.parametrize("option", ["--endpoints", "--cacert", "--cert", "--key", "--user"])
def test_two_sources_are_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"--snapshot and {option} name two different sources"):
        gather("--snapshot", "s.db", option, "x")


def test_a_command_for_later_repeats_the_snapshot_and_how_it_was_read() -> None:
    inputs = gather(
        "--snapshot", "s.db", "--revision", "7", "--etcd-prefix", "/x", "--encryption-config", "e.yaml",
        "--kubernetes-version", "v1.30.3",
    )  # fmt: skip
    assert inputs.run_options() == RunOptions(
        source=("--snapshot", "s.db", "--revision", "7"),
        layout=("--etcd-prefix", "/x"),
        reading=("--encryption-config", "e.yaml", "--kubernetes-version", "1.30"),
    )


def test_a_command_for_later_repeats_the_connection_and_never_a_password() -> None:
    inputs = gather(
        "--endpoints", "a:1,b:2", "--cacert", "ca", "--cert", "c", "--key", "k", "--user", "root:letmein",
        "--password", "letmein-too", "--insecure-skip-tls-verify",
    )  # fmt: skip
    again = inputs.run_options()
    assert again.source == (
        "--endpoints", "a:1,b:2", "--cacert", "ca", "--cert", "c", "--key", "k", "--user", "root",
        "--insecure-skip-tls-verify",
    )  # fmt: skip
    assert (again.layout, again.reading) == ((), ())
    assert "letmein" not in scan("secrets").line(again)


def test_jobs() -> None:
    @click.command
    @jobs_option
    def command(jobs: object) -> object:
        return jobs

    for words, jobs in (([], "auto"), (["--jobs", "auto"], "auto"), (["--jobs", "64"], 64)):
        assert command.main(words, standalone_mode=False) == jobs
    for word in ("0", "65", "-1", "2.0", "Auto", "", "٣", " 2", "\udcff"):
        with pytest.raises(ConfigurationError, match=r"^--jobs '.*' is no number of processes"):
            command.main(["--jobs", word], standalone_mode=False)


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
