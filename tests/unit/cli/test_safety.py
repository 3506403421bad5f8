"""Options that changes share: which have a variable, what names one key, what becomes of an outcome."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import click
import pytest

from etcdfix.cli.delete import command as delete
from etcdfix.cli.options import Inputs
from etcdfix.cli.reencrypt import command as reencrypt
from etcdfix.cli.restore import command as restore
from etcdfix.cli.root import run
from etcdfix.cli.safety import (
    acceptances,
    change_exit_code,
    etcd_user,
    examiner_for,
    one_key,
    places,
    require_reason,
)
from etcdfix.encryption.config import parse_configuration
from etcdfix.errors import ConfigurationError, RefusedByRule
from etcdfix.remediation.audit_record import Link, Result
from etcdfix.remediation.commit import Outcome
from etcdfix.remediation.preflight import Acceptances
from etcdfix.reports.commands import ACKNOWLEDGEMENT
from tests.support.objects import KMS_V2, configuration_yaml

COMMANDS = {"delete": delete, "restore": restore, "reencrypt": reencrypt}

# What could lift a rule, and what says yes for somebody: once exported, it would decide every night.
SAFETY = {
    ACKNOWLEDGEMENT,
    "--yes",
    "--reason",
    "--dry-run",
    "--declare-key-lost",
    "--accept-no-api-server",
    "--expect-mod-revision",
    "--expect-value-sha256",
    "--accept-unknown-cluster",
    "--accept-unchecked-member",
    "--accept-risk",
    "--accept-unlisted-source",
    "--accept-undeployed-write-key",
    "--replace-mod-revision",
    "--without-lease",
}
# What names this one change: meaningless for the next.
NAMING = {"--key-base64", "--from-snapshot", "--from-revision", "--candidate-config", "--server"}
WITH_VARIABLE = {"--plan", "--backup-dir", "--audit-log", "--kubeconfig", "--context"}


def _options(command: click.Command) -> dict[str, click.Option]:
    found = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            found[next(name for name in parameter.opts if name.startswith("--"))] = parameter
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_which_options_have_a_variable(name: str) -> None:
    options = _options(COMMANDS[name])
    for long, option in options.items():
        if long in SAFETY | NAMING:
            assert option.envvar is None, long
            assert not option.allow_from_autoenv or COMMANDS[name].context_settings == {}, long
        else:
            assert option.envvar == "ETCDFIX_" + long.removeprefix("--").replace("-", "_").upper(), long
    assert set(options) >= WITH_VARIABLE - ({"--plan"} if name != "delete" else set())
    # An option that is new must be put on one side or the other by a person.
    sources = set(_options(_command_of_scan())) | WITH_VARIABLE | SAFETY | NAMING
    assert set(options) <= sources


def _command_of_scan() -> click.Command:
    from etcdfix.cli.scan import command

    return command


def test_all_safety_flags_are_known_and_used() -> None:
    used = set().union(*(_options(command) for command in COMMANDS.values()))
    assert used >= SAFETY | NAMING


@pytest.mark.parametrize("name", COMMANDS)
def test_no_prefix_lets_click_read_variables_by_itself(name: str) -> None:
    from etcdfix.cli.root import cli

    assert cli.context_settings.get("auto_envvar_prefix") is None
    assert COMMANDS[name].context_settings.get("auto_envvar_prefix") is None


@pytest.mark.parametrize("name", ["ETCDFIX_YES", "ETCDFIX_REASON", "ETCDFIX_DRY_RUN", "ETCDFIX_ACKNOWLEDGED"])
def test_exported_reasons_do_not_count(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert run(["delete", "/k", ACKNOWLEDGEMENT]) == 2
    assert "Missing option '--reason'" in capfd.readouterr().err


def test_places_from_variables_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = places({"backup_dirs": (Path("one"), Path("/two")), "audit_log": Path("audit.jsonl")})
    assert found.backup_directories == (tmp_path / "one", Path("/two"))
    assert found.audit_log == found.log_path == tmp_path / "audit.jsonl"
    unnamed = places({"backup_dirs": (), "audit_log": None})
    assert (unnamed.backup_directories, unnamed.audit_log) == ((), None)
    assert unnamed.log_path.name == "audit.jsonl"


@pytest.mark.parametrize(
    ("key", "key_base64", "found"),
    [
        ("/registry/secrets/shop/web", None, b"/registry/secrets/shop/web"),
        (os.fsdecode(b"/registry/\xff"), None, b"/registry/\xff"),
        ("/registry/café", None, "/registry/café".encode()),
        (None, base64.b64encode(b"/a*/").decode(), b"/a*/"),
        (None, base64.b64encode(b"no-slash").decode(), b"no-slash"),
    ],
)
def test_one_key(key: str | None, key_base64: str | None, found: bytes) -> None:
    assert one_key(key, key_base64) == found


@pytest.mark.parametrize(
    ("key", "key_base64", "error"),
    [
        (None, None, click.UsageError),
        ("/a", "L2E=", click.UsageError),
        (None, "L2E", ConfigurationError),
        (None, "L2E=\n", ConfigurationError),
        (None, "", RefusedByRule),
        ("a", None, RefusedByRule),
        ("/a/", None, RefusedByRule),
        ("/a*", None, RefusedByRule),
        ("/a?", None, RefusedByRule),
        ("/a[", None, RefusedByRule),
    ],
)
def test_not_one_key(key: str | None, key_base64: str | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        one_key(key, key_base64)


@pytest.mark.parametrize("reason", ["", " ", "\n\t"])
def test_empty_reason(reason: str) -> None:
    with pytest.raises(click.UsageError, match="--reason is empty"):
        require_reason({"reason": reason})


def test_acceptances() -> None:
    assert acceptances({}) == Acceptances()
    given = acceptances(
        {
            "expect_mod_revision": 7,
            "expect_value_sha256": "ab",
            "unchecked_members": ("m1", "m2"),
            "accept_unknown_cluster": True,
            "accept_risk": "cluster-breaking",
            "key_lost": "aescbc/v1/key1",
            "accept_no_api_server": True,
        }
    )
    assert given.expect_value_sha256 == "sha256:ab"
    assert given.as_flags() == (
        "--accept-unchecked-member m1",
        "--accept-unchecked-member m2",
        "--accept-unknown-cluster",
        "--accept-risk cluster-breaking",
        "--declare-key-lost aescbc/v1/key1",
        "--accept-no-api-server",
    )
    assert Acceptances().as_flags() == ()


def _inputs(**connection: str) -> Inputs:
    return Inputs(
        snapshot=None,
        connection=dict(connection),
        etcd_prefix="/registry",
        revision=0,
        encryption_config=None,
        kubernetes_minor=36,
    )


def test_user_without_password() -> None:
    assert etcd_user(_inputs(user="root:secret:word")) == "root"
    assert etcd_user(_inputs()) == ""


def test_examiner_with_and_without_a_configuration() -> None:
    assert examiner_for(_inputs(), None, None).transformers is None
    configuration = parse_configuration(configuration_yaml(KMS_V2), path="config.yaml")
    found = examiner_for(_inputs(), configuration, None)
    assert found.transformers is not None
    assert found.assumed_release == "1.36"


@pytest.mark.parametrize(
    ("result", "head", "code"),
    [
        (None, True, 0),
        (Result.DELETED, True, 0),
        (Result.RESTORED, True, 0),
        (Result.REENCRYPTED, True, 0),
        (Result.DELETED, False, 3),
        (Result.NOT_APPLIED, True, 3),
        (Result.APPLIED_OR_GONE, True, 3),
        (Result.UNKNOWN, True, 3),
        (Result.ANOMALY, True, 3),
    ],
)
def test_exit_code(result: Result | None, code: int, *, head: bool) -> None:
    link = Link(1, "ab" * 32) if head else None
    assert change_exit_code(Outcome(result=result, detail="", audit_log=Path("log"), head=link)) == code
