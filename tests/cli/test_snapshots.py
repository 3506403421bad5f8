"""What the command line prints, word for word: a case is a name, arguments, an exit code, and two stored files.

A changed output is looked at and then accepted with::

    ETCDFIX_UPDATE_SNAPSHOTS=1 pytest tests/cli

Time, version and the folder of the test are replaced by words; an empty output has no file.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from etcdfix import __version__
from etcdfix.cli.root import run
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Result
from tests.support import k3s_bootstrap, k3s_cluster
from tests.support.audit_logs import NOON, OPERATOR, entry, own_directory
from tests.support.backups import PLAINTEXT, Ground
from tests.support.bbolt_writer import database, put
from tests.support.fleets import BASELINE, findings, kms_key, transformer, write_report
from tests.support.objects import aescbc, namespace_object, secret

REPOSITORY = Path(__file__).parents[2]
STORED = Path(__file__).parent / "snapshots"
UPDATE = os.environ.get("ETCDFIX_UPDATE_SNAPSHOTS") == "1"

FIXTURES = "fixtures/snapshots"
ALPHA = f"{FIXTURES}/alpha/snapshot.db.gz"
LOST = ["--encryption-config", f"{FIXTURES}/alpha/config-lost.yaml"]
ALPHA_LOST = ["--snapshot", ALPHA, *LOST]
ROTATED = ["--encryption-config", f"{FIXTURES}/alpha/config-rotated.yaml"]
# Exit codes of the contract.
OK, FINDINGS, USAGE, INCOMPLETE, REFUSED, SOURCE = 0, 1, 2, 3, 4, 5
CONFIGS = f"{FIXTURES}/alpha"
INVALID = "fixtures/configs/invalid"
CONTROL_PLANE = [
    f"{CONFIGS}/config-rotated.yaml",
    f"{CONFIGS}/config-lost.yaml",
    f"{CONFIGS}/write-cbc-key1.yaml",
]
RECOVER = ["encryption", "recover", "--token-file"]
OLDER = ["compare", "--with-snapshot", ALPHA, "--snapshot", ALPHA, "--revision", "560", *ROTATED, "--no-kms"]
CANDIDATE = ["--candidate-config", f"{FIXTURES}/alpha/config-rotated.yaml"]
ACKNOWLEDGED = "--ignore-store-read-error-with-cluster-breaking-potential"


class Case(msgspec.Struct, frozen=True):
    """One run. ``{tmp}`` in an argument is the folder that ``prepare`` fills.

    ``columns`` is the width of the terminal, 0 for none; a help text has 120.
    """

    name: str
    arguments: list[str]
    exit_code: int
    prepare: Callable[[Path], object] | None = None
    columns: int = 0


def scan(*arguments: str) -> list[str]:
    return ["scan", "--snapshot", ALPHA, *arguments]


def delete(*keys: str) -> list[str]:
    return ["delete", *keys, ACKNOWLEDGED, "--reason", "lost"]


def explain(*arguments: str) -> list[str]:
    return ["explain", *ALPHA_LOST, *arguments]


def history(*arguments: str) -> list[str]:
    return ["history", *ALPHA_LOST, *arguments]


def copies(*arguments: str) -> list[str]:
    return ["copies", *ALPHA_LOST, "--backup-dir", "{tmp}", "--audit-log", "{tmp}/audit.jsonl", *arguments]


def get(*arguments: str) -> list[str]:
    return ["get", "--snapshot", ALPHA, *arguments]


def _database() -> bytearray:
    return bytearray(gzip.decompress((REPOSITORY / ALPHA).read_bytes()))


def _file(name: str, content: Callable[[], bytes | bytearray]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content())


def _k3s(folder: Path) -> None:
    """Write a snapshot of a k3s in the middle of a rotation, its token, and another one."""
    sealed = (
        ("old", k3s_cluster.OLD_KEY, k3s_cluster.OLD_NAME),
        ("new", k3s_cluster.NEW_KEY, k3s_cluster.NEW_NAME),
    )
    kept = k3s_bootstrap.bootstrap(k3s_cluster.OLD, stage="rotate")
    items = [
        put(2, b"/registry/namespaces/kube-system", namespace_object("kube-system")),
        put(3, k3s_bootstrap.path().encode(), k3s_bootstrap.bootstrap(None)),
        put(4, k3s_bootstrap.path().encode(), kept, create=3, version=2),
        put(5, b"/registry/minions/server-1",
            k3s_cluster.node("server-1", k3s_bootstrap.stage_line(k3s_cluster.NEW, "rotate"))),
        *(put(at, f"/registry/secrets/shop/{name}".encode(), aescbc(secret(name), key, called))
          for at, (name, key, called) in enumerate(sealed, start=6)),
    ]  # fmt: skip
    (folder / "k3s.db").write_bytes(database(items, trailer=True))
    for name, text in (("token", k3s_bootstrap.TOKEN), ("other", "another")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)


def _cut(pages: int) -> bytearray:
    """Leave so many pages and half of the next."""
    return _database()[: pages * 4096 + 2048]


def _changed(offset: int) -> bytearray:
    data = _database()
    data[offset] ^= 0xFF
    return data


def _leaf_of_pods() -> bytearray:
    """Damage the header of the page that holds one certain pod, and no other byte."""
    data = _database()
    place = data.index(b"\n\x0bdep-1-abc-0")
    data[place // 4096 * 4096 + 8] ^= 0xFF
    return data


def _baseline(folder: Path) -> None:
    report = folder / "last-night.json"
    code = run([*scan(*LOST), "-o", "json", "--output-file", str(report)])
    assert code == INCOMPLETE


def plan(*arguments: str) -> list[str]:
    return ["plan", "--from-report", "{tmp}/scan.json", "--snapshot", ALPHA, *arguments]


def _report(*scope: str) -> Callable[[Path], object]:
    return lambda folder: run(
        [*scan(*LOST, *scope), "-o", "json", "--output-file", str(folder / "scan.json")]
    )


def _log(folder: Path, *outcomes: Result | None) -> Path:
    """Write the records of deletions that ended so; None for one that did not."""
    path = own_directory(folder / "log") / "audit.jsonl"
    for number, outcome in enumerate(outcomes, start=1):
        made = entry(audit_id=f"00000000-0000-4000-8000-{number:012}", value_sha256=f"sha256:{'ab' * 32}")
        with AuditLog.open(path, clock=lambda: NOON) as log:
            intent = log.intent(log.append(made).sequence)
            if outcome is not None:
                log.append(intent.closed_by(outcome, operator=OPERATOR, detail="what was seen"))
    return path


def _audit_log(folder: Path) -> None:
    _log(folder, Result.DELETED, Result.REFUSED)


def _unfinished_log(folder: Path) -> None:
    path = _log(folder, Result.DELETED, None)
    path.write_bytes(path.read_bytes() + b'{"kind":"Ev')


def _cut_log(folder: Path) -> None:
    path = _log(folder, Result.DELETED, Result.DELETED)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))


def _log_without_anchor(folder: Path) -> None:
    _cut_log(folder)
    (folder / "log" / "audit.jsonl.head").unlink()


def _edited_log(folder: Path) -> None:
    path = _log(folder, Result.DELETED, Result.DELETED)
    path.write_bytes(path.read_bytes().replace(b"the key is lost", b"the key was old", 1))


BACKUPS = ["--backup-dir", "{tmp}/state/one", "--audit-log", "{tmp}/state/audit.jsonl"]
AGED = ["--before", "2026-03-01", "--reason", "aged"]


def _no_backups(folder: Path) -> None:
    Ground(own_directory(folder / "state"))


def _backups(folder: Path) -> None:
    ground = Ground(own_directory(folder / "state"))
    ground.change()
    ground.change(value=PLAINTEXT)
    (ground.directories[0] / "notes.txt").write_text("somebody's")


def _missing_backup(folder: Path) -> None:
    _backups(folder)
    next((folder / "state" / "one").glob("*-41-1-*")).unlink()


def _manifest(folder: Path) -> None:
    flags = [
        f"--encryption-provider-config={FIXTURES}/alpha/config-lost.yaml",
        "--etcd-servers=https://127.0.0.1:2379",
    ]
    words = "\n".join(f"    - {word}" for word in ["kube-apiserver", *flags])
    image = "registry.k8s.io/kube-apiserver:v1.36.2"
    text = f"spec:\n  containers:\n  - name: kube-apiserver\n    image: {image}\n    command:\n{words}\n"
    (folder / "kube-apiserver.yaml").write_text(text)


def _fleet(folder: Path) -> None:
    """Write the reports of clusters in several states, one of them cut, and go there: columns are as wide as paths."""
    os.chdir(folder)
    sealed, undated = kms_key(keys=2), {"file_modified_at": ""}
    head = {"baseline": BASELINE}
    east = Path("east.json")
    write_report(east, findings(3, known=1), name="east", head=head, origin=undated, kms_keys=[sealed])
    Path("cut.json").write_bytes(east.read_bytes()[:-100])
    for name, cluster, called in (
        ("west", "west", "aescbc/v1/key1"),
        ("south", "\x1b[2Jsouth", "secretbox/v1/key2"),
    ):
        sealed_there = [sealed] if name == "west" else []
        write_report(
            Path(f"{name}.json"),
            name=cluster,
            origin=undated,
            kms_keys=sealed_there,
            transformers=[transformer(called, failures=5 if name == "south" else 0)],
        )
    write_report(
        Path("north.jsonl"), uid="uid of west", origin=undated, reasons=["interrupted before the end"]
    )


REPORTS = ["east.json", "west.json", "north.jsonl", "south.json", "cut.json", "none.json"]
FLEET = ["report", "merge", "--fleet", *REPORTS]

CASES = [
    # help and schemas
    Case("help", ["--help"], OK),
    Case("help-scan", ["scan", "--help"], OK),
    Case("help-get", ["get", "--help"], OK),
    Case("help-schema", ["schema", "--help"], OK),
    Case("help-explain", ["explain", "--help"], OK),
    Case("explain-list", ["explain"], OK),
    Case("explain-list-at-60-columns", ["explain"], OK, columns=60),
    Case("explain-cause", ["explain", "kms-denied"], OK),
    Case("explain-cause-yaml", ["explain", "owner-unknown", "-o", "yaml"], OK),
    Case("explain-nearly-a-cause", ["explain", "worng-key"], USAGE),
    Case("explain-no-cause", ["explain", "xyzzy"], USAGE),
    Case("explain-damaged", explain("/registry/secrets/pay/tls-gcm-7"), FINDINGS),
    Case("explain-lost-key", explain("/registry/secrets/infra/tls-cbc-key2-8"), FINDINGS),
    Case("explain-broken-plaintext", explain("/registry/secrets/infra/cache-plain-8"), FINDINGS),
    Case("explain-inconsistent", explain("/registry/pods/infra/dep-1-abc-0"), FINDINGS),
    Case("explain-undetermined", explain("/registry/secrets/pay/search-kmsv2-9", "--no-kms"), INCOMPLETE),
    Case("explain-readable", explain("/registry/configmaps/infra/cm-1"), OK),
    Case("explain-json", explain("/registry/secrets/pay/tls-gcm-7", "-o", "json"), FINDINGS),
    Case("explain-key-not-found", explain("/registry/secrets/pay"), SOURCE),
    Case("explain-at-60-columns", explain("/registry/secrets/pay/tls-gcm-7"), FINDINGS, columns=60),
    Case("help-history", ["history", "--help"], OK),
    Case("history-damaged", history("/registry/secrets/pay/tls-gcm-7"), FINDINGS),
    Case("history-json", history("/registry/pods/shop/dep-0-abc-1", "-o", "json"), FINDINGS),
    Case("history-salvaged", history("/registry/secrets/pay/tls-gcm-7", "--salvage"), INCOMPLETE),
    Case("explain-salvaged", explain("/registry/secrets/pay/tls-gcm-7", "--salvage"), INCOMPLETE),
    Case("history-not-found", history("/registry/secrets/shop/never"), SOURCE),
    Case("history-no-key", history(), USAGE),
    Case("history-resource", history("secrets"), USAGE),
    Case("history-object", history("Secret/tls-gcm-7", "-n", "pay"), FINDINGS),
    Case("history-object-anywhere", history("secret/tls-gcm-7"), FINDINGS),
    Case("history-objects", history("cm/cm-0"), USAGE),
    Case("history-nowhere", history("cm/nix"), SOURCE),
    Case("help-copies", ["copies", "--help"], OK),
    Case("copies-one", copies("/registry/secrets/pay/tls-gcm-7"), OK),
    Case("copies-older", copies("configmaps", "--older-snapshot", ALPHA), OK),
    Case("copies-json", copies("/registry/pods/shop/dep-0-abc-1", "-o", "json"), OK),
    Case("copies-yaml", copies("/registry/pods/shop/dep-0-abc-1", "-o", "yaml"), OK),
    Case("copies-rows", copies("secrets", "--no-kms", "--max-rows", "1"), INCOMPLETE),
    Case("copies-other-cluster", copies("configmaps", "--older-snapshot", f"{FIXTURES}/small/history.db.gz"), OK),
    Case("copies-not-a-snapshot", copies("pods", "--older-snapshot", "README.md"), INCOMPLETE),
    Case("copies-report-and-key", copies("pods", "--from-report", "report.json"), USAGE),
    Case("help-backup", ["backup", "--help"], OK),
    Case("help-backup-list", ["backup", "list", "--help"], OK),
    Case("help-backup-verify", ["backup", "verify", "--help"], OK),
    Case("help-backup-prune", ["backup", "prune", "--help"], OK),
    Case("help-audit", ["audit", "--help"], OK),
    Case("help-audit-show", ["audit", "show", "--help"], OK),
    Case("help-audit-verify", ["audit", "verify", "--help"], OK),
    Case("help-audit-reconcile", ["audit", "reconcile", "--help"], OK),
    Case("help-delete", ["delete", "--help"], OK),
    Case("help-restore", ["restore", "--help"], OK),
    Case("help-reencrypt", ["reencrypt", "--help"], OK),
    Case("help-repair", ["repair", "--help"], OK),
    Case("help-rescue", ["rescue", "--help"], OK),
    Case("rescue-nothing-named", ["rescue", "--kubeconfig", "k", "--save-dir", "d", "--reveal"], USAGE),
    Case("rescue-without-reveal", ["rescue", "/registry/a", "--kubeconfig", "k", "--save-dir", "d"], USAGE),
    Case("rescue-no-object", ["rescue", "/registry/a", "--kubeconfig", "k", "--save-dir", "d", "--reveal"], USAGE),
    Case("rescue-no-report", ["rescue", "--from-report", "missing.json", "--kubeconfig", "k", "--save-dir", "d",
                              "--reveal"], USAGE),
    Case("schema-rescue", ["schema", "rescue"], OK),
    Case("help-heal", ["heal", "--help"], OK),
    Case("no-command", [], USAGE),
    Case("schema-report", ["schema", "report"], OK),
    Case("schema-finding", ["schema", "finding"], OK),
    Case("schema-audit", ["schema", "audit"], OK),
    # alpha under both configurations and without one, in every form
    Case("lost-table", scan(*LOST), INCOMPLETE),
    Case("lost-name", scan(*LOST, "-o", "name"), INCOMPLETE),
    Case("lost-status", scan(*LOST, "-o", "status", "pods", "configmaps", "widgets", "services"), FINDINGS),
    Case("lost-wide-pods", scan(*LOST, "-o", "wide", "pods"), FINDINGS),
    Case("lost-json-widgets", scan(*LOST, "-o", "json", "widgets"), FINDINGS),
    Case("lost-jsonl-widgets", scan(*LOST, "-o", "jsonl", "widgets.example.com"), FINDINGS),
    Case("lost-yaml-sets", scan(*LOST, "-o", "yaml", "statefulsets.apps", "replicasets"), FINDINGS),
    Case("lost-json-one-secret", scan(*LOST, "-o", "json", "/registry/secrets/infra/tls-kmsv1-1"), FINDINGS),
    Case("lost-junit-configmaps", scan(*LOST, "-o", "junit", "configmaps", "nodes"), FINDINGS),
    Case("healthy-junit", scan(*LOST, "-o", "junit", "deployments", "nodes"), OK),
    Case("rotated-table-secrets", scan(*ROTATED, "secrets"), INCOMPLETE),
    Case("no-configuration-table", scan(), INCOMPLETE),
    # scope
    Case("healthy-resources", scan(*LOST, "deployments", "nodes"), OK),
    Case("namespace", scan(*LOST, "-n", "pay", "-o", "name"), INCOMPLETE),
    Case("two-namespaces", scan(*LOST, "-n", "pay", "-n", "infra", "configmaps"), FINDINGS),
    Case("key-prefix", scan(*LOST, "/registry/pods/shop"), FINDINGS),
    Case("key-prefix-is-whole-segments", scan(*LOST, "/registry/pods/sho"), SOURCE),
    Case("key-base64", scan(*LOST, "--key-base64", "L3JlZ2lzdHJ5L3BvZHMvc2hvcC9kZXAtMC1hYmMtMQ=="), FINDINGS),
    Case("nothing-in-scope", scan("-n", "nowhere", "secrets"), SOURCE),
    Case("wrong-prefix", scan("--etcd-prefix", "/kubernetes.io"), SOURCE),
    # other options
    Case("max-causes", scan(*LOST, "--max-causes", "3", "pods"), FINDINGS),
    Case("max-causes-status", scan(*LOST, "--max-causes", "3", "pods", "-o", "status"), FINDINGS),
    Case("kubernetes-version", scan(*LOST, "--kubernetes-version", "1.36", "ingresses", "-o", "yaml"), FINDINGS),
    Case("manifest", scan("--manifest", "{tmp}/kube-apiserver.yaml", "configmaps"), FINDINGS, _manifest),
    Case("baseline", scan(*LOST, "--baseline", "{tmp}/last-night.json", "configmaps"), OK, _baseline),
    Case("baseline-everything", scan(*LOST, "--baseline", "{tmp}/last-night.json", "-o", "name"), OK, _baseline),
    Case("baseline-other-configuration", scan(*ROTATED, "--baseline", "{tmp}/last-night.json", "-o", "name"),
         INCOMPLETE, _baseline),
    # words that make no sense
    Case("unknown-command", ["scam"], USAGE),
    Case("unknown-option", scan("--frobnicate"), USAGE),
    Case("words-of-kubectl", scan(*LOST, "po,deploy.apps", "Secret", "-n", "infra"), INCOMPLETE),
    Case("scan-object", scan(*LOST, "po/dep-0-abc-1", "-n", "infra"), FINDINGS),
    Case("scan-object-and-resource", scan("po/dep-0-abc-1", "svc"), USAGE),
    Case("unknown-resource", scan("secrt"), USAGE),
    Case("unknown-resource-far-off", scan("zzzzzz"), USAGE),
    Case("namespace-of-nodes", scan("-n", "shop", "nodes"), USAGE),
    Case("namespace-and-prefix", scan("-n", "shop", "/registry/secrets"), USAGE),
    Case("unknown-output", scan("-o", "xml"), USAGE),
    Case("junit-and-filters", scan("-o", "junit", "--severity", "breaks-now"), USAGE),
    Case("metrics-and-shard", scan("--metrics-file", "{tmp}/x.prom", "--shard", "1/2"), USAGE),
    Case("metrics-to-standard-output", scan("--metrics-file", "-"), USAGE),
    Case("metrics-over-a-configuration", scan("--metrics-file", f"{CONFIGS}/config-lost.yaml"), USAGE),
    Case("bad-version", scan("--kubernetes-version", "9.9"), USAGE),
    Case("version-outside-tables", scan("--kubernetes-version", "1.99"), USAGE),
    Case("two-sources", scan("--endpoints", "127.0.0.1:2379"), USAGE),
    Case("endpoint-nobody-listens", ["scan", "--endpoints", "127.0.0.1:1"], SOURCE),
    Case("endpoint-no-address", ["scan", "--endpoints", "a b:c"], USAGE),
    Case("half-a-client-certificate", ["scan", "--cert", "client.crt"], USAGE),
    Case("no-duration", ["scan", "--dial-timeout", "soon"], USAGE),
    Case("revision-not-there", scan("--revision", "99999"), SOURCE),
    Case("configuration-missing", scan("--encryption-config", "{tmp}/nowhere.yaml"), USAGE),
    Case("configuration-not-yaml", scan("--encryption-config", ALPHA), USAGE),
    Case("manifest-without-apiserver", scan("--manifest", f"{FIXTURES}/alpha/config-lost.yaml"), USAGE),
    Case("baseline-no-report", scan("--baseline", f"{FIXTURES}/alpha/oracle.json"), USAGE),
    Case("output-file-nowhere", scan("--output-file", "{tmp}/no/such/folder"), USAGE),
    # single objects
    Case("get-secret-yaml", get(*LOST, "secrets", "web-cbc-key1-0", "-n", "shop"), OK),
    Case("get-secret-json-without-managed-fields",
         get(*LOST, "secrets/web-cbc-key1-0", "-n", "shop", "-o", "json", "--omit-managed-fields"), OK),
    Case("get-pods-wide", get(*LOST, "pods", "-A", "-o", "wide"), FINDINGS),
    Case("get-pods-name", get(*LOST, "pods", "-n", "shop", "-o", "name"), FINDINGS),
    Case("get-widgets-json", get(*LOST, "widgets", "-A", "-o", "json", "--omit-managed-fields"), FINDINGS),
    Case("get-custom-resource", get(*LOST, "widgets", "w-1", "-n", "shop"), OK),
    Case("get-namespaces-yaml", get(*LOST, "namespaces", "--omit-managed-fields", "-o", "yaml"), OK),
    Case("get-pods-table", get(*LOST, "po", "-n", "infra"), FINDINGS),
    Case("get-two-kinds", get(*LOST, "cm,ns", "-n", "shop"), OK),
    Case("get-damaged-pod", get(*LOST, "/registry/pods/infra/dep-0-abc-1"), FINDINGS),
    Case("get-damaged-secret", get(*LOST, "/registry/secrets/infra/cache-plain-8"), FINDINGS),
    Case("get-secret-of-another-kind", get(*LOST, "/registry/secrets/infra/search-plain-3"), FINDINGS),
    Case("get-lost-key", get(*LOST, "/registry/secrets/infra/tls-cbc-key2-8", "-o", "json"), FINDINGS),
    Case("get-no-kms", get(*LOST, "--no-kms", "/registry/secrets/infra/oauth-kmsv2-3"), INCOMPLETE),
    Case("get-no-configuration", get("/registry/secrets/shop/web-cbc-key1-0"), INCOMPLETE),
    Case("get-broken-managed-fields", get(*LOST, "/registry/statefulsets/pay/db"), FINDINGS),
    Case("get-healing", get(*LOST, "/registry/statefulsets/pay/db", "--omit-managed-fields", "-o", "json"), FINDINGS),
    Case("get-not-found", get(*LOST, "pods", "nought", "-n", "shop"), SOURCE),
    Case("get-key-not-found", get(*LOST, "/registry/pods/shop"), SOURCE),
    Case("get-nothing", get(), USAGE),
    Case("get-unknown-resource", get("secrt"), USAGE),
    Case("get-raw-plaintext-secret", get(*LOST, "/registry/secrets/infra/registry-plain-4", "--raw"), USAGE),
    # what breakage sets off
    Case("help-impact", ["impact", "--help"], OK),
    Case("help-namespace", ["namespace", "--help"], OK),
    Case("help-orphans", ["orphans", "--help"], OK),
    Case("impact-secret", ["impact", *ALPHA_LOST, "/registry/secrets/infra/tls-cbc-key2-8"], INCOMPLETE),
    Case("impact-pod", ["impact", *ALPHA_LOST, "/registry/pods/infra/dep-0-abc-1"], INCOMPLETE),
    Case("impact-deployment-json", ["impact", *ALPHA_LOST, "/registry/deployments/shop/dep-1", "-o", "json"],
         INCOMPLETE),
    Case("impact-deployment-dot", ["impact", *ALPHA_LOST, "/registry/deployments/shop/dep-1", "-o", "dot"], INCOMPLETE),
    Case("impact-not-found", ["impact", *ALPHA_LOST, "/registry/secrets/infra"], SOURCE),
    Case("impact-no-key", ["impact", *ALPHA_LOST], USAGE),
    Case("namespace-with-blockers", ["namespace", *ALPHA_LOST, "pay", "--max-rows", "5"], INCOMPLETE),
    Case("namespace-held-from-elsewhere-json", ["namespace", *ALPHA_LOST, "default", "-o", "json"], INCOMPLETE),
    Case("namespace-not-found", ["namespace", *ALPHA_LOST, "nowhere"], SOURCE),
    Case("orphans", ["orphans", *ALPHA_LOST], INCOMPLETE),
    Case("help-encryption", ["encryption", "--help"], OK),
    Case("help-encryption-usage", ["encryption", "usage", "--help"], OK),
    Case("help-encryption-lint", ["encryption", "lint", "--help"], OK),
    Case("help-encryption-diff", ["encryption", "diff", "--help"], OK),
    Case("help-encryption-merge", ["encryption", "merge", "--help"], OK),
    Case("encryption-lint", ["encryption", "lint", f"{CONFIGS}/config-rotated.yaml", "--fail-on", "error"], OK),
    Case("encryption-lint-refused", ["encryption", "lint", f"{INVALID}/kms-everything-wrong.yaml"], FINDINGS),
    Case("encryption-lint-not-yaml", ["encryption", "lint", f"{INVALID}/tab-indented.yaml"], USAGE),
    Case("encryption-diff", ["encryption", "diff", *CONTROL_PLANE], FINDINGS),
    Case("encryption-diff-at-80-columns", ["encryption", "diff", *CONTROL_PLANE], FINDINGS, columns=80),
    Case("encryption-diff-json", ["encryption", "diff", *CONTROL_PLANE, "-o", "json"], FINDINGS),
    Case("encryption-diff-same", ["encryption", "diff", CONTROL_PLANE[0], CONTROL_PLANE[0]], OK),
    Case("encryption-diff-one", ["encryption", "diff", CONTROL_PLANE[0]], USAGE),
    Case("encryption-merge-there", ["encryption", "merge", *CONTROL_PLANE, "--output-file", ALPHA], USAGE),
    Case("help-compare", ["compare", "--help"], OK),
    Case("compare-snapshots", [*OLDER, "--max-rows", "6"], FINDINGS),
    Case("compare-snapshots-at-80-columns", [*OLDER, "configmaps", "widgets"], FINDINGS, columns=80),
    Case("compare-json", [*OLDER, "-o", "json", "/registry/serviceaccounts"], FINDINGS),
    Case("compare-nothing-to-compare-with", ["compare", "--snapshot", ALPHA], USAGE),
    Case(
        "encryption-usage", ["encryption", "usage", "--snapshot", ALPHA, *ROTATED, "--no-kms"], INCOMPLETE
    ),
    Case("encryption-usage-no-configuration", ["encryption", "usage", "--snapshot", ALPHA], INCOMPLETE),
    Case("help-encryption-recover", ["encryption", "recover", "--help"], OK),
    Case("encryption-recover", [*RECOVER, "{tmp}/token", "--snapshot", "{tmp}/k3s.db"], FINDINGS, _k3s),
    Case("encryption-recover-narrow", [*RECOVER, "{tmp}/token", "--snapshot", "{tmp}/k3s.db"], FINDINGS, _k3s, 80),
    Case("encryption-recover-nothing", [*RECOVER, "{tmp}/token", "--snapshot", ALPHA], FINDINGS, _k3s),
    Case("encryption-recover-other-token", [*RECOVER, "{tmp}/other", "--snapshot", "{tmp}/k3s.db"], FINDINGS, _k3s),
    Case("encryption-recover-no-file", [*RECOVER, "K10::server:typed", "--snapshot", "{tmp}/k3s.db"], USAGE, _k3s),
    Case("help-encryption-try", ["encryption", "try", "--help"], OK),
    Case(
        "encryption-try",
        [
            "encryption",
            "try",
            *ALPHA_LOST,
            "--no-kms",
            "--candidate-config",
            f"{FIXTURES}/alpha/write-cbc-key2.yaml",
            *("--candidate-config", f"{FIXTURES}/alpha/write-gcm.yaml"),
        ],
        FINDINGS,
        columns=100,
    ),
    Case(
        "encryption-try-key",
        [
            "encryption",
            "try",
            "configmaps",
            *ALPHA_LOST,
            "--candidate-key",
            "gcmX={tmp}/found.key",
            "-o",
            "yaml",
        ],
        FINDINGS,
        _file("found.key", lambda: bytes(range(32))),
    ),
    Case(
        "encryption-try-no-candidate",
        ["encryption", "try", *ALPHA_LOST],
        USAGE,
    ),
    Case(
        "encryption-try-no-key",
        ["encryption", "try", *ALPHA_LOST, "--candidate-key", "key2={tmp}/found.key"],
        USAGE,
        _file("found.key", lambda: b"c2VjcmV0IHNlY3JldCBzZWNyZXQ="),
    ),
    Case("help-encryption-what-if", ["encryption", "what-if", "--help"], OK),
    Case(
        "encryption-what-if",
        ["encryption", "what-if", *ALPHA_LOST, "--no-kms", "--new", f"{FIXTURES}/alpha/write-gcm.yaml"],
        FINDINGS,
        columns=100,
    ),
    Case(
        "encryption-what-if-refused",
        ["encryption", "what-if", *ALPHA_LOST, "--new", "{tmp}/new.yaml"],
        USAGE,
        _file("new.yaml", lambda: b"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"),
    ),
    Case(
        "encryption-what-if-no-configuration",
        ["encryption", "what-if", "--snapshot", ALPHA, "--new", f"{FIXTURES}/alpha/config-lost.yaml"],
        USAGE,
    ),
    Case("help-doctor", ["doctor", "--help"], OK),
    # plans
    Case("help-plan", ["plan", "--help"], OK),
    Case("plan-everything", plan(*LOST), INCOMPLETE, _report()),
    *(
        Case(f"{name}-at-{columns}-columns", arguments, code, prepare, columns)
        for columns in (80, 60)
        for name, arguments, code, prepare in (
            ("plan", plan(*LOST, "--max-rows", "4"), INCOMPLETE, _report("secrets", "-n", "pay", "--no-kms")),
            ("scan", scan(*LOST, "--max-causes", "4"), INCOMPLETE, None),
            ("get", get(*LOST, "pods", "-n", "infra", "-o", "wide"), FINDINGS, None),
            ("orphans", ["orphans", *ALPHA_LOST], INCOMPLETE, None),
            ("impact", ["impact", *ALPHA_LOST, "/registry/secrets/infra/tls-cbc-key2-8"], INCOMPLETE, None),
            ("namespace", ["namespace", *ALPHA_LOST, "pay", "--max-rows", "5"], INCOMPLETE, None),
        )
    ),
    Case("plan-cut-short", plan(*LOST, "--max-rows", "4"), INCOMPLETE, _report("secrets", "-n", "pay", "--no-kms")),
    Case("plan-one-resource", plan(*LOST), FINDINGS, _report("configmaps")),
    Case("plan-nothing-broken", plan(*LOST), OK, _report("endpoints")),
    Case("plan-of-another-configuration", plan(*ROTATED), USAGE, _report("configmaps")),
    Case("plan-without-configuration", plan(), USAGE, _report("configmaps")),
    Case("plan-from-no-report", ["plan", "--from-report", "README.md", "--snapshot", ALPHA, *LOST], USAGE),
    Case("plan-from-nothing", ["plan", "--snapshot", ALPHA, *LOST], USAGE),
    # many clusters
    Case("help-report", ["report", "--help"], OK),
    Case("help-report-merge", ["report", "merge", "--help"], OK),
    Case("report-merge-fleet", [*FLEET, "-o", "wide"], INCOMPLETE, _fleet),
    Case("report-merge-fleet-at-80-columns", FLEET, INCOMPLETE, _fleet, 80),
    Case("report-merge-fleet-list", ["report", "merge", "--fleet", "--clusters", "{tmp}/list", "--reports", "{tmp}"],
         USAGE, _file("list", lambda: b"# clusters\n")),
    # files that are not what they should be
    Case("snapshot-missing", ["scan", "--snapshot", "{tmp}/nowhere.db"], SOURCE),
    Case("snapshot-a-folder", ["scan", "--snapshot", "{tmp}"], SOURCE),
    Case("snapshot-empty-file", ["scan", "--snapshot", "{tmp}/empty"], SOURCE, _file("empty", bytes)),
    Case("snapshot-text", ["scan", "--snapshot", "README.md"], SOURCE),
    Case("snapshot-zeros", ["scan", "--snapshot", "{tmp}/zeros"], SOURCE, _file("zeros", lambda: bytes(65536))),
    Case("snapshot-cut", ["scan", *LOST, "--snapshot", "{tmp}/cut.db", "-o", "status"],
         INCOMPLETE, _file("cut.db", lambda: _cut(218))),
    Case("snapshot-cut-short", ["scan", "--snapshot", "{tmp}/cut.db"], SOURCE, _file("cut.db", lambda: _cut(3))),
    Case("snapshot-cut-gzip", ["scan", "--snapshot", "{tmp}/cut.db.gz"], SOURCE,
         _file("cut.db.gz", lambda: (REPOSITORY / ALPHA).read_bytes()[:100_000])),
    Case("snapshot-wrong-trailer", ["scan", *LOST, "--snapshot", "{tmp}/trailer.db", "deployments"],
         INCOMPLETE, _file("trailer.db", lambda: _changed(-1))),
    Case("snapshot-damaged-page", ["scan", *LOST, "--snapshot", "{tmp}/page.db", "pods"],
         INCOMPLETE, _file("page.db", _leaf_of_pods)),
    # the audit log
    Case("audit-show", ["audit", "show", "{tmp}/log/audit.jsonl"], OK, _audit_log),
    Case("audit-show-json", ["audit", "show", "-o", "json", "{tmp}/log/audit.jsonl"], OK, _audit_log),
    Case("audit-verify-whole", ["audit", "verify", "{tmp}/log/audit.jsonl"], OK, _audit_log),
    Case("audit-verify-unfinished", ["audit", "verify", "{tmp}/log/audit.jsonl"], INCOMPLETE, _unfinished_log),
    Case("audit-verify-cut", ["audit", "verify", "{tmp}/log/audit.jsonl"], FINDINGS, _cut_log),
    Case("audit-verify-without-anchor", ["audit", "verify", "{tmp}/log/audit.jsonl"], INCOMPLETE, _log_without_anchor),
    Case("audit-verify-edited-json", ["audit", "verify", "-o", "json", "{tmp}/log/audit.jsonl"], FINDINGS, _edited_log),
    Case("audit-verify-missing", ["audit", "verify", "{tmp}/nowhere.jsonl"], SOURCE),
    # backups
    Case("backup-list", ["backup", "list", *BACKUPS], OK, _backups),
    Case("backup-verify", ["backup", "verify", *BACKUPS], FINDINGS, _missing_backup),
    Case("backup-verify-no-log", ["backup", "verify", *BACKUPS], SOURCE, _no_backups),
    Case("backup-prune-dry-run", ["backup", "prune", *BACKUPS, *AGED, "--accept-only-copy", "--dry-run"], OK, _backups),
    Case("backup-prune-kept", ["backup", "prune", *BACKUPS, *AGED], REFUSED, _backups),
    Case("backup-prune-no-age", ["backup", "prune", *BACKUPS, "--reason", "aged"], USAGE, _no_backups),
    Case("backup-prune-no-anchor", ["backup", "prune", *BACKUPS, *AGED, "--accept-only-copy", "--yes",
                                    "--audit-anchor", "syslog:{tmp}/nothing"], REFUSED, _backups),
    Case("audit-reconcile-nothing", ["audit", "reconcile", "{tmp}/log/audit.jsonl"], OK, _audit_log),
    Case("audit-reconcile-no-etcd", ["audit", "reconcile", "{tmp}/log/audit.jsonl", "--endpoints", "127.0.0.1:1"],
         SOURCE, _unfinished_log),
    Case("audit-reconcile-snapshot", ["audit", "reconcile", "--snapshot", ALPHA, "{tmp}/log/audit.jsonl"], USAGE),
    # changes that are refused before anybody is asked
    Case("delete-snapshot", [*delete("/registry/secrets/pay/aws"), "--snapshot", ALPHA], REFUSED),
    Case("delete-prefix", delete("/registry/secrets/"), REFUSED),
    Case("delete-pattern", delete("/registry/secrets/pay/*"), REFUSED),
    Case("delete-resource", delete("secrets"), REFUSED),
    Case("delete-two-keys", delete("/registry/a", "/registry/b"), USAGE),
    Case("delete-no-key", delete(), USAGE),
    Case("delete-no-reason", ["delete", "/registry/a", ACKNOWLEDGED], USAGE),
    Case("delete-empty-reason", ["delete", "/registry/a", ACKNOWLEDGED, "--reason", ""], USAGE),
    Case("delete-no-acknowledgement", ["delete", "/registry/a", "--reason", "lost"], USAGE),
    Case("delete-old-revision", [*delete("/registry/a"), "--revision", "7"], USAGE),
    Case("delete-unknown-risk", [*delete("/registry/a"), "--accept-risk", "any"], USAGE),
    Case("delete-no-etcd", [*delete("/registry/a"), "--endpoints", "127.0.0.1:1"], SOURCE),
    Case("restore-nothing-named", ["restore", "--reason", "back"], USAGE),
    Case("restore-two-sources", ["restore", "/registry/a", "--from-snapshot", ALPHA, "--from-object", "object.json",
                                 "--reason", "back"], USAGE),
    Case("restore-no-reason", ["restore", "backup.json"], USAGE),
    Case("restore-no-backup", ["restore", "{tmp}/text", "--reason", "back"], SOURCE, _file("text", lambda: b"words")),
    Case("restore-snapshot", ["restore", "/registry/a", "--from-revision", "7", "--reason", "r", "--snapshot", ALPHA],
         REFUSED),
    Case("repair-no-reason", ["repair", "/registry/a"], USAGE),
    Case("repair-other-risk", ["repair", "/registry/a", "--reason", "r", "--accept-risk", "only-copy"], USAGE),
    Case("repair-snapshot", ["repair", "/registry/a", "--reason", "r", "--snapshot", ALPHA], REFUSED),
    Case("heal-nothing-saved", ["heal", "/registry/a", "--kubeconfig", "k", "--reason", "r"], USAGE),
    Case("heal-no-key", ["heal", "--saved", "d", "--kubeconfig", "k", "--reason", "r"], USAGE),
    Case(
        "heal-key-and-report",
        ["heal", "/registry/a", "--from-report", "f", "--saved", "d", "--kubeconfig", "k", "--reason", "r"],
        USAGE,
    ),
    Case(
        "heal-pattern",
        ["heal", "/registry/?", "--saved", "d", "--kubeconfig", "k", "--reason", "r", "-o", "json"],
        REFUSED,
    ),
    Case(
        "heal-snapshot",
        ["heal", "/registry/a", "--saved", "d", "--kubeconfig", "k", "--reason", "r", "--snapshot", ALPHA],
        REFUSED,
    ),
    Case("repair-pattern", ["repair", "/registry/?", "--reason", "r", "-o", "json"], REFUSED),
    Case("reencrypt-no-candidate", ["reencrypt", "/registry/a", "--reason", "found"], USAGE),
    Case("reencrypt-snapshot", ["reencrypt", "/registry/a", "--reason", "r", *CANDIDATE, "--snapshot", ALPHA], REFUSED),
    Case("reencrypt-pattern", ["reencrypt", "/registry/?", "--reason", "found", *CANDIDATE], REFUSED),
    Case("snapshot-of-an-empty-etcd", ["scan", "--snapshot", f"{FIXTURES}/small/empty.db.gz"], SOURCE),
]  # fmt: skip


def normalised(text: str, folder: Path) -> str:
    """Return output without what differs from run to run."""
    text = text.replace(str(folder), "TMP")
    text = re.sub(r"(?m)(?<=\d   )( *)(\d+[smhdy]){1,2}$", r"\1AGE", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    # -o junit: a time has no zone there, and how long it took stands beside it.
    text = re.sub(r'(timestamp=")[^"]*', r"\1TIME", text)
    text = re.sub(r'(name="etcdfix scan" [^>]* time=")\d+', r"\1SECONDS", text)
    # The hash of an audit record covers the version that wrote it.
    text = re.sub(r'(head:? \d+:|"sha256": "|io/previous": "sha256:)(?!0{64})[0-9a-f]{64}', r"\1HASH", text)
    # So does a backup, whose size that changes and whose name has its digest.
    text = re.sub(r"(-41-\d+-)[0-9a-f]{16}(?=\.json)", r"\1DIGEST", text)
    text = re.sub(r"\d+ bytes in all", "N bytes in all", text)
    for before in (
        "etcdfix ",
        "etcdfix, version ",
        '"name":"etcdfix","version":"',
        "name: etcdfix\n  version: ",
        'name="version" value="',
        "etcdfix/",
    ):
        text = text.replace(before + __version__, before + "VERSION")
    return text


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("ETCDFIX_", "ETCDCTL_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(REPOSITORY)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_output(
    case: Case, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = case.columns or (120 if "--help" in case.arguments or case.exit_code == USAGE else 0)
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    if case.prepare is not None:
        case.prepare(tmp_path)
        capfd.readouterr()
    code = run([argument.replace("{tmp}", str(tmp_path)) for argument in case.arguments])
    captured = capfd.readouterr()
    assert code == case.exit_code, captured.err
    for suffix, text in (("out", captured.out), ("err", captured.err)):
        found = normalised(text, tmp_path)
        path = STORED / f"{case.name}.{suffix}"
        if UPDATE:
            _store(path, found)
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        assert found == expected, f"{path.name} differs; see the top of this file"


def _store(path: Path, text: str) -> None:
    STORED.mkdir(exist_ok=True)
    if text:
        path.write_text(text, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


def test_names_are_unique_and_every_stored_file_belongs_to_a_case() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert {path.stem for path in STORED.iterdir()} <= set(names)


@pytest.mark.parametrize("path", sorted(STORED.glob("*")), ids=lambda path: path.name)
def test_nothing_stored_acts_upon_a_terminal_or_tells_of_this_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert all(line.isprintable() for line in text.splitlines())
    assert "Traceback" not in text
    assert str(REPOSITORY) not in text
    assert "/tmp/" not in text
