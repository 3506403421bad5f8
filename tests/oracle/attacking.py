"""Deletions, restores and re-encryptions, wanted and by mistake: each tree has an etcd, and both stand alike.

The situations are those of the tests, which decide what is done; what is asserted of words there does not count here.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer, EtcdServers
from tests.frozen.test_changes import CASES, PREFIX, Freezing
from tests.integration.attacks import (
    test_fix_bit,
    test_fix_sources,
    test_keys,
    test_real_damage,
    test_rules,
    test_surroundings,
    test_two_writers,
)
from tests.oracle.comparing import Group
from tests.oracle.trees import Tree, json_of
from tests.support.change_runs import Ran
from tests.support.objects import IDENTITY, KEY_1, provider

Situation = Callable[["Attacked"], object]
MODULES: Final = (
    test_rules, test_keys, test_surroundings, test_real_damage, test_fix_bit, test_fix_sources, test_two_writers
)  # fmt: skip


class Attacked(Freezing):
    """A registry that is changed by the commands of one tree."""

    def __init__(self, tree: Tree, etcd: EtcdServer, folder: Path, authority: CertificateAuthority) -> None:
        self.tree = tree
        self.ended_early = False
        super().__init__(etcd, PREFIX, folder, None, authority=authority)

    def step(self, command: str, *arguments: str, **common: Any) -> None:
        """Run a command as a person would, and keep what it came to and what etcd holds then."""
        reports = command in {"delete", "restore", "reencrypt", "repair"}
        self.run(command, *arguments, *self.common(**common), *(["-o", "json"] if reports else []))

    def run(self, *arguments: str) -> Ran:
        """Run etcdfix with these arguments and no others; keep what it came to."""
        before = self.etcd.revision()
        ran = self.tree.run(*arguments)
        # A value that was encrypted anew has another nonce in each tree.
        anew = any(step.get("command") == "reencrypt" for step in self.steps) or arguments[0] == "reencrypt"
        held = {stored.key.decode(): _told(stored.value, anew=anew) for stored in self.keyspace()[1]}
        self.steps.append(
            {
                "command": arguments[0],
                "exit_code": ran.code,
                "refused": _rule_of(ran.err),
                "told": json_of(ran.out),
                "writes": self.etcd.revision() - before,
                "held": held,
            }
        )
        return ran

    def came_to(self) -> dict[str, Any]:
        """Return the steps, the records and the backups, with names for what chance has made."""
        records = (
            [json.loads(line) for line in self.log.read_bytes().splitlines()] if self.log.exists() else []
        )
        backups = [json.loads(path.read_bytes()) for path in self.backups.glob("*.json")]
        backups.sort(key=lambda backup: backup["intent"]["sequence"])
        found = {"steps": self.steps, "records": records, "backups": backups}
        whole: dict[str, Any] = self.chance().without(_decoded(found))
        return whole

    def refuses(self, keys: Iterable[bytes], *arguments: str, **common: Any) -> list[Ran]:
        """Try to delete each key; whether that is refused, and how, is compared."""
        wanted = {name: value for name, value in common.items() if name not in {"says", "hint"}}
        return [self.delete(key, *arguments, "-o", "json", **wanted) for key in keys]

    def refused(self, ran: Ran, *_words: str, hint: str = "") -> None:
        """Take it as it is: words and hints are not compared."""


def _decoded(value: Any) -> Any:
    """Return JSON with the JSON that stands in its texts."""
    if isinstance(value, dict):
        return {name: _decoded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_decoded(part) for part in value]
    nested = isinstance(value, str) and value.startswith(("{", '["'))
    return _decoded(json.loads(value)) if nested else value


def _told(value: bytes, *, anew: bool) -> str:
    envelope = re.match(rb"k8s:enc:[^:]*:[^:]*:[^:]*:", value)
    start = envelope.group() if envelope else value[:24]
    digest = "" if anew and envelope else hashlib.sha256(value).hexdigest()
    return f"{start!r}-{len(value)}-{digest}".replace(" ", "_")


def _rule_of(text: str) -> bool:
    """Say whether anything was refused in words; which rule it was, the JSON says."""
    return any(line.startswith("etcdfix: ") for line in text.splitlines())


def situations() -> Iterator[tuple[str, Situation]]:
    """Yield what is frozen, and every test of an attack that needs no more than a registry."""
    yield from CASES.items()
    found = (one for module in MODULES for one in _attacks(module))
    yield from found


def _attacks(module: ModuleType) -> Iterator[tuple[str, Situation]]:
    for name, test in vars(module).items():
        if name.startswith("test_"):
            for case, given in _parameters(test):
                if set(inspect.signature(test).parameters) <= {"registry", "tmp_path", *given}:
                    yield (
                        f"{module.__name__.rpartition('.')[2]}::{name}{case}",
                        _situation(module, test, given),
                    )


def _parameters(test: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    axes = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
            rows = [getattr(row, "values", row) if len(names) > 1 else (row,) for row in mark.args[1]]
            axes.append(
                [(f"[{number}]", dict(zip(names, row, strict=True))) for number, row in enumerate(rows)]
            )
    for chosen in itertools.product(*axes):
        yield "".join(case for case, _ in chosen), {k: v for _, row in chosen for k, v in row.items()}


def _situation(module: ModuleType, test: Any, given: dict[str, Any]) -> Situation:
    def play(it: Attacked) -> None:
        if not hasattr(module, "registry"):  # as the fixture of all the others makes it
            it.configure(provider("aescbc", key1=KEY_1), IDENTITY)
        place = {"tmp_path": it.folder} if "tmp_path" in inspect.signature(test).parameters else {}
        try:
            test(it, **given, **place)
        except Exception:  # noqa: BLE001 - it asserts the words of one tree, and was told those of another
            it.ended_early = True

    return play


def attacks(trees: tuple[Tree, Tree], folder: Path, sample: int) -> Group:
    """Every situation in both trees: exit codes, refusals, what is in etcd after each step, records and backups."""
    group = Group("attacks")
    with ExitStack() as stack:
        servers = stack.enter_context(closing(EtcdServers.as_processes()))
        etcds = [servers.start(token="etcdfix-oracle") for _ in trees]
        pool = stack.enter_context(ThreadPoolExecutor(2))
        authority = CertificateAuthority(folder)
        for number, (name, situation) in enumerate(itertools.islice(situations(), 0, None, sample)):
            same_revision(etcds)
            places = [folder / f"{number}-{index}" for index in range(2)]

            def played(
                tree: Tree, etcd: EtcdServer, place: Path, situation: Situation = situation
            ) -> Attacked:
                place.mkdir()
                it = Attacked(tree, etcd, place, authority)
                situation(it)
                etcd.etcdctl("del", "--prefix", "")
                return it

            both = list(pool.map(played, trees, etcds, places))
            old, new = (it.came_to() for it in both)
            if any(it.ended_early for it in both):  # what follows was done to one of them alone
                steps = min(len(it.steps) for it in both)
                old, new = ({"steps": found["steps"][:steps]} for found in (old, new))
            group.compare(name, old, new)
    return group


def same_revision(etcds: list[EtcdServer]) -> None:
    """Have both at the same revision, whatever was done to them."""
    revisions = [etcd.revision() for etcd in etcds]
    for etcd, revision in zip(etcds, revisions, strict=True):
        for _ in range(max(revisions) - revision):
            etcd.etcdctl("put", "/aside", json.dumps(revision))
