"""The published shape of a report (``etcdfix/v1``), field by field and in order.

The order is part of the contract: everything known before the first key comes first, everything that must
be counted comes last, so that a report can be written as a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
from msgspec import UNSET, UnsetType

from etcdfix.model.model import Evidence, Outcome
from etcdfix.report.document import Facts, Step
from etcdfix.sources.base import Segment
from etcdfix.text.commands import Command


class Counts(msgspec.Struct, kw_only=True):
    """How many keys had which outcome. ``stale`` keys are readable ones too."""

    keys: int = 0
    readable: int = 0
    stale: int = 0
    decrypt_failures: int = 0
    decode_failures: int = 0
    inconsistent: int = 0
    undetermined: int = 0


COUNTED: Final[Mapping[str, str]] = {
    Outcome.DECRYPT_FAILURE: "decrypt_failures",
    Outcome.DECODE_FAILURE: "decode_failures",
    Outcome.INCONSISTENT: "inconsistent",
    Outcome.UNDETERMINED: "undetermined",
}
"""Field of the counts for each outcome of findings."""


class ResourceSummary(Counts, kw_only=True):
    """Counts of one resource."""

    group: str
    resource: str


class CauseSummary(msgspec.Struct):
    """How often a cause was found, with the first key as an example."""

    cause: str
    outcome: str
    count: int
    example: str


class TransformerSummary(msgspec.Struct):
    """How many values were written under one encryption key of one rule, and what became of them.

    A key's name is local to its rule: one name in two rules gives two entries. ``resources`` are those of the rule.
    ``key_fingerprint`` is null under KMS, unencrypted, and where no key of that name is configured. ``failures`` do not
    open or do not decode; of ``damaged`` it is proven that the value is wrong, not the key.
    """

    transformer: str
    resources: list[str]
    key_fingerprint: str | None
    keys: int = 0
    failures: int = 0
    damaged: int = 0
    undetermined: int = 0
    stale: int = 0
    first_mod_revision: int = 0
    last_mod_revision: int = 0


class KMSPluginSummary(msgspec.Struct, frozen=True):
    """What a KMS plugin did in this run.

    ``state`` is ``ok``, ``not-asked`` (no value needed it), ``no-socket``, ``unreachable``, ``socket-denied``,
    ``denied``, ``wrong-version``, ``unhealthy`` or ``gave-up`` (it stopped answering); ``message`` says more.
    ``calls`` are all requests, repeated ones included; ``unwrapped`` data keys came back, ``refused`` did not by the
    plugin's word, ``failed`` for want of an answer.
    """

    transformer: str
    endpoint: str
    state: str
    message: str
    calls: int
    unwrapped: int
    refused: int
    failed: int


class NewFindings(msgspec.Struct, frozen=True):
    """What a baseline did not know: keys that cannot be read, are inconsistent or undetermined.

    So many ``findings``, ``undetermined`` of them; ``first`` is the first of their keys, null where nothing is new.
    """

    findings: int
    undetermined: int
    first: str | None


API_VERSION = "etcdfix/v1"


def other_version(found: object) -> str:
    """Return what is wrong with a document of another ``apiVersion``, as half a sentence."""
    return f"its apiVersion is {found or 'missing'}, and this etcdfix reads only {API_VERSION}"


def read_command(kind: type, value: Any) -> Any:
    """Return the command of a saved report: a ``dec_hook`` of msgspec."""
    if kind is Command and isinstance(value, str):
        return Command(text=value)
    raise TypeError(f"no {kind.__name__} in a report")


class Tool(msgspec.Struct, frozen=True):
    """Who wrote the report."""

    name: str
    version: str


class ReportSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the data came from. ``path`` for a snapshot, ``endpoints`` for a live etcd.

    ``file_modified_at`` is there for a snapshot: when its file was last written. That is when it was made, unless the
    file was copied since. ``warning`` says why etcd cannot restore a file of which all could be read.
    """

    type: str
    path: str | None = None
    endpoints: list[str] | None = None
    revision: int
    single_revision: bool
    segments: list[Segment]
    cluster_id: str | None
    kube_system_uid: str | None
    sha256: str | None
    etcd_version: str | None
    integrity: str = ""
    warning: str = ""
    file_modified_at: str = ""


