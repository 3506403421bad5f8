"""Plans that are made and worked through as a person would, on a registry of one's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.planning import run as run_plan
from etcdfix.remediation import durable
from etcdfix.remediation.audit import log as log_module
from etcdfix.remediation.audit.record import Verb
from tests.support.attacks import TRUE, Attacked, seal
from tests.support.change_runs import ACKNOWLEDGED, Ran, Registry
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, provider, secret

LOST = "aescbc/v1/key2"


def planned(registry: Registry) -> Path:
    """Scan a registry, and make a plan of its report; return the plan's file."""
    where = registry.common(places=False, reason=None)
    report, plan = registry.folder / "scan.json", registry.folder / "plan.json"
    for command, target, *given in (("scan", report), ("plan", plan, "--from-report", str(report))):
        target.unlink(missing_ok=True)
        ran = registry.run(command, *given, *where, "-o", "json", "--output-file", str(target))
        assert ran.code in {1, 3}, ran.err
    return plan


class Planned(Attacked):
    """A registry with healthy Secrets under key1, and broken ones of which a plan is made."""

    said = first_digest = ""

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    def furnish(self, *names: str, healthy: int = 3) -> list[bytes]:
        """Store Secrets under a lost key2 between healthy ones; the configuration has other bytes for key2."""
        self.configure(provider("aescbc", key1=KEY_1, key2=KEY_1), IDENTITY)
        keys = [self.key(f"shop/{name}") for name in names]
        self.etcd.put_all(
            (key, aescbc(secret(name), KEY_2, "key2")) for name, key in zip(names, keys, strict=True)
        )
        self.etcd.put_all(
            (self.key(f"shop/healthy-{number}"), aescbc(secret(f"healthy-{number}")))
            for number in range(healthy)
        )
        return keys

    def to_delete(self, *names: str, healthy: int = 3) -> list[bytes]:
        """Store such Secrets, and make a plan that deletes all of them."""
        keys = self.furnish(*names, healthy=healthy)
        self.make_plan(all="delete")
        return keys

    def make_plan(self, *reading: str, **decisions: str) -> None:
        """Scan, make a plan, and decide on keys by their name; ``reading`` stands for the configuration."""
        told = reading or ("--encryption-config", str(self.config))
        where = [*self.where, "--etcd-prefix", self.prefix, *told]
        report = self.folder / "report.json"
        for path in (report, self.plan):
            path.unlink(missing_ok=True)
        scanned = self.run("scan", *where, "-o", "json", "--output-file", str(report))
        assert scanned.code in {1, 3}, scanned
        planned = self.run(
            "plan", "--from-report", str(report), *where, "-o", "json", "--output-file", str(self.plan)
        )
        assert planned.code in {1, 3}, planned
        self.said, self.first_digest = planned.err, self.digest
        self.decide(**decisions)

    def decide(self, **decisions: str) -> None:
        """Edit the plan as a reviewer does."""
        document = self.document()
        for decision in document["decisions"]:
            name = decision["key"].rpartition("/")[2]
            decision["decision"] = decisions.get(name, decisions.get("all", decision["decision"]))
        self.plan.write_text(json.dumps(document, indent=1))

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.plan.read_bytes())
        return document

    def outcomes(self) -> dict[str, str]:
        """Return what runs over this plan did to each key, by its name and the audit log; "" for nothing."""
        ending = f" ({self.document()['content_sha256']})"
        done = {decision["key"].rpartition("/")[2]: "" for decision in self.document()["decisions"]}
        for event in self.records() if self.log.exists() else []:
            if event.verb == Verb.FIX and event.outcome != "fixed":
                continue
            ours = any(flag.endswith(ending) for flag in event.accepted)
            if event.outcome in {"deleted", "fixed", "applied-or-gone"} and ours:
                done[event.subject.name] = event.outcome
        return done

    @property
    def digest(self) -> str:
        """The digest of the plan with its decisions, as a second implementation has it."""
        document = self.document()
        digest = hashlib.sha256(document["content_sha256"].encode() + b"\n")
        for each in document.get("decisions", []):
            line = json.dumps([each["order"], each["decision"]], separators=(",", ":"), ensure_ascii=False)
            digest.update(line.encode() + b"\n")
        return f"sha256:{digest.hexdigest()}"

    def arguments(self, *arguments: str, reviewed: bool = True, configured: bool = True) -> list[str]:
        yes = ["--yes", "--expect-plan", self.digest] if reviewed else []
        common = self.common(configured=configured)
        return ["plan", "--run", str(self.plan), ACKNOWLEDGED, *yes, *arguments, *common]

    def work(self, *arguments: str, **how: bool) -> Ran:
        return self.run(*self.arguments(*arguments, **how))

    def there(self, keys: Iterable[bytes]) -> list[bool]:
        return [self.stored(key) is not None for key in keys]

    def agree(self) -> None:
        """Assert that audit log and etcd tell the same, and that nothing healthy was touched."""
        done = self.outcomes()
        for decision in self.document()["decisions"]:
            key = decision["key"]
            if self.stored(key.encode()) is None:
                assert done[key.rpartition("/")[2]] in {"deleted", "applied-or-gone"}, (key, done)
        for number in range(3):
            assert self.stored(self.key(f"shop/healthy-{number}")) == aescbc(secret(f"healthy-{number}"))


DECLARED = ("--declare-key-lost", LOST, "--accept", "no-api-server", "--accept", "ends-cached-reads")


def mixed(planned: Planned) -> tuple[bytes, bytes, bytes]:
    """Store one Secret with a flipped bit, one that an earlier revision has whole, and one cut short for good."""
    planned.configure(provider("aesgcm", key1=TRUE), provider("aescbc", old=KEY_1), IDENTITY)
    flipped, earlier, cut = (planned.key(f"shop/{name}") for name in ("flipped", "earlier", "cut"))
    for name in ("healthy-0", "healthy-1", "healthy-2"):
        planned.etcd.put(planned.key(f"shop/{name}"), aescbc(secret(name), KEY_1, "old"))
    value = seal("aesgcm", secret("flipped"), flipped)
    planned.etcd.put(flipped, value[:-40] + bytes([value[-40] ^ 1]) + value[-39:])
    planned.etcd.put(earlier, seal("aesgcm", secret("earlier"), earlier))
    planned.etcd.put(earlier, b"k8s:enc:aesgcm:v1:key1:short")
    planned.etcd.put(cut, b"k8s:enc:aesgcm:v1:key1:short")
    planned.secrets("aesgcm", ["whole-0", "whole-1", "whole-2"])
    return flipped, earlier, cut


def at_object(monkeypatch: pytest.MonkeyPatch, number: int, happens: Callable[[], object]) -> None:
    """Let something happen just before an object of the run is looked at."""
    seen = 0
    change = run_plan._Work._change

    def changed(self: object, task: object, log: object) -> object:
        nonlocal seen
        seen += 1
        if seen == number:
            happens()
        return change(self, task, log)  # type: ignore[arg-type]

    monkeypatch.setattr(run_plan._Work, "_change", changed)


def not_written(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the so-manieth record of the log not be written."""
    written = 0

    def announced(step: object, name: str, action: str) -> object:
        nonlocal written
        if name == "audit log" and action.startswith("write"):
            written += 1
            if written == number:
                raise OSError(5, "Input/output error")
        return durable.announced(step, name, action)  # type: ignore[arg-type]

    monkeypatch.setattr(log_module, "announced", announced)
