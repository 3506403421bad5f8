"""Every damage that was done to alpha, explained and told with its history: the cause, and nothing that is secret."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import msgspec
import pytest
import yaml

from etcdfix.cli.root import run
from etcdfix.commands.explain import ExplainRequest, explain_key
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.examine.one import Examiner, Reading
from etcdfix.model.model import Outcome
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.explain import ExplainReport, LayoutBase, Shows
from etcdfix.report.objects import Viewer
from etcdfix.report.render import FORMS
from etcdfix.report.schema import SCHEMAS
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.text.commands import RunOptions
from tests.support.alpha_oracle import ORACLE
from tests.support.collecting import ALPHA, alpha_plugins, ask, scan
from tests.support.fixtures import Captured
from tests.support.rendering import rendered
from tests.support.thorough import some
from tests.vectors.test_alpha_causes import all_keys, expected

LAYOUT: Final = StorageLayout()
LOST: Final = parse_configuration((ALPHA / "config-lost.yaml").read_bytes(), path="lost.yaml")
KEYS: Final = sorted(ORACLE["damage"])
_SHORTEST: Final = 12
# One value is searched for longer than each of a scan: the data key of another one opens it, so its own is damaged.
SEARCHED: Final = {"/registry/secrets/infra/mail-kmsv2-1": "kms-envelope-damaged"}


class Alpha(msgspec.Struct, frozen=True):
    """What every test reads: the snapshot with all keys, and the strings that must never be seen."""

    source: SnapshotSource
    plugins: KMSPlugins
    configuration: EncryptionConfiguration
    hidden: frozenset[str]

    def __repr__(self) -> str:
        return "Alpha()"


def contents(value: Any) -> Iterator[str]:
    for text in (value.get("data") or {}).values():
        yield text
        yield base64.b64decode(text).decode("utf-8", "replace")


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alpha]:
    configuration = parse_configuration(yaml.safe_dump(all_keys()).encode(), path="all.yaml")
    hidden = {
        key["secret"]
        for rule in all_keys()["resources"]
        for provider in rule["providers"]
        for kind in provider.values()
        for key in (kind or {}).get("keys", ())
    }
    with (
        alpha_plugins(tmp_path_factory.mktemp("explained")) as plugins,
        ask(plugins) as asked,
        SnapshotSource(ALPHA / "snapshot.db.gz") as source,
    ):
        reading = Reading(layout=LAYOUT, configuration=configuration, kubernetes_minor=36)
        examiner = Examiner.of_cluster(source, reading, asked)
        viewer = Viewer(examiner, reveal=True)
        for stored in source.current(b"/registry/secrets/"):
            for kept in source.history(stored.key):
                found = examiner.examine(kept.stored) if kept.stored is not None else None
                if found is not None and found.verdict.outcome is Outcome.READABLE:
                    hidden |= set(contents(viewer.show(found).document))
        assert len(hidden) > 100
        yield Alpha(source, asked, configuration, frozenset(h for h in hidden if len(h) >= _SHORTEST))


def explained(alpha: Alpha, key: str, **changes: Any) -> ExplainReport:
    request = ExplainRequest(
        layout=LAYOUT, configuration=alpha.configuration, kubernetes_minor=36, key=key.encode()
    )
    request = msgspec.structs.replace(request, **changes)
    report = explain_key(alpha.source, request, plugins=alpha.plugins).report
    assert report is not None
    return report


def assert_nothing_secret(alpha: Alpha, text: str) -> None:
    seen = [hidden[:4] for hidden in alpha.hidden if hidden in text]
    assert not seen


@pytest.mark.parametrize("key", some(KEYS, of=3))
def test_the_cause_is_named_and_nothing_secret(key: str, alpha: Alpha) -> None:
    report = explained(alpha, key)
    assert report.finding is not None
    cause = SEARCHED.get(key, expected(key))
    assert report.finding.cause == cause
    stored = [part for part in report.layout if part.where is LayoutBase.STORED]
    assert sum(part.length for part in stored) == report.finding.value_size
    for form in FORMS:
        text = rendered(report, form)
        assert_nothing_secret(alpha, text)
        if form == "json":
            jsonschema.validate(json.loads(text), SCHEMAS["explain"]())
        if form == "text":
            assert cause is None or cause in text.partition("\n")[0]
            assert len(text.splitlines()) <= 24


@pytest.mark.parametrize("key", some(KEYS, of=8))
def test_its_history_says_what_it_was(key: str, alpha: Alpha) -> None:
    report = explained(alpha, key, shows=Shows.HISTORY)
    assert report.history is not None
    newest, *_, oldest = [*report.history.writes] * 2
    copied = "copied to another key" in ORACLE["damage"][key]
    assert (oldest.outcome is Outcome.READABLE, newest.present) == (not copied, True)
    for form in ("text", "wide", "json"):
        assert_nothing_secret(alpha, rendered(report, form))


@pytest.mark.parametrize("configuration", [LOST, None], ids=["other keys", "no configuration"])
def test_without_the_keys_nothing_secret_is_seen_either(
    configuration: EncryptionConfiguration | None, alpha: Alpha
) -> None:
    for key in KEYS[::12]:
        request = ExplainRequest(layout=LAYOUT, configuration=configuration, key=key.encode())
        report = explain_key(alpha.source, request).report
        assert report is not None
        assert report.finding is not None
        assert_nothing_secret(alpha, rendered(report, "wide"))


def test_a_scan_says_of_one_value_what_explain_says(alpha: Alpha) -> None:
    config = ALPHA / "config-lost.yaml"
    options = RunOptions(
        source=("--snapshot", "alpha.db"), reading=("--encryption-config", str(config), "--no-kms")
    )
    report = scan(alpha.source, config, run=options)[1].report
    alone = [group for group in report.summary.groups if group.count == 1 and group.outcome != "undetermined"]
    assert {"cache-plain-8", "web-plain-7"} <= {group.example.rpartition("/")[2] for group in alone}
    for group in some(alone, of=4):
        key, configuration = (
            group.example.encode(),
            parse_configuration(config.read_bytes(), path=str(config)),
        )
        request = ExplainRequest(layout=LAYOUT, configuration=configuration, run=options, key=key)
        told = explain_key(alpha.source, request).report
        assert told is not None
        assert group.way == told.next is not None, group.example


def test_an_audit_log_that_cannot_be_read_costs_no_explanation(tmp_path: Path, capfd: Captured) -> None:
    log = tmp_path / "audit.log"
    log.write_text('{"not": "a record"}\n')
    log.chmod(0o600)
    config, candidate = ALPHA / "config-lost.yaml", ALPHA / "write-cbc-key2.yaml"
    read = ["--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", str(config), "--no-kms"]
    words = ["explain", "/registry/secrets/infra/cache-cbc-key2-12", *read, "--in", f"candidate:{candidate}"]
    assert run([*words, "--backup-dir", str(tmp_path), "--audit-log", str(log), "-o", "json"]) == 3
    shown = capfd.readouterr()
    assert "--accept undeployed-write-key" in json.loads(shown.out)["next"]["command"]
    assert "line 1: it is no record" in shown.err