def about(tool: Tool, at: str, *first: tuple[str, str]) -> Facts:
    """Return what was looked at, when and by what, for the last line of a document."""
    return Facts(facts=[*first, ("time", at), ("version", f"{tool.name} {tool.version}")])


class ReportConfiguration(msgspec.Struct, frozen=True):
    """The EncryptionConfiguration used: its path and the digest of the raw file."""

    path: str
    sha256: str


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked for; empty lists mean everything."""

    etcd_prefix: str
    prefixes: list[str]
    resources: list[str]
    namespaces: list[str]
    kubernetes_version: str | None

    @property
    def limits(self) -> list[str]:
        """What was asked for, in the words of the command line; empty for everything below the storage prefix."""
        below = f"{self.etcd_prefix.rstrip('/')}/"
        prefixes = [] if any(below.startswith(one) for one in self.prefixes) else self.prefixes
        return [*self.resources, *prefixes, *(f"-n {name}" for name in self.namespaces)]


class ValueKind(msgspec.Struct, frozen=True):
    """Group, version and kind that a value itself states."""

    group: str
    version: str
    kind: str


class Remedy(Step, frozen=True):
    """One way out; of a finding, ``verb`` is ``fix``, ``cure``, ``save``, ``rescue``, ``copies`` or ``delete``."""

    verb: str | UnsetType = UNSET


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key that there is something to say about.

    ``key_base64`` is present when the key is not plain text, and is authoritative then. ``lease`` is
    lower-case hex. ``baseline`` is present and true when ``--baseline`` knew the finding. ``severity``
    is ``breaks-now``, ``breaks-at-restart`` or ``one-object``, absent where nothing is proven wrong. ``rule`` and
    ``key_fingerprint`` say under which encryption key of which rule it counts, as ``by_transformer`` does; absent where
    there is none, or where several keys of the rule have that name. ``stale`` is present and true where the value
    reads, and is not written with today's write key.
    """

    key: str
    key_base64: str | None = None
    group: str
    resource: str
    namespace: str
    name: str
    outcome: str
    cause: str | None
    confidence: str
    transient: bool
    breaks_responses: bool
    apiserver: str
    message: str
    upstream_message: str
    transformer: str
    kms_key_id_sha256: str | None = None
    group_version_kind: ValueKind | None = None
    readable_until: str | None = None
    mod_revision: int
    create_revision: int
    version: int
    lease: str | None = None
    value_size: int
    value_sha256: str
    evidence: list[Evidence]
    remedies: list[Remedy]
    baseline: bool = False
    severity: str | None = None
    rule: str | None = None
    key_fingerprint: str | None = None
    stale: bool = False


class StatusCause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cause of a Kubernetes Status."""

    reason: str
    message: str
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Details of a Kubernetes Status; ``kind`` is the plural resource, ``name`` the etcd prefix listed."""

    name: str
    group: str = ""
    kind: str
    causes: list[StatusCause]


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The Status that KEP-3926 gives to a LIST of a resource with unreadable objects."""

    kind: str
    api_version: str
    metadata: dict[str, Any]
    status: str
    message: str
    reason: str
    details: StatusDetails
    code: int


class LostKey(msgspec.Struct, frozen=True):
    """An encryption key under which none of several values opens, or most do not: what holds for all of them, once.

    ``failures`` of the values under it (``of``) do not open or do not decode. ``resources`` are those of the values
    that do not open. Findings that belong to it have no remedies of their own.
    """

    transformer: str
    rule: str
    resources: list[str]
    key_fingerprint: str | None
    failures: int
    of: int
    first_mod_revision: int
    last_mod_revision: int
    remedies: list[Remedy]


class FindingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Findings that share cause, outcome, encryption key and way out.

    ``by_resource`` has the largest first; ``(others)`` in it counts the objects of resources that were not told apart.
    ``namespaces`` says how many there are, null where not all were counted; ``first_namespaces`` names some.
    ``example`` is the key of the most urgent finding, whose ``severity`` this is. The group ``(others)`` counts what
    found no group of its own.
    """

    cause: str | None
    outcome: str
    rule: str | None
    transformer: str
    count: int
    by_resource: dict[str, int]
    namespaces: int | None
    first_namespaces: list[str]
    severity: str | None
    example: str
    way: Remedy | None


