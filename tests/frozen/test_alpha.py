"""What every command that reads says of the damaged cluster: its JSON, and the first lines of its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.frozen.freezing import came_to, first_lines, in_order, is_frozen, stripped
from tests.support.collecting import ALPHA, REPOSITORY
from tests.support.kms_plugin import KMSPlugin, load_keks

SNAPSHOT = "fixtures/snapshots/alpha/snapshot.db.gz"

CRD = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"

COMMANDS: dict[str, list[str]] = {
    "scan": ["scan"],
    "scan-narrow": ["scan", "-n", "shop"],
    "orphans": ["scan", "--orphans"],
    "namespace-pay": ["namespace", "pay"],
    "namespace-default": ["namespace", "default"],
    "namespace-missing": ["namespace", "nowhere"],
    "impact-secret": ["explain", "/registry/secrets/infra/tls-cbc-key2-8", "--impact"],
    "impact-deployment": ["explain", "/registry/deployments/shop/dep-1", "--impact"],
    "impact-namespace": ["explain", "/registry/namespaces/shop", "--impact"],
    "impact-crd": ["explain", CRD, "--impact"],
    "impact-widget": ["explain", "/registry/example.com/widgets/pay/w-4", "--impact"],
    "impact-gone": ["explain", "/registry/secrets/shop/nobody", "--impact"],
    "get-secrets": ["get", "secrets", "-n", "shop"],
    "get-pods": ["get", "pods", "-A"],
    "get-widgets": ["get", "widgets.example.com", "-A"],
    "get-damaged-pod": ["get", "/registry/pods/infra/dep-0-abc-1"],
    "get-namespaces": ["get", "namespaces"],
    "get-gone": ["get", "/registry/secrets/shop/nobody"],
}
LOST = ["--encryption-config", "fixtures/snapshots/alpha/config-lost.yaml", "--no-kms"]
DAMAGED = "/registry/secrets/pay/tls-gcm-7"
# Of these the text alone.
TEXTS: dict[str, list[str]] = {
    **{name: [*arguments, "--snapshot", SNAPSHOT, *LOST] for name, arguments in COMMANDS.items()},
    "explain-causes": ["explain"],
    "explain-cause": ["explain", "kms-denied"],
    "explain-damaged": ["explain", DAMAGED, "--snapshot", SNAPSHOT, *LOST],
    "explain-readable": ["explain", "/registry/configmaps/infra/cm-1", "--snapshot", SNAPSHOT, *LOST],
    "explain-history": ["explain", DAMAGED, "--history", "--snapshot", SNAPSHOT, *LOST],
    "copies": ["copies", DAMAGED, "--snapshot", SNAPSHOT, *LOST],
    "compare": ["compare", "--with-snapshot", SNAPSHOT, "--snapshot", SNAPSHOT, "--revision", "560", *LOST],
    "no-snapshot": ["scan", "--snapshot", "LICENSE"],
    "no-configuration": ["scan", "--snapshot", SNAPSHOT],
    "unknown-resource": ["scan", "--snapshot", SNAPSHOT, "secrt"],
}
# These show objects, whose texts are no free text.
_OBJECTS = ("get",)


@pytest.fixture(scope="module")
def configurations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    folder = tmp_path_factory.mktemp("kms")
    with (
        KMSPlugin("v2", folder / "1.sock", load_keks(ALPHA / "kms1.keys")) as new,
        KMSPlugin("v1", folder / "2.sock", load_keks(ALPHA / "kms2.keys")) as old,
    ):
        plugins = [f"--kms-endpoint={name}={at.endpoint}" for name, at in (("kmsnew", new), ("kmsold", old))]
        yield {
            "rotated": ["--encryption-config", "fixtures/snapshots/alpha/config-rotated.yaml", *plugins],
            "lost": ["--encryption-config", "fixtures/snapshots/alpha/config-lost.yaml", "--no-kms"],
            "none": [],
        }


@pytest.fixture(autouse=True)
def _from_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


def is_rare(configuration: str, command: str) -> bool:
    """What another configuration shows as well: impact and namespaces."""
    if configuration == "rotated":
        return command.startswith("impact") and command != "impact-secret"
    return configuration == "none" and command.startswith(("impact", "namespace"))


@pytest.mark.parametrize(
    ("configuration", "command"),
    [
        pytest.param(
            configuration, command, marks=[pytest.mark.thorough] if is_rare(configuration, command) else []
        )
        for configuration in ("rotated", "lost", "none")
        for command in COMMANDS
        # With lost keys as with rotated ones, but for two counts, which the texts hold.
        if configuration != "lost" or not command.startswith("impact")
    ],
)
def test_what_is_read(
    configuration: str,
    command: str,
    configurations: dict[str, list[str]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    given = [*COMMANDS[command], "--snapshot", SNAPSHOT, *configurations[configuration], "-o", "json"]
    found = came_to(given)
    out = capfd.readouterr().out
    if out:
        whole = json.loads(out)
        found["output"] = in_order(whole) if command.startswith(_OBJECTS) else stripped(whole)
    is_frozen(f"{configuration}/{command}", found)


@pytest.mark.parametrize("configuration", ["rotated", "lost"])
def test_what_is_planned(
    configuration: str,
    configurations: dict[str, list[str]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    common = ["--snapshot", SNAPSHOT, *configurations[configuration], "-o", "json"]
    report = tmp_path / "report.json"
    came_to(["scan", *common, "--output-file", str(report)])
    capfd.readouterr()
    found = came_to(["plan", *common, "--from-report", str(report)])
    found["output"] = stripped(json.loads(capfd.readouterr().out))
    is_frozen(f"{configuration}/plan", found)


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("command", TEXTS)
def test_what_a_person_reads_first(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = run(TEXTS[command])
    printed = capfd.readouterr()
    found = {"exit_code": code, "out": first_lines(printed.out), "err": first_lines(printed.err)}
    is_frozen(f"text/{command}", found)
