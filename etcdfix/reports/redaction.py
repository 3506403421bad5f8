"""Reports for people who should not read the names of objects: ``--redact-names``.

A name becomes ``n-`` and the start of its HMAC-SHA256 under a key: the same name is the same word in every report made
with the same key, and without the key no guess can be tried. What may quote a name in the middle of a sentence is left
out, not searched: evidence, the API server's words, remedies. The words for a cause come from the catalogue instead.

Left as they are: resources, encryption keys' names and fingerprints, revisions, sizes, digests of values, uids, counts.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError, why
from etcdfix.inputs.inputfile import read_input
from etcdfix.reports.base import Reporter
from etcdfix.reports.model import (
    Conclusion,
    Finding,
    Header,
    KMSSummary,
    NewFindings,
    ReportSource,
    Scope,
    SharedWords,
    Status,
    StatusCause,
    Summary,
)
from etcdfix.storagekey import StorageCodec, StorageLayout, display
from etcdfix.verdicts.causes import CATALOGUE, Cause

_USUAL_PREFIXES: Final = frozenset({"registry", "kubernetes.io", "openshift.io"})
_SHORTEST_KEY, _LONGEST_KEY = 16, 4096
_DIGITS: Final = 16
_KEY_ID_OF: Final = b"etcdfix: which key this is"
_WITHOUT_NAMES: Final = re.compile(
    r"undetermined: \d+ keys?|no key matches the given name|[a-z ]+ before the end"
)
_WITHHELD: Final = "withheld: it may quote names; standard error of the scan had it"


class Redactor:
    """Replaces names by keyed digests.

    Args:
        key: Secret, at least 16 bytes.
        layout: Of the etcd keys.
    """

    def __init__(self, key: bytes, layout: StorageLayout) -> None:
        self._key = key
        self._layout = layout

    @property
    def key_id(self) -> str:
        """Tells two keys apart, and nothing about either."""
        return self._digest(_KEY_ID_OF)

    def name(self, name: str) -> str:
        """Return what stands for a name; "" for "", which is none."""
        return f"n-{self._digest(name.encode('utf-8', 'surrogateescape'))}" if name else ""

    def key(self, key: str) -> str:
        """Return an etcd key or a prefix of some, as it is shown, with what follows the resource replaced."""
        raw = key.encode("utf-8", "surrogateescape")
        directory, shared = self._layout.locate(raw)
        whole = shared == raw and not raw.endswith(b"/") and directory.codec is not StorageCodec.ALLOCATOR
        known = "" if whole else display(shared)
        if directory.codec is StorageCodec.UNKNOWN and key.startswith(self._layout.prefix):
            # The first segment below the prefix stands in every report as a resource, where something follows it.
            first = f"{self._layout.prefix}{directory.path}/"
            known = first if key.startswith(first) else self._layout.prefix
        rest = key[len(known) :]
        return self.prefix(known) + "/".join(map(self.name, rest.split("/")))

    def prefix(self, known: str) -> str:
        """Return the start of a key with a storage prefix replaced that no API server has by default."""
        own = self._layout.prefix
        if own.strip("/") in _USUAL_PREFIXES or not known.startswith(own):
            return known
        return f"/{self.name(own.strip('/'))}/{known[len(own) :]}"

    def _digest(self, text: bytes) -> str:
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()[:_DIGITS]


def load_redaction_key(path: Path | None) -> bytes:
    """Return the key of a file, or a new one that nobody will ever have again.

    Raises:
        ConfigurationError: The file cannot be read, or is too short or too long for a key.
    """
    if path is None:
        return os.urandom(32)
    try:
        key = read_input(path, most_bytes=_LONGEST_KEY)
    except OSError as exc:
        raise ConfigurationError(f"--redact-key-file {path}: {why(exc)}") from exc
    if len(key) < _SHORTEST_KEY:
        raise ConfigurationError(
            f"--redact-key-file {path}: {len(key)} bytes; a key has at least {_SHORTEST_KEY}",
            hint="head -c 32 /dev/urandom > FILE",
        )
    return key


class RedactingReporter(Reporter):
    """Hands everything on without names.

    Args:
        inner: Writes the report.
        redactor: Replaces names.
    """

    def __init__(self, inner: Reporter, redactor: Redactor) -> None:
        self._inner = inner
        self._to = redactor

    def begin(self, header: Header) -> None:
        """Hand on the header."""
        configuration = header.encryption_config
        if configuration is not None:
            configuration = msgspec.structs.replace(configuration, path=self._to.name(configuration.path))
        baseline = header.baseline
        if baseline is not None:
            baseline = msgspec.structs.replace(baseline, path=self._to.name(baseline.path))
        self._inner.begin(
            msgspec.structs.replace(
                header,
                source=self._source(header.source),
                encryption_config=configuration,
                scope=self._scope(header.scope),
                baseline=baseline,
            )
        )

    def finding(self, finding: Finding) -> None:
        """Hand on a finding."""
        self._inner.finding(
            msgspec.structs.replace(
                self._finding(finding), message=_meaning(finding.cause), group_version_kind=None
            )
        )

    def finding_of_lost_key(self, finding: Finding, shared: SharedWords) -> None:
        """Hand on a finding of a lost key."""
        shared = self._shared(shared)
        self._inner.finding_of_lost_key(
            msgspec.structs.replace(self._finding(finding), shared=shared.id), shared
        )

    def _finding(self, finding: Finding) -> Finding:
        to = self._to
        return msgspec.structs.replace(
            finding,
            key=to.key(finding.key),
            key_base64=None,
            namespace=to.name(finding.namespace),
            name=to.name(finding.name),
            upstream_message="",
            evidence=[],
            remedies=[],
        )

    def end(self, conclusion: Conclusion) -> None:
        """Hand on the conclusion."""
        self._inner.end(
            msgspec.structs.replace(
                conclusion,
                source=self._source(conclusion.source),
                statuses=list(map(self._status, conclusion.statuses)),
                summary=self._summary(conclusion.summary),
                incomplete_reasons=[
                    reason if _WITHOUT_NAMES.fullmatch(reason) else _WITHHELD
                    for reason in conclusion.incomplete_reasons
                ],
            )
        )

    def _shared(self, shared: SharedWords) -> SharedWords:
        """Leave out what may quote a name; the id is a digest of that, by which a name could be guessed."""
        return SharedWords(self._to.name(shared.id), shared.cause, _meaning(shared.cause), [])

    def _source(self, source: ReportSource) -> ReportSource:
        to = self._to
        return msgspec.structs.replace(
            source,
            path=to.name(source.path) if source.path is not None else None,
            endpoints=list(map(to.name, source.endpoints)) if source.endpoints is not None else None,
            segments=[
                msgspec.structs.replace(
                    segment, from_key=to.key(segment.from_key) if segment.from_key else ""
                )
                for segment in source.segments
            ],
        )

    def _scope(self, scope: Scope) -> Scope:
        return msgspec.structs.replace(
            scope,
            etcd_prefix=self._to.prefix(f"{scope.etcd_prefix.rstrip('/')}/").rstrip("/") or "/",
            prefixes=list(map(self._to.key, scope.prefixes)),
            namespaces=list(map(self._to.name, scope.namespaces)),
            redaction_key_id=self._to.key_id,
        )

    def _status(self, status: Status) -> Status:
        details = status.details
        causes = [self._status_cause(cause) for cause in details.causes]
        # A LIST of one namespace names it.
        details = msgspec.structs.replace(details, name=self._to.key(details.name), causes=causes)
        return msgspec.structs.replace(status, details=details)

    def _status_cause(self, cause: StatusCause) -> StatusCause:
        if not cause.field:
            return cause
        field = self._to.key(cause.field)
        return msgspec.structs.replace(
            cause, message=f"StorageError: corrupt object, Code: 7, Key: {field}", field=field
        )

    def _summary(self, summary: Summary) -> Summary:
        return msgspec.structs.replace(
            summary,
            by_cause=[
                msgspec.structs.replace(cause, example=self._to.key(cause.example))
                for cause in summary.by_cause
            ],
            kms=self._kms(summary.kms) if summary.kms is not None else None,
            next=None,
            new=self._new(summary.new),
            key_loss=[
                msgspec.structs.replace(lost, remedies=[], shared=[*map(self._shared, lost.shared)])
                for lost in summary.key_loss
            ],
        )

    def _new(self, new: NewFindings | msgspec.UnsetType) -> NewFindings | msgspec.UnsetType:
        if new is msgspec.UNSET or new.first is None:
            return new
        return msgspec.structs.replace(new, first=self._to.key(new.first))

    def _kms(self, kms: KMSSummary) -> KMSSummary:
        plugins = [
            msgspec.structs.replace(plugin, endpoint=self._to.name(plugin.endpoint), message="")
            for plugin in kms.plugins
        ]
        return msgspec.structs.replace(kms, plugins=plugins)


def _meaning(cause: str | None) -> str:
    return CATALOGUE[Cause(cause)].meaning if cause else ""