class Summary(Counts, kw_only=True):
    """Counts of everything examined, never capped. ``known_findings``: how many of them a baseline knew.

    ``new`` is what it did not know, left out where there was no baseline.

    ``kms`` has the plugins that were there to be asked. ``severity`` is the worst, null where nothing is proven wrong;
    ``at_stake`` says in one line what that means, ``do_not_restart`` why no API server should be restarted ("" where
    nothing speaks against it), and ``next`` what to do first. ``warnings`` keys are in order and have a warning.
    ``readable_until`` is the last release that reads all that is readable, null where none dropped a version.
    """

    groups: list[FindingGroup] = msgspec.field(default_factory=list)
    not_objects: int = 0
    warnings: int = 0
    readable_until: str | None = None
    by_resource: list[ResourceSummary] = msgspec.field(default_factory=list)
    by_cause: list[CauseSummary] = msgspec.field(default_factory=list)
    by_transformer: list[TransformerSummary] = msgspec.field(default_factory=list)
    kms: list[KMSPluginSummary] = msgspec.field(default_factory=list)
    known_findings: int = 0
    severity: str | None = None
    at_stake: str = ""
    do_not_restart: str = ""
    next: Remedy | None = None
    key_loss: list[LostKey] = msgspec.field(default_factory=list)
    new: NewFindings | UnsetType = UNSET


class ReportBaseline(msgspec.Struct, frozen=True):
    """An earlier report of a scan: its path, the digest of the file, and when it was made."""

    path: str
    sha256: str
    generated_at: str


class PublishedReport(msgspec.Struct, frozen=True, kw_only=True):
    """The fields with which every report begins.

    ``ROWS`` names the list that may be longer than memory, whose items ``jsonl`` writes a line each.
    """

    ROWS: ClassVar[str] = ""

    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str
    tool: Tool
    generated_at: str


class SourcedReport(PublishedReport, frozen=True, kw_only=True):
    """The fields with which the report of one look at one source begins."""

    source: ReportSource
    encryption_config: ReportConfiguration | None

    def about(self) -> Facts:
        """Return what was looked at, for the last line."""
        source = self.source
        where = source.path if source.path is not None else ", ".join(source.endpoints or [])
        return about(
            self.tool,
            self.generated_at,
            ("revision", f"revision {source.revision} of {where}"),
            ("cluster", f"kube-system uid {source.kube_system_uid or 'unknown'}"),
        )


class ScanHeader(SourcedReport, frozen=True, kw_only=True):
    """What the report of a scan says before its first finding. ``baseline`` is left out where there was none."""

    ROWS: ClassVar[str] = "findings"

    kind: str = "ScanReport"
    scope: Scope
    baseline: ReportBaseline | UnsetType = UNSET


class ScanEnding(msgspec.Struct, frozen=True, kw_only=True):
    """What the report of a scan says after its findings.

    ``reached_end``: all in scope was seen; what nobody could judge makes it incomplete all the same. ``interrupted``: a
    signal ended the scan.
    In ``jsonl``, ``source`` stands there too: a file that was put together from two scans is known by it.
    """

    source: ReportSource
    summary: Summary
    complete: bool
    reached_end: bool
    incomplete_reasons: list[str]
    finished_at: str
    interrupted: bool = False
