"""Options, variables, a manifest and this machine put together; no safety flag has a variable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.core import ParameterSource
from click.testing import CliRunner

from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.inputs import gather_inputs
from etcdfix.cli.options import jobs_option, reading_options, source_options
from etcdfix.cli.plan import PlanCommand, run_command
from etcdfix.cli.root import cli, run
from etcdfix.commands.opening import Inputs
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.scope import ScopeRequest
from etcdfix.sources.connection import connection_from_options
from etcdfix.text.commands import ACKNOWLEDGEMENT, RunOptions, scan
from tests.support.collecting import ALPHA
from tests.support.distributions import k3s, k3s_sqlite, kubeadm, pod, rke2, write
from tests.support.fixtures import Captured, Patch

pytestmark = pytest.mark.usefixtures("no_variables")


# As the contract has it; not taken from the code.
ALLOWED = {
    "--endpoints", "--cacert", "--cert", "--key", "--user", "--password", "--dial-timeout", "--command-timeout",
    "--timeout",
    "--encryption-config", "--manifest",
}  # fmt: skip
CHANGING = {"delete", "fix", "undo", "log settle", "log prune"}
# What lifts a rule, says yes for somebody, or shows what is hidden: once exported, it would decide every night.
SAFETY = re.compile(
    r"--(yes|reason|dry-run|audit-syslog|accept|declare-.*|expect-.*|ignore-.*|reveal.*|replace-.*"
    r"|run|plan|leave-out|from|in)"
)
NEEDED = {
    "delete": ["/k", "--reason", "x", ACKNOWLEDGEMENT], "fix": ["/k", "--reason", "x"],
    "undo": ["/k", "--reason", "x"], "log settle": ["log"],
    "log prune": ["--older-than", "1d", "--reason", "x"],
}  # fmt: skip


def walk(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from walk(command, f"{before}{name} ")
            else:
                yield before + name, command


COMMANDS = dict(walk(cli))


def variable_of(long: str) -> str:
    return "ETCDFIX_" + long[2:].replace("-", "_").upper()


def options_of(command: click.Command) -> dict[str, click.Option]:
    return {
        next(name for name in option.opts if name.startswith("--")): option
        for option in command.params
        if isinstance(option, click.Option)
    }


def context_of(name: str, *more: str) -> click.Context:
    """Parse the words that a command cannot do without, and more; a parent, since click keeps what it makes of one."""
    parent = cli.make_context("etcdfix", [name.partition(" ")[0]], resilient_parsing=True)
    return COMMANDS[name].make_context(name, [*NEEDED[name], *more], parent=parent)


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
        with pytest.raises(ConfigurationError, match=r"^--jobs '.*' is not a number of processes"):
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


def test_which_commands_change_something() -> None:
    """What has a dry run changes something; ``rescue`` takes a reason for the record, and changes nothing."""
    assert COMMANDS.keys() >= CHANGING
    assert isinstance(COMMANDS["plan"], PlanCommand)
    assert isinstance(run_command, ChangingCommand)  # which plan becomes with --run
    for name, command in COMMANDS.items():
        changes = "--dry-run" in options_of(command) and name != "plan"
        assert (isinstance(command, ChangingCommand), name in CHANGING) == (changes, changes), name


@pytest.mark.parametrize("name", [*sorted(CHANGING), "plan --run", "plan"])
def test_an_unforeseen_end_points_to_the_log_where_something_may_be_changed(
    name: str, monkeypatch: Patch, capfd: Captured
) -> None:
    def no_memory(**_options: object) -> None:
        raise MemoryError

    monkeypatch.setattr((COMMANDS | {"plan --run": run_command})[name], "callback", no_memory)
    needed = NEEDED | {
        "plan": ["--from-report", "r.json"],
        "plan --run": ["plan.json", "--reason", "x", ACKNOWLEDGEMENT],
    }
    assert run([*name.split(), *needed[name]]) == 3
    told = capfd.readouterr().err
    assert ("etcdfix log verify" in told, "nothing was changed" in told) == (name != "plan", name == "plan")


def test_the_variable_of_a_safety_option_changes_nothing(monkeypatch: Patch) -> None:
    found = set()
    for command in (*COMMANDS.values(), run_command):
        assert {**cli.context_settings, **command.context_settings}.get("auto_envvar_prefix") is None
        context = click.Context(command)
        for long, option in options_of(command).items():
            if SAFETY.fullmatch(long):
                monkeypatch.setenv(variable_of(long), "1")
                assert option.consume_value(context, {})[1] is not ParameterSource.ENVIRONMENT, long
                found.add(long)
    assert found >= {
        "--yes", ACKNOWLEDGEMENT, "--reason", "--accept", "--declare-key-lost", "--run", "--reveal"
    }  # fmt: skip
    for long, option in options_of(run_command).items():
        assert option.envvar == (variable_of(long) if long in ALLOWED else None), long


@pytest.mark.parametrize("name", sorted(CHANGING))
def test_everything_exported_and_only_the_list_counts(name: str, monkeypatch: Patch, capfd: Captured) -> None:
    command = COMMANDS[name]
    every = {variable_of(long) for long in options_of(command)}
    every |= {f"ETCDFIX_{source}" for source in ("KINE", "NAMESPACE", "REVISION", "SALVAGE", "SNAPSHOT")}
    for variable in every:
        monkeypatch.setenv(variable, "7s")
    context = context_of(name)
    heeded = {
        long
        for long, option in options_of(command).items()
        if context.get_parameter_source(option.name or "") is ParameterSource.ENVIRONMENT
    }
    assert heeded == ALLOWED & set(options_of(command))
    (told,) = capfd.readouterr().err.splitlines()
    assert set(re.findall(r"ETCDFIX_\w+", told)) == every - {variable_of(long) for long in ALLOWED}


@pytest.mark.parametrize("variable", ["ETCDFIX_INSECURE_SKIP_TLS_VERIFY", "ETCDCTL_INSECURE_SKIP_TLS_VERIFY"])
@pytest.mark.parametrize("name", sorted(CHANGING - {"log prune"}))  # which asks no etcd
def test_no_variable_turns_tls_checks_off_for_a_change(
    name: str, variable: str, monkeypatch: Patch, capfd: Captured
) -> None:
    monkeypatch.setenv(variable, "true")
    monkeypatch.setenv("ETCDCTL_ENDPOINTS", "https://a:1")
    for more, expected in (([], False), (["--insecure-skip-tls-verify"], True)):
        with context_of(name, *more) as context:
            connection = connection_from_options(**gather_inputs(context.params).connection)
        assert connection.insecure_skip_tls_verify is expected
        assert connection.endpoints == ("https://a:1",)
        assert f"not heeded: {variable};" in capfd.readouterr().err


def test_the_value_of_a_variable_is_never_shown(monkeypatch: Patch, capfd: Captured) -> None:
    monkeypatch.setenv("ETCDFIX_REASON", "not-to-be-shown")
    assert run(["delete", "/k", ACKNOWLEDGEMENT]) == 2
    told = capfd.readouterr().err
    assert "not heeded: ETCDFIX_REASON;" in told
    assert "Missing option '--reason'" in told
    assert "not-to-be-shown" not in told


def test_every_reader_listens_to_the_variables_of_form_and_file() -> None:
    """Except one: what merge writes are encryption keys."""
    for name in COMMANDS.keys() - CHANGING:
        options = options_of(COMMANDS[name])
        for long in {"--output", "--output-file"} & options.keys():
            expected = None if (name, long) == ("encryption merge", "--output-file") else variable_of(long)
            assert options[long].envvar == expected, (name, long)


def test_a_form_that_a_command_does_not_have_is_refused_with_the_name_of_the_variable(
    monkeypatch: Patch, capfd: Captured
) -> None:
    monkeypatch.setenv("ETCDFIX_OUTPUT", "csv")
    words = ["copies", "--snapshot", str(ALPHA / "snapshot.db.gz")]
    assert run(words) == 2
    assert "variable ETCDFIX_OUTPUT: 'csv'" in capfd.readouterr().err
    assert run([*words, "-o", "csv"]) == 2
    assert "ETCDFIX_OUTPUT" not in capfd.readouterr().err


def origins_of(name: str, *words: str) -> tuple[str, ...]:
    with context_of(name, *words) as context:
        return gather_inputs(context.params).origins


def test_origins_of_flags_variables_and_a_manifest(tmp_path: Path, monkeypatch: Patch) -> None:
    manifest = tmp_path / "m.yaml"
    flags = [
        "kube-apiserver", "--etcd-servers=https://m:1", "--etcd-cafile=/m/ca",
        "--encryption-provider-config=/m/e",
    ]  # fmt: skip
    manifest.write_text(json.dumps({"spec": {"containers": [{"command": flags}]}}))
    monkeypatch.setenv("ETCDCTL_CERT", "/v/cert")
    monkeypatch.setenv("ETCDCTL_KEY", "/v/key")
    monkeypatch.setenv("ETCDFIX_MANIFEST", str(manifest))
    assert origins_of("delete", "--endpoints", "https://a:1") == (
        "endpoints: --endpoints",
        f"certificates: {manifest} (variable ETCDFIX_MANIFEST), variable ETCDCTL_CERT, variable ETCDCTL_KEY",
        f"configuration: {manifest} (variable ETCDFIX_MANIFEST)",
    )
    assert origins_of("fix", "--kine", "/k")[0] == "data: --kine"
