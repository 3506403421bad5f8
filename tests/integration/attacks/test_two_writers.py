"""A second API server with other bytes under the old key name: what it writes is in order, and looks like damage."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.model.rules import Rule
from tests.support.attacks import (
    EVERY_FLAG,
    TRUE,
    WRONG,
    Attacked,
    declared,
    every_flag_but,
    seal,
    secret,
)
from tests.support.kubernetes_api import KubernetesAPI

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

OLDER = ["a", "b", "c"]


def newest(registry: Attacked, kind: str, older: list[str]) -> bytes:
    registry.keyed(kind)
    registry.secrets(kind, older)
    (at,) = registry.secrets(kind, ["web"], WRONG)
    return at


@pytest.mark.parametrize("kind", ["aesgcm", "aescbc"])
def test_the_newest_value_alone(registry: Attacked, api: KubernetesAPI, kind: str) -> None:
    """No flag stands in for the word of every API server."""
    at = newest(registry, kind, OLDER)
    registry.refuses([at], *EVERY_FLAG, rule="no-api-server", hint="--kubeconfig")
    asking = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    api.reads = True
    registry.refuses([at], *EVERY_FLAG, *asking, rule="configuration-wrong")
    api.reads = False
    registry.refuses([at], *every_flag_but(Rule.UNPROVEN_DAMAGE), *asking, accept="unproven-damage")
    # One that is listed and does not answer may be the one that wrote it.
    api.listed = [("127.0.0.1", api.port), ("127.0.0.1", 9)]
    registry.refuses([at], *EVERY_FLAG, *asking, rule="no-api-server")
    api.listed = None
    registry.refuses([at], *EVERY_FLAG, *asking, rule="no-api-server")
    api.listed = [("127.0.0.1", api.port)]
    ran = registry.delete(at, "--accept", "unproven-damage", *asking, "--dry-run")
    assert ran.code == 0, ran.err


def test_fewer_older_values_or_more_that_fail_are_the_key(registry: Attacked) -> None:
    kind = "secretbox"
    at = newest(registry, kind, OLDER[:2])
    registry.refuses([at], *EVERY_FLAG, cause="wrong-key")
    registry.secrets(kind, ["c"])
    more = registry.secrets(kind, ["late-0", "late-1"], WRONG)
    registry.refuses(more, *EVERY_FLAG, cause="wrong-key")


def test_two_that_write_in_turns(registry: Attacked) -> None:
    """Under the configuration of either, what the other wrote is never damaged."""
    written: dict[bytes, list[bytes]] = {TRUE: [], WRONG: []}
    registry.secrets("aescbc", OLDER)
    for number in range(4):
        for key in written:
            name = f"{'true' if key is TRUE else 'wrong'}-{number}"
            written[key] += registry.secrets("aescbc", [name], key)
    lost, hint = declared("aescbc/v1/key1"), "etcdfix encryption check"
    for own, other in ((TRUE, WRONG), (WRONG, TRUE)):
        registry.keyed("aescbc", own)
        registry.refuses(written[other], *EVERY_FLAG, cause="wrong-key", hint=hint)
        registry.refuses(written[other][:1], *EVERY_FLAG, *lost, rule="declaration", hint=hint)


def test_a_kept_revision_goes_over_the_newest_value_only_with_the_word_of_every_server(
    registry: Attacked, api: KubernetesAPI
) -> None:
    (at,) = registry.secrets("aesgcm", ["web"])
    kept = registry.mod_revision(at)
    registry.secrets("aesgcm", OLDER)
    registry.etcd.put(at, seal("aesgcm", secret("web"), at, WRONG))
    source, risk = f"revision:{kept}", ("--accept", "unproven-damage")
    registry.refused(registry.put_back(at, source, *risk), hint="--kubeconfig FILE")
    asking = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    ran = registry.put_back(at, source, *risk, *asking)
    assert ran.code == 0, ran.err
    assert registry.stored(at) == seal("aesgcm", secret("web"), at)


@pytest.mark.parametrize("kept", [False, True])
def test_scan_explain_and_plan_print_the_same_way_out(registry: Attacked, *, kept: bool) -> None:
    """Each with the word of every API server: without it, the command is refused."""
    at = registry.key("shop/web")
    if kept:
        registry.secrets("aesgcm", ["web"])
    registry.secrets("aesgcm", OLDER)
    registry.etcd.put(at, seal("aesgcm", secret("web"), at, WRONG))
    common = registry.common(places=False, reason=None)
    report = registry.folder / "report.json"
    report.write_text(registry.run("scan", *common, "-o", "json").out)
    documents = {
        "scan": report.read_text(),
        "explain": registry.run("explain", at.decode(), *common, "-o", "json").out,
        "plan": registry.run("plan", "--from-report", str(report), *common, "-o", "json").out,
    }
    for verb in ("delete", "fix"):
        for which, document in documents.items():
            ours = [each for each in commands_in(json.loads(document)) if each[:2] == ["etcdfix", verb]]
            # A plan has the command of what it proposes alone.
            shown = kept if verb == "fix" else not (kept and which == "plan")
            assert bool(ours) is shown, (which, verb)
            for words in ours:
                assert words[words.index("--kubeconfig") + 1] == "FILE", (which, words)


def commands_in(document: Any) -> Iterator[list[str]]:
    if isinstance(document, str):
        if document.startswith("etcdfix ") and "\n" not in document:
            yield shlex.split(document)
        return
    if isinstance(document, dict):
        document = list(document.values())
    for inner in document if isinstance(document, list) else ():
        yield from commands_in(inner)


@pytest.mark.parametrize("older", [0, 3])
def test_two_bytes_are_damage_and_the_kept_revision_goes_back(registry: Attacked, older: int) -> None:
    """That an earlier revision opens shows the etcd key to be the associated data, whatever others do."""
    registry.secrets("aesgcm", OLDER[:older])
    (at,) = registry.secrets("aesgcm", ["web"])
    kept, whole = registry.mod_revision(at), seal("aesgcm", secret("web"), at)
    registry.etcd.put(at, whole[:-60] + bytes(byte ^ 0x41 for byte in whole[-60:-58]) + whole[-58:])
    registry.refuses(
        [at],
        *every_flag_but(Rule.UNPROVEN_DAMAGE),
        accept="unproven-damage",
    )
    risk = ("--accept", "unproven-damage")
    assert registry.delete(at, *risk, "--dry-run").code == 0
    source = f"revision:{kept}"
    registry.refused(registry.put_back(at, source), "not proven", hint="--accept unproven-damage")
    ran = registry.put_back(at, source, *risk)
    assert ran.code == 0, ran.err
    assert registry.stored(at) == whole
