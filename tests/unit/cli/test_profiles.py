"""``--profile``: what a command takes from it, and that nothing of another cluster comes between."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.options import gather_inputs
from etcdfix.cli.root import run
from etcdfix.inputs.profiles import FIELDS, load_profiles
from etcdfix.operations.opening import Inputs
from etcdfix.sources.connection import connection_from_options
from tests.support.collecting import ALPHA
from tests.unit.cli.test_variables import COMMANDS, context_of, options_of

pytestmark = pytest.mark.usefixtures("no_variables")

TAKING = sorted(name for name, command in COMMANDS.items() if "--profile" in options_of(command))
PROFILES = """
profiles:
  prod:
    endpoints: [https://10.0.0.1:2379, https://10.0.0.2:2379]
    cacert: /prod/ca.crt
    encryption-config: /prod/enc.yaml
    etcd-prefix: /prod
    kms-endpoint: [vault=unix:///run/vault.sock]
    kubernetes-version: "1.34"
    cluster-name: prod-eu-1
  bare: {endpoints: [https://10.0.0.9:2379]}
  night: {snapshot: %(snapshot)s, encryption-config: %(config)s}
"""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "etcdfix"
    folder.mkdir(mode=0o700)
    path = folder / "config.yaml"
    path.write_text(PROFILES % {"snapshot": ALPHA / "snapshot.db.gz", "config": ALPHA / "config-lost.yaml"})
    path.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return path


def inputs_of(name: str, *words: str) -> Inputs:
    with context_of(name, *words) as context:
        return gather_inputs(context.params)


def reached(inputs: Inputs) -> Any:
    return connection_from_options(**inputs.connection)


def test_every_command_that_reads_a_cluster_takes_one() -> None:
    assert (
        sorted(name for name, command in COMMANDS.items() if "--endpoints" in options_of(command)) == TAKING
    )
    assert {"scan", "delete", "heal", "audit reconcile"} <= set(TAKING)


@pytest.mark.parametrize("name", ["delete", "repair", "heal", "audit reconcile"])
def test_a_change_takes_what_the_profile_says(name: str, profiles: Path) -> None:
    inputs = inputs_of(name, "--profile", "prod")
    assert reached(inputs).endpoints == ("https://10.0.0.1:2379", "https://10.0.0.2:2379")
    assert reached(inputs).cacert == "/prod/ca.crt"
    assert inputs.encryption_config == Path("/prod/enc.yaml")
    assert (inputs.etcd_prefix, inputs.kubernetes_minor, inputs.cluster_name) == ("/prod", 34, "prod-eu-1")
    assert inputs.kms_endpoints == {"vault": "unix:///run/vault.sock"}
    where = f"profile prod of {profiles}"
    assert inputs.release_source == where  # stands in the record of the change
    assert inputs.origins == (f"endpoints: {where}", f"certificates: {where}", f"configuration: {where}")


def test_the_command_line_wins(profiles: Path) -> None:
    inputs = inputs_of(
        "delete", "--profile", "prod", "--endpoints", "https://a:1", "--encryption-config", "/e"
    )
    assert reached(inputs).endpoints == ("https://a:1",)
    assert inputs.encryption_config == Path("/e")
    assert inputs.origins == (
        "endpoints: --endpoints",
        f"certificates: profile prod of {profiles}",
        "configuration: --encryption-config",
    )


VARIABLES = {
    "ETCDFIX_ENDPOINTS": "https://elsewhere:1", "ETCDFIX_CACERT": "/elsewhere/ca", "ETCDFIX_CERT": "/elsewhere/cert",
    "ETCDFIX_KEY": "/elsewhere/key", "ETCDFIX_ENCRYPTION_CONFIG": "/elsewhere/enc.yaml",
    "ETCDFIX_MANIFEST": "/elsewhere/m.yaml",
    "ETCDCTL_ENDPOINTS": "https://elsewhere:1", "ETCDCTL_CACERT": "/elsewhere/ca", "ETCDCTL_CERT": "/elsewhere/cert",
    "ETCDCTL_KEY": "/elsewhere/key",
}  # fmt: skip


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize("profile", ["prod", "bare"])
@pytest.mark.parametrize("name", ["delete", "heal"])
def test_no_variable_mixes_another_cluster_in(
    name: str, profile: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A configuration of another cluster makes values unreadable that are whole."""
    for variable, value in VARIABLES.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("ETCDFIX_DIAL_TIMEOUT", "7s")
    inputs = inputs_of(name, "--profile", profile)
    assert "elsewhere" not in repr((reached(inputs), inputs.encryption_config, inputs.origins))
    assert reached(inputs).dial_timeout_seconds == 7
    (told,) = capfd.readouterr().err.splitlines()
    assert told.startswith(f"etcdfix: not heeded: {', '.join(sorted(VARIABLES))}; ")
    assert f"profile {profile} of " in told


@pytest.mark.usefixtures("profiles")
def test_no_variable_turns_encryption_or_the_source_of_a_look_over(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETCDFIX_NO_ENCRYPTION", "1")
    monkeypatch.setenv("ETCDFIX_KINE", "/elsewhere/state.db")
    monkeypatch.setenv("ETCDFIX_ETCD_PREFIX", "/other")
    monkeypatch.setenv("ETCDFIX_SNAPSHOT", "/elsewhere/snap.db")
    with COMMANDS["scan"].make_context("scan", ["--profile", "prod"]) as context:
        inputs = gather_inputs(context.params)
    assert (inputs.no_encryption, inputs.kine, inputs.snapshot, inputs.etcd_prefix) == (
        False,
        None,
        None,
        "/prod",
    )
    assert "not heeded: ETCDFIX_ETCD_PREFIX, ETCDFIX_KINE, ETCDFIX_NO_ENCRYPTION, ETCDFIX_SNAPSHOT;" in (
        capfd.readouterr().err
    )


@pytest.mark.usefixtures("profiles")
def test_there_is_no_variable_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCDFIX_PROFILE", "prod")
    monkeypatch.setenv("ETCDFIX_CONFIG_FILE", "/x")
    for name in ("scan", "doctor"):
        with COMMANDS[name].make_context(name, []) as context:
            assert "10.0.0.1" not in repr(gather_inputs(context.params).connection)
    assert inputs_of("repair").origins == ("endpoints: the default, 127.0.0.1:2379",)


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--profile", "prdo"], "there is no profile 'prdo'; do you mean 'prod'?"),
        (["--profile", "prod", "--manifest", "m.yaml"], "--profile and --manifest both say"),
        (["--config-file", "f.yaml"], "--config-file names a file of profiles: add --profile NAME"),
        (["--profile", "prod", "--no-encryption"], "--no-encryption, and /prod/enc.yaml is named"),
    ],
)
@pytest.mark.parametrize("command", [["scan"], ["repair", "/k", "--reason", "x"]], ids=["scan", "repair"])
def test_what_makes_no_sense_is_refused(
    command: list[str], words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, *words]) == 2
    assert message in capfd.readouterr().err


def test_a_change_refuses_a_file_that_others_may_write(
    profiles: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    profiles.chmod(0o666)
    assert run(["repair", "/k", "--reason", "x", "--profile", "prod"]) == 2
    assert "others may write" in capfd.readouterr().err
    assert run(["scan", "--profile", "night"]) == 3


@pytest.mark.usefixtures("profiles")
def test_a_snapshot_by_profile_is_scanned_and_never_changed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", "secrets", "--profile", "night", "-o", "json"]) == 3
    report = json.loads(capfd.readouterr().out)
    assert report["source"]["path"] == str(ALPHA / "snapshot.db.gz")
    assert report["encryption_config"]["path"] == str(ALPHA / "config-lost.yaml")
    assert run(["repair", "/k", "--reason", "x", "--profile", "night"]) == 4
    assert "a snapshot file cannot be changed" in capfd.readouterr().err


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(
    ("words", "file", "endpoints"),
    [
        (["night", "--endpoints", "https://a:1"], None, "https://a:1"),
        (["prod", "--snapshot", "/s"], Path("/s"), None),
        (["prod", "--kine", "/k"], Path("/k"), None),
        (["night", "--kine", "/k"], Path("/k"), None),
    ],
)
def test_another_source_on_the_command_line_takes_its_place(
    words: list[str], file: Path | None, endpoints: str | None
) -> None:
    with COMMANDS["scan"].make_context("scan", ["--profile", *words]) as context:
        inputs = gather_inputs(context.params)
    assert (inputs.file, inputs.connection["endpoints"]) == (file, endpoints)


def test_origins_of_flags_variables_and_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = tmp_path / "m.yaml"
    flags = [
        "kube-apiserver",
        "--etcd-servers=https://m:1",
        "--etcd-cafile=/m/ca",
        "--encryption-provider-config=/m/e",
    ]
    manifest.write_text(json.dumps({"spec": {"containers": [{"command": flags}]}}))
    monkeypatch.setenv("ETCDCTL_CERT", "/v/cert")
    monkeypatch.setenv("ETCDCTL_KEY", "/v/key")
    monkeypatch.setenv("ETCDFIX_MANIFEST", str(manifest))
    assert inputs_of("delete", "--endpoints", "https://a:1").origins == (
        "endpoints: --endpoints",
        f"certificates: {manifest} (variable ETCDFIX_MANIFEST), variable ETCDCTL_CERT, variable ETCDCTL_KEY",
        f"configuration: {manifest} (variable ETCDFIX_MANIFEST)",
    )
    assert inputs_of("heal", "--kine", "/k").origins[0] == "data: --kine"


def test_list_and_show(profiles: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "list"]) == 0
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == [
        "PROFILE",
        "bare",
        "night",
        "prod",
    ]
    assert run(["profile", "show", "prod", "--config-file", str(profiles)]) == 0
    assert capfd.readouterr().out.splitlines()[:2] == [
        "--endpoints https://10.0.0.1:2379,https://10.0.0.2:2379", "--cacert /prod/ca.crt",
    ]  # fmt: skip
    assert run(["profile", "show", "bare", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out) == {
        "name": "bare", "file": str(profiles), "endpoints": ["https://10.0.0.9:2379"],
    }  # fmt: skip
    assert run(["profile", "list", "-o", "json"]) == 0
    assert [found["name"] for found in json.loads(capfd.readouterr().out)] == ["bare", "night", "prod"]
    profiles.write_text("profiles: {}")
    assert run(["profile", "list"]) == 0
    assert capfd.readouterr().out == "no profiles\n"


@pytest.mark.usefixtures("profiles")
def test_no_variable_leads_a_part_of_a_look_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETCDFIX_ETCD_SERVERS_OVERRIDES", "/events#http://staging:2381")
    monkeypatch.setenv("ETCDFIX_REVISION", "77")
    monkeypatch.setenv("ETCDFIX_INSECURE_SKIP_TLS_VERIFY", "1")
    monkeypatch.setenv("ETCDFIX_NO_KMS", "1")
    with COMMANDS["scan"].make_context("scan", ["--profile", "prod"]) as context:
        inputs = gather_inputs(context.params, resources=("events",))
    assert (inputs.revision, inputs.ask_kms, inputs.overrides) == (0, True, None)
    assert "staging" not in inputs.connection["endpoints"]
    assert not inputs.connection["insecure_skip_tls_verify"]
    assert "ETCDFIX_ETCD_SERVERS_OVERRIDES" in capfd.readouterr().err


@pytest.mark.usefixtures("profiles")
def test_an_etcd_of_its_own_is_named_by_what_says_so() -> None:
    overrides = ("--etcd-servers-overrides", "/events#http://own:2381")
    with context_of("delete", "--profile", "prod", *overrides) as context:
        inputs = gather_inputs(context.params, key=b"/prod/events/a/b")
    assert inputs.connection["endpoints"] == "http://own:2381"
    first = inputs.origins[0]
    assert first.startswith("endpoints: --etcd-servers-overrides; those of the main etcd: profile prod of ")


def test_the_help_page_shows_a_file_that_is_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "--help"]) == 0
    page = capfd.readouterr().out
    example, words = page.split("Form of the file:\n")[1].split("\n\n", 1)
    (tmp_path / "config.yaml").write_text(textwrap.dedent(example))
    (profile,) = load_profiles(tmp_path / "config.yaml").values()
    assert profile.name == "prod-eu-1"
    assert f"called as its option: {', '.join(FIELDS)}." in " ".join(words.split())
    for command in ("list", "show"):
        assert run(["profile", command, "--help"]) == 0
        assert 'The help of "etcdfix profile" shows the form of the file' in capfd.readouterr().out
