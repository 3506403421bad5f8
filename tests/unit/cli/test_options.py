"""Where the data is and how to read it: flags, variables and the manifest put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from etcdfix.cli.inputs import gather_inputs
from etcdfix.cli.options import jobs_option, reading_options, source_options
from etcdfix.commands.opening import Inputs
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.scope import ScopeRequest
from etcdfix.text.commands import RunOptions, scan

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


@pytest.mark.parametrize("image", ["1.16.15", "1.38.0", "1.2026"])
def test_an_unknown_release_of_an_image_is_a_hint_and_no_more(manifest: str, image: str) -> None:
    """Nobody gave an option, so that none can be left out; one that is given counts, and nothing is said then."""
    Path(manifest).write_text(MANIFEST.replace("1.30.3", image))
    inputs = gather("--manifest", manifest, scope=ScopeRequest(("events",)))
    assert (inputs.kubernetes_minor, inputs.release_source) == (None, "")
    said = f"names an image of release {image[:4]}"
    assert sum(said in notice and "1.17 to 1.37" in notice for notice in inputs.notices) == 1
    inputs = gather("--manifest", manifest, "--kubernetes-version", "1.36", "--endpoints", "a:1")
    assert (inputs.kubernetes_minor, inputs.notices) == (36, ())


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
