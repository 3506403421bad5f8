"""A scan from a source in memory to a report: exit codes, the head, two writers, OpenShift."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.cli.look import ExitCode, scan_exit_code
from etcdfix.cli.root import run
from etcdfix.commands.scan import ScanRequest, ScanResult, run_scan
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.model.errors import SourceUnreachable
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.model import NewFindings
from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.saved_report import Baseline, load_baseline
from etcdfix.report.scan import found_line
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.text.commands import RunOptions
from tests.support.collecting import CollectingReporter
from tests.support.examinations import LAYOUT
from tests.support.fixtures import CapturedBytes, Patch
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    config_map,
    configuration,
    crd,
    json_object,
    namespace_object,
    provider,
    secret,
    widget,
)

CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
CONFIG = configuration(provider("aescbc", key1=KEY_1))
HEALTHY = {
    "compact_rev_key": b"589",
    "/registry/configmaps/shop/settings": config_map(),
    "/registry/namespaces/kube-system": namespace_object("kube-system"),
    "/registry/secrets/shop/web": aescbc(secret()),
    CRD_KEY: crd(),
    "/registry/example.com/widgets/shop/w-0": widget(),
}
BROKEN = {"/registry/secrets/shop/web-broken": aescbc(secret())[:-1]}
PLUGIN = {"/registry/secrets/shop/kms": b"k8s:enc:kms:v2:prov:x"}


def scan(
    holds: dict[str, bytes] | MemorySource,
    *arguments: str,
    config: Any = CONFIG,
    prefix: str = "/registry",
    **request: Any,
) -> tuple[CollectingReporter, ScanResult]:
    source = holds if isinstance(holds, MemorySource) else MemorySource(holds)
    reporter = CollectingReporter()
    request.setdefault("scope", ScopeRequest(arguments))
    result = run_scan(
        source, ScanRequest(layout=StorageLayout(prefix), configuration=config, **request), reporter
    )
    return reporter, result


def code(result: ScanResult) -> int:
    return scan_exit_code(result)


PROVIDER_KMS = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///run/kms.sock"}}
WITH_KMS = configuration(provider("aescbc", key1=KEY_1), PROVIDER_KMS)
SILENT = SourceUnreachable("nobody answers any more")
MIDWAY = "the source was lost midway: nobody answers any more"
PAGE = "page 7 cannot be read"


@pytest.mark.parametrize(
    ("source", "expected", "keys", "reason"),
    [
        (MemorySource(HEALTHY), ExitCode.NOTHING_WRONG, 6, ""),
        (MemorySource(HEALTHY | BROKEN), ExitCode.FINDINGS, 7, ""),
        (MemorySource(HEALTHY | PLUGIN), ExitCode.INCOMPLETE, 7, "undetermined: 1 key"),
        (MemorySource(HEALTHY | PLUGIN | BROKEN), ExitCode.INCOMPLETE, 8, "undetermined: 1 key"),
        (MemorySource(HEALTHY, problems=[PAGE]), ExitCode.INCOMPLETE, 6, PAGE),
        (MemorySource(HEALTHY | BROKEN, problems=[PAGE]), ExitCode.INCOMPLETE, 7, PAGE),
        *((MemorySource(HEALTHY | BROKEN, fails_after=n, failure=SILENT), ExitCode.INCOMPLETE, n, MIDWAY)
          for n in range(1, 7)),
        (MemorySource(HEALTHY | BROKEN, fails_after=3, failure=KeyboardInterrupt()), ExitCode.INTERRUPTED, 3,
         "interrupted before the end"),
    ],
)  # fmt: skip
def test_what_a_scan_comes_to(source: MemorySource, expected: ExitCode, keys: int, reason: str) -> None:
    reporter, result = scan(source, config=WITH_KMS)
    report, conclusion = result.report, reporter.conclusion
    assert (code(result), report.summary.keys, result.nothing) == (expected, keys, None)
    assert report.incomplete_reasons == ([reason] if reason else [])
    assert report.complete is not bool(reason)
    assert conclusion is not None
    assert (conclusion.complete, conclusion.incomplete_reasons) == (
        report.complete,
        report.incomplete_reasons,
    )
    assert conclusion.interrupted is (expected is ExitCode.INTERRUPTED)
    assert result.problems == ([reason] if reason in {PAGE, MIDWAY} else [])
    whole = reason not in {MIDWAY, "interrupted before the end"}
    assert not whole or report.summary.readable == 5
    assert set(reporter.findings) <= {*BROKEN, *PLUGIN}


def test_a_source_lost_before_the_first_key_examined_nothing() -> None:
    with pytest.raises(SourceUnreachable, match="nobody answers"):
        scan(MemorySource(HEALTHY, fails_after=0, failure=SILENT))


@pytest.mark.parametrize(
    ("holds", "prefix", "suggested"),
    [
        ({"/kubernetes.io/secrets/shop/web": secret()}, "/registry", ["/kubernetes.io"]),
        ({"/secrets/shop/web": secret(), "compact_rev_key": b"7"}, "/registry", ["/"]),
        (HEALTHY, "/kubernetes.io", ["/registry"]),
        ({f"/kubernetes.io/secrets/shop/{n}": b"" for n in range(250)}, "/registry", ["/kubernetes.io"]),
        ({"other/x": b"1"}, "/registry", []),
        ({}, "/registry", []),
    ],
)
def test_a_wrong_prefix_examines_nothing_and_says_where_the_keys_are(
    holds: dict[str, bytes], prefix: str, suggested: list[str]
) -> None:
    for arguments in ((), ("secrets",), ("/nowhere/",)):
        _reporter, result = scan(holds, *arguments, prefix=prefix)
        assert result.nothing is not None
        assert ("seem to be under" in result.nothing.hint) is bool(suggested)
        assert all(place in result.nothing.hint for place in suggested)
        assert code(result) is ExitCode.SOURCE


def test_remarks_do_not_count_towards_the_exit_code() -> None:
    foreign = {"/registry/example.org/gadgets/shop/g": widget("g", kind="Gadget")}
    reporter, result = scan(HEALTHY | foreign)
    (finding,) = reporter.findings.values()
    assert (finding.outcome, finding.cause) == ("readable", "owner-unknown")
    assert code(result) is ExitCode.NOTHING_WRONG


def save_report(tmp_path: Path, holds: dict[str, bytes], config: Any) -> Path:
    path = tmp_path / "last-night.json"
    with path.open("wb") as stream:
        request = ScanRequest(layout=StorageLayout(), configuration=config)
        run_scan(MemorySource(holds), request, SCAN_FORMS["json"](stream, RunOptions()))
    return path


NEW = {"/registry/secrets/shop/new": b"x"}


@pytest.mark.parametrize(
    ("before", "now", "config", "expected"),
    [
        (HEALTHY | BROKEN, HEALTHY | BROKEN, CONFIG, ExitCode.NOTHING_WRONG),
        (HEALTHY, HEALTHY | BROKEN, CONFIG, ExitCode.FINDINGS),
        (HEALTHY | BROKEN, HEALTHY | BROKEN | NEW, CONFIG, ExitCode.FINDINGS),
        (HEALTHY | BROKEN, HEALTHY, CONFIG, ExitCode.NOTHING_WRONG),
        (HEALTHY | PLUGIN, HEALTHY | PLUGIN, WITH_KMS, ExitCode.NOTHING_WRONG),
        (HEALTHY | PLUGIN, HEALTHY | PLUGIN | BROKEN, WITH_KMS, ExitCode.FINDINGS),
        (HEALTHY | BROKEN, HEALTHY | PLUGIN | BROKEN, WITH_KMS, ExitCode.INCOMPLETE),
        (HEALTHY | PLUGIN, HEALTHY | {"/registry/secrets/shop/kms": b""}, WITH_KMS, ExitCode.FINDINGS),
    ],
)
def test_baseline(
    tmp_path: Path, before: dict[str, bytes], now: dict[str, bytes], config: Any, expected: ExitCode
) -> None:
    baseline = load_baseline(save_report(tmp_path, before, config))
    reporter, result = scan(now, config=config, baseline=baseline)
    assert code(result) is expected
    known = {key for key in reporter.findings if key in before and key in now and before[key] == now[key]}
    assert {key for key, finding in reporter.findings.items() if finding.baseline} == known
    assert result.report.summary.known_findings == len(known)
    assert len(reporter.findings) == sum(result.new.values()) + len(known)
    said = found_line(result.report)
    assert said.startswith("INCOMPLETE: ") == (expected is ExitCode.INCOMPLETE)
    fresh = sorted(reporter.findings.keys() - known)
    assert not fresh or f"{len(fresh)} NEW: {fresh[0]}" in said
    told = result.report.summary.new
    assert told == NewFindings(len(fresh), result.new[Outcome.UNDETERMINED], fresh[0] if fresh else None)


def test_a_source_lost_midway_is_incomplete_though_nothing_is_new(tmp_path: Path) -> None:
    baseline = load_baseline(save_report(tmp_path, HEALTHY | PLUGIN, WITH_KMS))
    source = MemorySource(HEALTHY | PLUGIN, problems=["page 7 cannot be read"])
    _, result = scan(source, config=WITH_KMS, baseline=baseline)
    assert code(result) is ExitCode.INCOMPLETE
    assert found_line(result.report).startswith("INCOMPLETE: nothing new (1 known)")


@pytest.mark.parametrize("output", list(SCAN_FORMS))
def test_every_format_of_a_scan_of_hostile_keys(output: str) -> None:
    keys = [
        b"/registry/\xff/x", b"/registry/secrets/\x1b[2J/\xfe", "/registry/a.b/\u202e/c/d".encode(), b"\xff",
    ]  # fmt: skip
    source = MemorySource(stored(key, b"junk") for key in keys)
    stream = io.BytesIO()
    request = ScanRequest(
        layout=StorageLayout(), configuration=CONFIG,
        scope=ScopeRequest(keys=tuple(keys), arguments=(b"/registry/\xfe".decode("utf-8", "surrogateescape"),)),
    )  # fmt: skip
    result = run_scan(source, request, SCAN_FORMS[output](stream, RunOptions()))
    assert all(line.isprintable() for line in stream.getvalue().decode().splitlines())
    assert (result.report.summary.keys, result.report.summary.not_objects) == (4, 1)
    if output == "json":
        assert json.loads(stream.getvalue())["scope"]["prefixes"][0] == "/registry/\\xfe"


LOST_CRD = {CRD_KEY: b"junk", "/registry/namespaces/shop": namespace_object("shop")}
WIDGET = {"/registry/example.com/widgets/shop/w-0": widget()}


@pytest.mark.parametrize("arguments", [(), ("widgets",), ("widgets.example.com",)])
def test_objects_of_an_unreadable_definition_are_in_scope_of_namespace(arguments: tuple[str, ...]) -> None:
    reporter, result = scan(LOST_CRD | WIDGET, scope=ScopeRequest(arguments, (), ("shop",)))
    (finding,) = reporter.findings.values()
    assert (finding.key, finding.cause) == (*WIDGET, "owner-unknown")
    assert result.report.summary.keys == 1


EMPTY = {"/registry/namespaces/empty": namespace_object("empty")}


@pytest.mark.parametrize(
    ("scope", "exists"),
    [
        (ScopeRequest(namespaces=("nowhere",)), False),
        (ScopeRequest(("secrets",), namespaces=("nowhere", "neither")), False),
        (ScopeRequest(("/registry/secrets/none",)), False),
        (ScopeRequest(keys=(b"/registry/secrets/shop/none",)), False),
        (ScopeRequest(("secrets",), namespaces=("empty",)), True),
        (ScopeRequest(("secrets",), namespaces=("empty", "nowhere")), True),
        (ScopeRequest(("secrets",), namespaces=("orphaned",)), True),
    ],
)
def test_what_was_named_and_does_not_exist_makes_no_complete_report(
    scope: ScopeRequest, exists: bool
) -> None:
    orphaned = {"/registry/secrets/orphaned/web": aescbc(secret("web", "orphaned"))}
    _reporter, result = scan(HEALTHY | EMPTY | orphaned, scope=scope)
    assert code(result) is (ExitCode.NOTHING_WRONG if exists else ExitCode.SOURCE)
    assert result.report.incomplete_reasons == ([] if exists else ["no key matches the given name"])


def gcm(name: str, key: bytes = KEY_1) -> bytes:
    return aesgcm(secret(name), f"/registry/secrets/shop/{name}", key)


GCM = configuration(provider("aesgcm", key1=KEY_1), resources=("secrets", "configmaps"))
OTHER = b"0" * 16


class Records(MemorySource):
    """A source of Secrets with revisions of their own."""

    def __init__(self, *entries: tuple[str, int, bytes]) -> None:
        super().__init__(
            stored(f"/registry/secrets/shop/{name}", value, mod_revision=mod_revision)
            for name, mod_revision, value in sorted(entries)
        )


def causes(reporter: CollectingReporter) -> dict[str, str | None]:
    return {key.rpartition("/")[2]: finding.cause for key, finding in reporter.findings.items()}


def test_what_values_around_one_show_is_known_whatever_the_order_of_the_keys() -> None:
    around = (("b", 10, gcm("b")), ("z", 90, gcm("z")))
    for name in ("a", "m", "zz"):
        reporter, _result = scan(Records(*around, (name, 50, gcm(name, OTHER))), config=GCM)
        assert causes(reporter) == {name: "nonce-damaged"}
        reporter, _result = scan(Records(*around, (name, 95, gcm(name, OTHER))), config=GCM)
        assert causes(reporter) == {name: "wrong-key"}


def test_findings_and_statuses_stand_in_the_order_of_the_keys_although_some_wait() -> None:
    """What is decided at once, between values that wait, is held back for them."""
    short = b"k8s:enc:aesgcm:v1:key1:short"
    entries = [
        (f"{number:03}", number, short if number % 3 else gcm(f"{number:03}", OTHER)) for number in range(30)
    ]
    reporter, result = scan(Records(*entries), config=GCM)
    assert list(reporter.findings) == sorted(reporter.findings)
    assert len(reporter.findings) == result.report.summary.decrypt_failures == 30
    assert reporter.conclusion is not None
    (status,) = reporter.conclusion.statuses
    assert [cause.field for cause in status.details.causes] == list(reporter.findings)


def flipped(name: str) -> bytes:
    value = bytearray(gcm(name))
    value[-1] ^= 4
    return bytes(value)


@pytest.mark.parametrize("others", [(), (("z", 1, gcm("z")),)])
def test_damage_under_a_key_that_is_right_is_searched_for(others: tuple[tuple[str, int, bytes], ...]) -> None:
    """A look shows that the key is right, whether anything else opens or not."""
    reporter, _result = scan(Records(("m", 5, flipped("m")), *others), config=GCM)
    assert causes(reporter) == {"m": "ciphertext-damaged"}


def test_the_search_for_damage_has_a_bound_for_each_key(monkeypatch: Patch) -> None:
    monkeypatch.setattr("etcdfix.examine.two_passes.MOST_SEARCHED", 2)
    entries = [(str(number), 50 + number, flipped(str(number))) for number in range(4)]
    reporter, _result = scan(Records(*entries, ("z", 1, gcm("z"))), config=GCM)
    assert list(causes(reporter).values()) == ["ciphertext-damaged"] * 2 + ["associated-data-unknown"] * 2


def test_a_source_that_is_lost_after_the_last_value_leaves_the_report_whole() -> None:
    """Every value was examined; only the earlier revisions of a finding could not be looked at, which is counted."""

    class Dies(MemorySource):
        def before(self, key: bytes, revision: int) -> StoredValue | None:
            raise SourceUnreachable("nobody answers")

    value = aescbc(secret())
    damaged = stored("/registry/secrets/shop/web", value[:-5], mod_revision=9, version=2)
    reporter, result = scan(Dies([damaged]))
    assert result.report.complete
    (finding,) = reporter.findings.values()
    assert [one.result for one in finding.evidence if one.check == "earlier-revision"] == ["not looked for"]


@pytest.mark.parametrize("where", ["source", "lost", "waiting"])
def test_a_scan_that_was_ended_asks_for_no_earlier_revisions(where: str) -> None:
    """Each takes etcd a tenth of a second and more, and nobody waits for it any more."""
    end: BaseException = KeyboardInterrupt() if where != "lost" else SourceUnreachable("nobody answers")
    asked: list[bytes] = []

    class Ends(Records):
        def current(self, prefix: bytes = b"") -> Iterator[StoredValue]:
            yield from super().current(prefix)
            if prefix == b"" and where != "waiting":
                raise end

        def before(self, key: bytes, revision: int) -> StoredValue | None:
            asked.append(key)
            if where == "waiting":
                raise end
            return None

    source = Ends(*((name, 50, gcm(name, OTHER)) for name in "abc"))
    reporter, result = scan(source, config=GCM)
    assert code(result) == (ExitCode.INCOMPLETE if where == "lost" else ExitCode.INTERRUPTED)
    assert len(asked) == (where == "waiting")
    # The one that was at hand is told too.
    assert causes(reporter) == dict.fromkeys("abc", "wrong-key")
    assert result.report.summary.keys == 3
    told = [one.result for found in reporter.findings.values() for one in found.evidence]
    assert told.count("not looked for") == 3


CASES = Path(__file__).parents[3] / "fixtures" / "cases"
SNAPSHOT = CASES / "05-two-servers-two-keys.db"
FAILING = {"a": 4, "b": 14}


def reading(server: str) -> dict[str, Any]:
    path = CASES / f"05-enc-{server}.json"
    again = RunOptions(source=("--snapshot", str(SNAPSHOT)), reading=("--encryption-config", str(path)))
    return {
        "layout": StorageLayout(),
        "configuration": parse_configuration(path.read_bytes(), path=str(path)),
        "run": again,
    }


@pytest.mark.parametrize("server", FAILING)
def test_what_the_other_server_wrote_is_never_damaged(server: str) -> None:
    reporter = CollectingReporter()
    with SnapshotSource(SNAPSHOT) as source:
        result = run_scan(source, ScanRequest(scope=ScopeRequest(()), **reading(server)), reporter)
    assert len(reporter.findings) == FAILING[server]
    for finding in reporter.findings.values():
        assert (finding.outcome, finding.cause) == ("decrypt-failure", "wrong-key")
        assert not any("etcdfix delete" in remedy.command.line(RunOptions()) for remedy in finding.remedies)
    way = result.report.summary.next
    assert way is not None
    assert shlex.split(way.command.line(reading(server)["run"])) == [
        "etcdfix", "encryption", "check", str(CASES / f"05-enc-{server}.json"), "FILE",
    ]  # fmt: skip


AGAIN = RunOptions(source=("--endpoints", "etcd.example:2379"), reading=("--encryption-config", "today.yaml"))
CONFIGURATION = configuration(provider("aesgcm", key1=KEY_1), resources=("secrets", "configmaps"))
KUBE_SYSTEM = {"/registry/namespaces/kube-system": namespace_object("kube-system")}


def written(
    values: Mapping[str, bytes],
    *scope: str,
    config: EncryptionConfiguration | None = CONFIGURATION,
    form: str = "json",
    baseline: Baseline | None = None,
    again: RunOptions = AGAIN,
    minor: int | None = None,
    **where: Any,
) -> bytes:
    stream = io.BytesIO()
    request = ScanRequest(
        layout=LAYOUT, scope=ScopeRequest(scope, **where), configuration=config, run=again, baseline=baseline,
        kubernetes_minor=minor,
    )  # fmt: skip
    run_scan(MemorySource(KUBE_SYSTEM | dict(values)), request, SCAN_FORMS[form](stream, request.run))
    return stream.getvalue()


def report_of(values: Mapping[str, bytes], *scope: str, **options: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(written(values, *scope, **options))
    keys = [finding["key"] for finding in document["findings"]]
    assert keys == sorted(keys)
    return document


def head(values: Mapping[str, bytes], *scope: str, **options: Any) -> list[str]:
    lines = written(values, *scope, form="text", **options).decode().splitlines()
    return lines[: lines.index("")]


def lost(count: int, name: str = "old") -> dict[str, bytes]:
    keys = [f"/registry/secrets/shop/s-{number:04}" for number in range(count)]
    return {key: aesgcm(secret(key.rpartition("/")[2]), key, KEY_2, name) for key in keys}


def readable(count: int) -> dict[str, bytes]:
    keys = [f"/registry/secrets/shop/r-{number:04}" for number in range(count)]
    return {key: aesgcm(secret(key.rpartition("/")[2]), key) for key in keys}


DAMAGED_MAP = {"/registry/configmaps/shop/settings": config_map()[:20]}


def test_what_holds_for_a_whole_lost_key_stands_once() -> None:
    document = report_of(lost(300) | readable(5))
    (entry,) = document["summary"]["key_loss"]
    assert entry.pop("first_mod_revision") < entry.pop("last_mod_revision")
    remedies = entry.pop("remedies")
    assert entry == {
        "transformer": "aesgcm/v1/old", "rule": "secrets,configmaps", "resources": ["secrets"],
        "key_fingerprint": None, "failures": 300, "of": 300,
    }  # fmt: skip
    assert not any("delete" in remedy["command"] for remedy in remedies)
    findings = document["findings"]
    assert (len(findings), [finding for finding in findings if finding["remedies"]]) == (300, [])
    assert {(one["rule"], one["severity"]) for one in findings} == {("secrets,configmaps", "breaks-now")}
    (group,) = document["summary"]["groups"]
    assert (group["count"], group["by_resource"], group["namespaces"]) == (300, {"secrets": 300}, 1)
    assert group["way"] == {"verb": "rescue"} | remedies[0]
    assert document["summary"]["next"] == remedies[0]


def test_a_key_that_opens_much_and_fails_in_numbers_is_lost_too_and_damage_is_not_its() -> None:
    wrong = {key.replace("s-", "w-"): value for key, value in lost(12, "key1").items()}
    wrong = {key: aesgcm(secret(), key, KEY_2) for key in wrong}
    damaged = {"/registry/secrets/shop/x": b"k8s:enc:aesgcm:v1:key1:" + b"short"}
    document = report_of(wrong | readable(3) | damaged)
    (entry,) = document["summary"]["key_loss"]
    assert (entry["failures"], entry["of"]) == (13, 16)
    by_key = {finding["key"]: finding for finding in document["findings"]}
    assert by_key["/registry/secrets/shop/x"]["remedies"]
    assert all(not by_key[key]["remedies"] for key in wrong)


def test_findings_behind_a_lost_key_stay_in_order_and_keep_their_remedies() -> None:
    other = {"/registry/secrets/shop/zz": aesgcm(b"", "/registry/secrets/shop/zz")}
    document = report_of(lost(20) | DAMAGED_MAP | other | {"/registry/pods/shop/p": b"k8s\x00broken"})
    assert [bool(f["remedies"]) for f in document["findings"]] == [True, True] + [False] * 20 + [True]


def test_a_narrow_scope_says_no_more_than_it_saw() -> None:
    lines = head(readable(2) | lost(3), "configmaps", namespaces=("shop",))
    assert lines[0].startswith("NOTHING WAS EXAMINED")
    lines = head(readable(2) | DAMAGED_MAP, "secrets")
    assert lines[0] == "NOTHING WRONG FOUND in 2 objects in scope of the snapshot; the rest was not examined"
    assert shlex.split(lines[2]) == ["etcdfix", "scan", *AGAIN.source, *AGAIN.reading]
    (one,) = lost(1)
    assert shlex.split(head(lost(3), one)[-1])[:3] == ["etcdfix", "rescue", "secrets"]


def test_without_a_configuration_it_is_asked_for_with_the_same_scope() -> None:
    again = msgspec.structs.replace(AGAIN, reading=("--kubernetes-version", "1.36"))
    lines = head(readable(2), "secrets", namespaces=("shop",), config=None, again=again)
    assert "RESTART" not in "".join(lines)
    assert shlex.split(lines[-1]) == [
        "etcdfix", "scan", *AGAIN.source, "--encryption-config", "FILE", "--kubernetes-version", "1.36",
        "secrets", "-n", "shop",
    ]  # fmt: skip


def test_no_encryption_says_what_a_configuration_with_nothing_but_identity_does() -> None:
    none = msgspec.structs.replace(AGAIN, reading=("--no-encryption",))
    identity = configuration(IDENTITY)
    for values in (readable(18), readable(2) | DAMAGED_MAP):
        told, alike = head(values, config=None, again=none), head(values, config=identity)
        assert told[:4] == alike[:4]
    assert told[2].startswith("BREAKS NOW")
    said = report_of(readable(2), config=None, again=none)
    assert [found["cause"] for found in said["findings"]] == ["resource-not-configured"] * 2
    assert (said["encryption_config"], said["complete"]) == (None, True)


def test_a_scope_that_a_scan_would_not_know_is_not_proposed() -> None:
    names = [f"/registry/a;b.example.com/$(x)/w{number}" for number in range(3)]
    values = {name: aesgcm(b"x" * 90, name, KEY_2, "old") for name in names}
    config = configuration(provider("aesgcm", key1=KEY_1), {"identity": {}}, resources=("*.*",))
    document = report_of(values, config=config)
    for entry in document["summary"]["key_loss"]:
        assert "$(x)" not in entry["remedies"][0]["command"]


RECORDED = Path(__file__).parents[3] / "fixtures/cases"
ROUTE_KEY = "/openshift.io/routes/shop/r1"
TOKEN_KEY = "/openshift.io/oauth/accesstokens/sha256~abc"
ROUTE = json_object("route.openshift.io/v1", "Route", "r1", namespace="shop")
OWN = ("secrets", "routes.route.openshift.io", "oauthaccesstokens.oauth.openshift.io")


def config(*providers: dict[str, Any], resources: tuple[str, ...] = OWN) -> Any:
    return configuration(*providers, resources=resources)


def scan_tree(
    holds: dict[str, bytes], settings: Any, *words: str, prefix: str = "/openshift.io"
) -> tuple[CollectingReporter, ScanResult]:
    reporter = CollectingReporter()
    request = ScanRequest(layout=StorageLayout(prefix), configuration=settings, scope=ScopeRequest(words))
    return reporter, run_scan(MemorySource(holds), request, reporter)


def of_case(
    capsysbinary: CapturedBytes, which: str, *words: str
) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """Scan the case; return the exit code, the summary and the findings."""
    snapshot, settings = str(RECORDED / "08-openshift.db"), str(RECORDED / f"08-enc-{which}.json")
    code = run(["scan", "--snapshot", snapshot, "--encryption-config", settings, "-o", "json", *words])
    report = json.loads(capsysbinary.readouterr().out)
    return code, report, report["findings"]


def test_with_the_right_key_everything_is_readable(capsysbinary: CapturedBytes) -> None:
    code, report, findings = of_case(capsysbinary, "right", "--etcd-prefix", "/openshift.io", "/openshift.io")
    assert (code, report["complete"], report["summary"]["readable"]) == (0, True, 2)
    assert {(f["resource"], f["group"], f["namespace"], f["outcome"], f["cause"]) for f in findings} == {
        ("routes", "route.openshift.io", "shop", "readable", "owner-unknown"),
        ("oauthaccesstokens", "oauth.openshift.io", "", "readable", "owner-unknown"),
    }


def test_with_the_key_lost_they_are_decrypt_failures(capsysbinary: CapturedBytes) -> None:
    code, _, findings = of_case(capsysbinary, "lost", "--etcd-prefix", "/openshift.io", "/openshift.io")
    rule = "secrets,configmaps,routes.route.openshift.io,oauthaccesstokens.oauth.openshift.io"
    assert code == 1
    assert {(f["outcome"], f["cause"], f["rule"]) for f in findings} == {
        ("decrypt-failure", "key-name-missing", rule)
    }
    assert len(findings) == 2
    assert not any("etcdfix delete" in (r["command"] or "") for f in findings for r in f["remedies"])


@pytest.mark.parametrize(
    ("prefix", "other", "readable"),
    [("kubernetes.io", "/openshift.io", 3), ("/openshift.io", "/kubernetes.io", 2)],
)
def test_keys_under_another_known_prefix_are_never_passed_over(
    prefix: str, other: str, readable: int, capsysbinary: CapturedBytes
) -> None:
    code, report, _ = of_case(capsysbinary, "right", "--etcd-prefix", prefix)
    assert (code, report["complete"], report["summary"]["readable"]) == (3, False, readable)
    (reason,) = report["incomplete_reasons"]
    assert f" under {other}/" in reason
    words = report["summary"]["next"]["command"].split()
    assert words[words.index("--etcd-prefix") + 1] == words[-1] == other


@pytest.mark.parametrize("prefix", ["/kubernetes.io", "/kubernetes.io/tenant", "/"])
def test_a_prefix_that_holds_or_is_within_the_other_one_is_the_same_cluster(prefix: str) -> None:
    holds = {
        "/kubernetes.io/tenant/secrets/a/b": secret("b", "a"),
        "/kubernetes.io/other/secrets/a/b": secret("b", "a"),
    }
    _, result = scan_tree(holds, None, prefix=prefix)
    assert result.problems == []


def test_the_associated_data_is_the_whole_etcd_key() -> None:
    holds = {ROUTE_KEY: aesgcm(ROUTE, ROUTE_KEY), TOKEN_KEY: aesgcm(ROUTE, ROUTE_KEY)}
    reporter, result = scan_tree(holds, config(provider("aesgcm", key1=KEY_1)))
    assert result.report.summary.readable == 1
    moved = reporter.findings[TOKEN_KEY]
    assert (moved.outcome, moved.cause) == ("undetermined", "owner-unknown")


@pytest.mark.parametrize("resources", [("secrets", "configmaps"), ("*.apps",)])
def test_the_file_of_another_api_server_says_nothing_about_them(resources: tuple[str, ...]) -> None:
    """Three API servers, three files: what this one has no entry for, it cannot be wrong about."""
    settings = config(provider("aescbc", key1=KEY_1), IDENTITY, resources=resources)
    reporter, result = scan_tree({ROUTE_KEY: aescbc(ROUTE), TOKEN_KEY: ROUTE}, settings)
    finding = reporter.findings[ROUTE_KEY]
    assert (finding.outcome, finding.cause) == ("undetermined", "no-configuration")
    assert (reporter.findings[TOKEN_KEY].outcome, result.report.summary.readable) == ("readable", 1)
    assert scan_exit_code(result) is ExitCode.INCOMPLETE


def test_what_cannot_be_proven_damaged_is_undetermined() -> None:
    sealed = aesgcm(ROUTE, ROUTE_KEY)
    for value in (sealed[:-40], sealed[:18], b"no object", b"", aesgcm(b"no object", ROUTE_KEY)):
        reporter, _ = scan_tree({ROUTE_KEY: value}, config(provider("aesgcm", key1=KEY_1), IDENTITY))
        finding = reporter.findings[ROUTE_KEY]
        assert (finding.outcome, finding.cause) == ("undetermined", "owner-unknown")
