"""What deletions, restores and re-encryptions come to on a real etcd: exit codes, rules, records and backups."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.report.render import text
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.frozen.freezing import Chance, came_to, first_lines, is_frozen, stripped
from tests.support.attacks import EVERY_FLAG, OTHER, WRONG, Attacked, config_map, declared, seal, secret
from tests.support.change_runs import ACKNOWLEDGED, candidate_config
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import (
    KUBE_SYSTEM_UID,
    namespace_object,
    provider,
)

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

PREFIX = b"/frozen/registry"


class Freezing(Attacked):
    """A registry under a prefix that is always the same, which keeps what each command came to."""

    def __init__(self, *arguments: Any, authority: CertificateAuthority) -> None:
        self._base = arguments[0].revision()
        super().__init__(*arguments)
        self.authority = authority
        self.steps: list[dict[str, Any]] = []
        self.keyed("aesgcm")

    def step(self, command: str, *arguments: str, **common: Any) -> None:
        """Run a command as a person would, and keep what it came to and whether etcd changed."""
        before = self.etcd.revision()
        reports = command in {"delete", "fix", "undo"}
        given = [command, *arguments, *self.common(**common), *(["-o", "json"] if reports else [])]
        found = came_to(given)
        out = self._capfd.readouterr().out
        report = {"told": json.loads(out)} if reports else {}
        self.steps.append({"command": command, **found, "writes": self.etcd.revision() - before, **report})

    def delete_it(self, key: bytes, *flags: str, yes: bool = True, **common: Any) -> None:
        self.step("delete", key.decode(), ACKNOWLEDGED, *(["--yes"] if yes else []), *flags, **common)

    def undo_it(self, backup: str, *flags: str, **common: Any) -> None:
        self.step("undo", backup, *flags, "--yes", **common)

    def fix_it(self, key: bytes, *flags: str, **common: Any) -> None:
        self.step("fix", key.decode(), *flags, "--yes", **common)

    def rewrite(self, key: bytes, *flags: str, **key_of_old: bytes) -> None:
        candidate = candidate_config(self.folder, provider("aesgcm", **(key_of_old or {"old": OTHER})))
        self.fix_it(key, "--from", f"candidate:{candidate}", *flags)

    def cut(self, name: str = "cut", cut: int = 40) -> bytes:
        """Store a Secret that is cut short, and a whole one under the same key."""
        at, _ = self.secrets("aesgcm", [name, f"{name}-whole"])
        self.etcd.put(at, (self.stored(at) or b"")[:-cut])
        return at

    def chance(self) -> Chance:
        return Chance({str(self.folder): "<folder>", self.endpoints: "<etcd>"}, base=self._base)

    def came_to(self) -> dict[str, Any]:
        """Return all that is to stay: the steps, the records and the backups."""
        chance = self.chance()
        records = [json.loads(line) for line in _lines_of(self.log)]
        backups = [json.loads(path.read_bytes()) for path in self.backups.glob("*.json")]
        backups.sort(key=lambda backup: backup["intent"]["sequence"])  # names sort revision 10 before 9
        found = {"steps": self.steps, "records": records, "backups": backups}
        return {name: chance.without(stripped(part)) for name, part in found.items()}


def _lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


@pytest.fixture
def registry(
    etcd: EtcdServer, tmp_path: Path, capfd: pytest.CaptureFixture[str], authority: CertificateAuthority
) -> Iterator[Freezing]:
    found = Freezing(etcd, PREFIX, tmp_path, capfd, authority=authority)
    yield found
    etcd.etcdctl("del", "--prefix", PREFIX.decode())


def done(registry: Freezing) -> None:
    at = registry.cut()
    registry.delete_it(at, "--dry-run")
    registry.delete_it(at, yes=False)
    registry.delete_it(at)
    registry.delete_it(at)
    backup = str(registry.kept()[0].path)
    registry.undo_it(backup, "--dry-run")
    registry.undo_it(backup)
    registry.undo_it(backup)


def wrong_key(registry: Freezing) -> None:
    (at,) = registry.secrets("aesgcm", ["web"], WRONG)
    registry.delete_it(at, *EVERY_FLAG)
    registry.delete_it(at, "--declare-key-lost", "aesgcm/v1/key1")
    registry.delete_it(at, *declared("aesgcm/v1/key2"))
    registry.delete_it(at, *declared("aesgcm/v1/key1"), "--dry-run")
    registry.delete_it(at, *declared("aesgcm/v1/key1"))


def protected(registry: Freezing) -> None:
    at = registry.put("shop", namespace_object("shop")[:-9], resource="namespaces")
    registry.delete_it(at)
    registry.delete_it(at, "--accept", "cluster-breaking")
    backup = str(registry.kept()[0].path)
    registry.undo_it(backup)


def in_the_clear(registry: Freezing) -> None:
    at = registry.put("shop/settings", config_map("settings")[:-9], resource="configmaps")
    registry.delete_it(at)


def expectations(registry: Freezing) -> None:
    at = registry.cut()
    registry.delete_it(at, "--expect-mod-revision", "1")
    registry.delete_it(at, "--expect-value-sha256", "sha256:" + "0" * 64)
    registry.delete_it(at, "--expect-mod-revision", str(registry.mod_revision(at)))


def by_plan(registry: Freezing) -> None:
    at = registry.cut()
    report, plan = registry.folder / "report.json", registry.folder / "plan.json"
    here = ["--output-file", str(report), "-o", "json"]
    registry.step("scan", *here, reason=None, places=False)
    there = ["--from-report", str(report), "--output-file", str(plan), "-o", "json"]
    registry.step("plan", *there, reason=None, places=False)
    registry.delete_it(registry.key("shop/cut-whole"), "--plan", str(plan))
    registry.delete_it(at, "--plan", str(plan), "--dry-run")
    registry.delete_it(at, "--plan", str(plan))


def asked_servers(registry: Freezing) -> None:
    at = registry.cut()
    with KubernetesAPI(registry.authority, uid=KUBE_SYSTEM_UID) as api:
        registry.delete_it(at, "--kubeconfig", str(api.kubeconfig(registry.folder)))
    with KubernetesAPI(registry.authority, uid="another") as api:
        other = registry.cut("other")
        registry.delete_it(other, "--kubeconfig", str(api.kubeconfig(registry.folder)))


def undone_elsewhere(registry: Freezing) -> None:
    at = registry.cut()
    registry.delete_it(at)
    (kept,) = registry.kept()
    backup = str(kept.path)
    registry.put("kube-system", namespace_object("kube-system", uid="another"), "namespaces")
    registry.undo_it(backup)
    registry.put("kube-system", namespace_object("kube-system"), "namespaces")
    registry.etcd.put(at, seal("aesgcm", secret("cut"), at))
    registry.undo_it(backup)
    registry.fix_it(at, "--from", f"backup:{backup}")


def undone_without_its_log(registry: Freezing) -> None:
    at = registry.cut()
    registry.delete_it(at)
    (kept,) = registry.kept()
    for path in registry.log.parent.iterdir():
        path.unlink()
    backup = str(kept.path)
    registry.undo_it(backup)
    registry.undo_it(backup, "--accept", "unlisted-source")
    digest = ("--expect-value-sha256", kept.content.value_sha256)
    registry.undo_it(backup, "--accept", "unlisted-source", *digest)


def fixed_from_an_earlier_revision(registry: Freezing) -> None:
    (at,) = registry.secrets("aesgcm", ["cut"])
    then = str(registry.mod_revision(at))
    registry.etcd.put(at, (registry.stored(at) or b"")[:-40])
    there = ["--from", f"revision:{then}"]
    registry.fix_it(at, *there, "--expect-mod-revision", "1")
    registry.fix_it(at, "--dry-run")
    registry.fix_it(at, *there)


def sealed(registry: Freezing) -> None:
    at = registry.key("shop/old")
    registry.etcd.put(at, seal("aesgcm", secret("old"), at, OTHER, "old"))
    registry.rewrite(at)
    registry.secrets("aesgcm", ["newest"])
    registry.rewrite(at, nobody=OTHER)
    registry.rewrite(at, old=WRONG)
    registry.rewrite(at, "--dry-run")
    registry.rewrite(at)
    registry.rewrite(at)
    registry.undo_it(str(registry.kept()[0].path), "--expect-mod-revision", str(registry.mod_revision(at)))


CASES: list[Callable[[Freezing], None]] = [
    done,
    wrong_key,
    protected,
    in_the_clear,
    expectations,
    by_plan,
    asked_servers,
    undone_elsewhere,
    undone_without_its_log,
    fixed_from_an_earlier_revision,
    sealed,
]


@pytest.mark.parametrize("case", CASES)
def test_what_a_change_comes_to(registry: Freezing, case: Callable[[Freezing], None]) -> None:
    case(registry)
    is_frozen(f"changes/{case.__name__}", registry.came_to())


def test_what_the_audit_log_says(registry: Freezing, capfd: pytest.CaptureFixture[str]) -> None:
    wrong_key(registry)
    chance = registry.chance()
    found = {}
    for command in ("show", "verify"):
        came = came_to(["log", command, str(registry.log), "-o", "json"])
        found[command] = {**came, "output": chance.without(stripped(json.loads(capfd.readouterr().out)))}
    is_frozen("changes/audit", found)


# How wide a column is depends on who runs the tests, and revisions on what else was written.
_BY_CHANCE = re.compile(r"(?<=revision )\d+|(?<= {2})\S+@\S+| {2,}|\d+(?= bytes:)")


def test_what_a_person_reads_first(
    registry: Freezing, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a deletion, of putting it back, and of what both leave behind."""
    monkeypatch.setattr(text, "_WIDEST", 10_000)  # where a line folds depends on the path of the folder
    monkeypatch.setenv("COLUMNS", "10000")
    at = registry.cut()
    common = registry.common()
    found: dict[str, Any] = {}

    def reads(name: str, *arguments: str) -> None:
        code = run([*arguments])
        printed = capfd.readouterr()
        told = {"out": printed.out, "err": printed.err}
        found[name] = {
            "exit_code": code,
            **{
                where: [_BY_CHANCE.sub("*", line) for line in first_lines(output)]
                for where, output in told.items()
            },
        }

    deletion = ["delete", at.decode(), ACKNOWLEDGED, "--yes", *common]
    reads("delete-dry-run", *deletion, "--dry-run")
    reads("delete", *deletion)
    backup = str(registry.kept()[0].path)
    reads("undo-dry-run", "undo", backup, "--yes", "--dry-run", *common)
    reads("undo", "undo", backup, "--yes", *common)
    for command in ("show", "verify"):
        reads(f"log-{command}", "log", command, str(registry.log))
    places = ["--backup-dir", str(registry.backups), "--audit-log", str(registry.log)]
    reads("log-backups", "log", "backups", *places)
    is_frozen("text/changes", registry.chance().without(found))
