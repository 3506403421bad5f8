"""Environment variables: no command that changes something listens to more than the list, and no safety flag ever."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.core import ParameterSource

from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.inputs import gather_inputs
from etcdfix.cli.plan import PlanCommand, run_command
from etcdfix.cli.root import cli, run
from etcdfix.sources.connection import connection_from_options
from etcdfix.text.commands import ACKNOWLEDGEMENT
from tests.support.collecting import ALPHA
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
