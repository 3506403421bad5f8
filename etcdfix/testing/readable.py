"""The assertion that everything in an etcd can be read: a scan, with a message for whoever reads the log of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

from etcdfix.commands.opening import Inputs, load_encryption, open_plugins, open_source
from etcdfix.commands.scan import ScanRequest, ScanResult, run_scan
from etcdfix.commands.scanning.pipeline import FAILING
from etcdfix.inputs.releases import parse_kubernetes_version
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import DEFAULT_PREFIX
from etcdfix.report.model import Finding, Summary
from etcdfix.report.render.text import text_lines
from etcdfix.report.saved_report import load_baseline
from etcdfix.testing.failures import without_frames
from etcdfix.testing.servers import EtcdServer
from etcdfix.text.safetext import safe_text

MOST_SHOWN: Final = 20
"""Findings in a message."""
_MOST_KEPT: Final = 1000
_WIDTH: Final = 100


class NotAllReadable(AssertionError):
    """Something cannot be read, or not everything could be seen.

    Attributes:
        findings: What counts, in the order of the keys; the first 1000.
        incomplete: Why not everything was seen; empty where it was.
    """

    def __init__(self, text: str, findings: Sequence[Finding], incomplete: Sequence[str]) -> None:
        super().__init__(text)
        self.findings = tuple(findings)
        self.incomplete = tuple(incomplete)


@without_frames
def assert_all_readable(
    config: str | PathLike[str] | None,
    *,
    endpoints: EtcdServer | str | Sequence[str] | None = None,
    snapshot: str | PathLike[str] | None = None,
    etcd_prefix: str = DEFAULT_PREFIX,
    resources: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    baseline: str | PathLike[str] | None = None,
    kubernetes_version: str | None = None,
    ask_kms: bool = True,
    cacert: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    user: str | None = None,
) -> Summary:
    """Scan as ``etcdfix scan`` does, and return its counts where everything was seen and can be read.

    Reads only. Everything is named by arguments: variables such as ``ETCDCTL_ENDPOINTS`` are not looked at.

    Args:
        config: The EncryptionConfiguration; None where nothing is encrypted. An encrypted value fails then.
        endpoints: A server of this package, which knows its certificates, or addresses as etcdctl takes them.
        snapshot: A snapshot file, gzipped or not, in their place.
        etcd_prefix: The storage prefix of the API servers.
        resources: Only these: resources and objects in the words of kubectl, or key prefixes; else everything.
        namespaces: Only these.
        baseline: A report of an earlier ``etcdfix scan -o json``: what it knows (same key, outcome and value) is no
            reason to fail.
        kubernetes_version: Release whose kinds count, as ``1.36``; else every one that is known.
        ask_kms: Ask the KMS plugins that the configuration names.
        cacert: CA certificate of etcd, where it is given by addresses; so are ``cert``, ``key`` and ``user``.
        cert: Client certificate.
        key: Its private key.
        user: ``NAME:PASSWORD``.

    Raises:
        NotAllReadable: A value cannot be read, is wrong inside or could not be decided; or not everything was seen; or
            there was no object to see, as under a wrong prefix.
        SourceError: Nothing could be read.
        ConfigurationError: The arguments make no sense.
    """
    if (endpoints is None) is (snapshot is None):
        raise TypeError("name either endpoints or a snapshot")
    inputs = Inputs(
        snapshot=Path(snapshot) if snapshot is not None else None,
        connection=_connection(endpoints, cacert=cacert, cert=cert, key=key, user=user),
        etcd_prefix=etcd_prefix,
        revision=0,
        encryption_config=Path(config) if config is not None else None,
        kubernetes_minor=parse_kubernetes_version(kubernetes_version),
        ask_kms=ask_kms,
    )
    configuration = load_encryption(inputs)
    request = ScanRequest(
        **inputs.reading_fields(configuration),
        scope=ScopeRequest(arguments=tuple(resources), namespaces=tuple(namespaces)),
        baseline=load_baseline(Path(baseline)) if baseline is not None else None,
    )
    found = _Found()
    with (
        open_source(inputs, say=lambda _notice: None) as source,
        open_plugins(inputs, configuration) as plugins,
    ):
        result = run_scan(source, request, found, plugins=plugins)
    if result.ended is not None:
        raise KeyboardInterrupt  # it was told to end, and so is whoever runs the tests
    incomplete = list(_incomplete(result))
    if found.count or incomplete:
        lines = [*text_lines(result.report.document(), request.run, _WIDTH)]
        lines += [
            safe_text(f"{finding.outcome} ({finding.cause}): {finding.key}")
            for finding in found.kept[:MOST_SHOWN]
        ]
        lines += [safe_text(f"incomplete: {reason}") for reason in incomplete]
        raise NotAllReadable("\n".join(lines), found.kept, incomplete)
    return result.report.summary


def _connection(
    where: EtcdServer | str | Sequence[str] | None, *, user: str | None, **files: str | PathLike[str] | None
) -> dict[str, Any]:
    endpoints: str | None
    if isinstance(where, EtcdServer):
        endpoints, user = where.endpoint, where.user
        files = dict(where.tls._asdict()) if where.tls is not None else {}
    else:
        endpoints = where if where is None or isinstance(where, str) else ",".join(where)
    named = {name: str(path) for name, path in files.items() if path is not None}
    if "key" in named:
        named["key_file"] = named.pop("key")
    # Without the variables that etcdctl reads: a test says what it looks at.
    return {"endpoints": endpoints, "user": user, **named, "environ": {}}


class _Found:
    """Keeps the findings that count."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[Finding] = []

    def begin(self, header: object) -> None: ...

    def end(self, report: object) -> None: ...

    def row(self, row: Any) -> None:
        finding: Finding = row
        if finding.baseline or finding.outcome not in FAILING:
            return
        self.count += 1
        if len(self.kept) < _MOST_KEPT:
            self.kept.append(finding)


def _incomplete(result: ScanResult) -> Iterator[str]:
    yield from result.problems
    if result.problems:
        return
    if result.nothing is not None:
        yield result.nothing.message
        yield result.nothing.hint
    elif result.report.summary.keys == result.report.summary.not_objects:
        yield "no object is in this scope"
