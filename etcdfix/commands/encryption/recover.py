"""EncryptionConfigurations out of the bootstrap data of k3s and RKE2, and which values each of them opens.

What the servers say on their Nodes of the configuration that they run with: k3s ``pkg/secretsencrypt/config.go``; the
annotation begins with the name of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.encryption.merge import rules_of
from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.copies.bootstrap import Configuration, bootstrap_values
from etcdfix.copies.finder import Finder, Named, OtherHistory
from etcdfix.copies.log import Log
from etcdfix.copies.model import Sameness
from etcdfix.copies.search import Places, open_finders, problems_of
from etcdfix.encryption.bootstrap import RecoveredFile, ServerToken, Stage
from etcdfix.encryption.config import parse_configuration, recovered_file
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.one import Examiner
from etcdfix.model.errors import ConfigurationError, EndedEarly, SourceError
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import Operator
from etcdfix.remediation.checks.key import read_nodes
from etcdfix.remediation.key_files import KeyFile, save_key_files
from etcdfix.report.configurations import FileRecord
from etcdfix.report.encryption import EncryptionTryReport, Opened
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import report_origin, shown_file, shown_word
from etcdfix.report.recover import (
    BootstrapValues,
    EncryptionRecoverReport,
    NodeConfiguration,
    RecoveredConfiguration,
)
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_ANNOTATIONS: Final = ("k3s.io/encryption-config-hash", "rke2.io/encryption-config-hash")
_DIGITS: Final = 16

OpenPlugins = Callable[..., AbstractContextManager["KMSPlugins | None"]]
"""Opens the KMS plugins of some configurations."""


class RecoverRequest(TryRequest, frozen=True, kw_only=True):
    """Everything that decides what is looked for; what is found are the candidates.

    Attributes:
        tokens: Every form of every token, the empty one too.
        places: Logs and snapshots that are looked into besides.
        save_dir: Where each configuration is written to a file; None to write nothing.
        audit_log: Where that is recorded; None for the default log, where it can be written.
    """

    tokens: tuple[ServerToken, ...]
    token_files: tuple[str, ...]
    places: tuple[Named, ...] = ()
    save_dir: Path | None = None
    audit_log: Path | None = None
    etcd_user: str = ""


class _Recovered(msgspec.Struct):
    """One configuration; ``usable`` is the same as etcdfix writes it, None where API servers would refuse it."""

    name: str
    found: Configuration
    usable: EncryptionConfiguration | None
    written: ReportConfiguration | None = None


def recover_configurations(
    source: Source, request: RecoverRequest, open_plugins: OpenPlugins, *, progress: Progress = no_progress
) -> tuple[EncryptionRecoverReport, EndedEarly | None]:
    """Find every configuration that is still kept, write each to a file, and try them on what does not open today.

    Returns:
        All of it, and what ended the look early.

    Raises:
        OtherHistory: A log or a snapshot is of another history than what is stored now.
        RemediationRefused: The directory, or the audit log that was named, is not safe; or a file cannot be written.
        AuditError: The record could not be made durable in the audit log that was named: nothing was written.
    """
    examiner, uid = Examiner.of(request), None
    if request.places:
        examiner = Examiner.of_cluster(source, request)
        uid = examiner.kube_system_uid(source)
    places = Places(named=request.places, progress=progress)
    with open_finders(source, examiner, places, uid=uid, identity=ClusterIdentity()) as finders:
        problems, notes = problems_of(finders), [*_notes_on(finders)]
        values = bootstrap_values(source, finders, request.tokens)
    problems += values.problems
    nodes: list[NodeConfiguration] = []
    unread = 0
    try:
        uid = examiner.kube_system_uid(source)
        nodes, unread = _read_nodes(source, examiner)
    except SourceError as problem:  # what was recovered is worth more
        problems.append(f"what the Nodes say could not be read: {problem.message}")
    if unread:
        problems.append(f"{unread} of the Nodes could not be read")
    recovered = [
        _Recovered(f"recovered-{at}", found, _marked(found.file, f"recovered-{at}"))
        for at, found in enumerate(values.configurations, start=1)
    ]
    records, no_record = _save(source, request, recovered, uid)
    tried, ended = _tried(source, request, recovered, open_plugins, progress, problems)
    results = {one.name: one for one in tried.candidates} if tried is not None else {}
    configurations = [_published(one, results.get(one.name, Opened()), nodes) for one in recovered]
    states = Counter((kept.opened.state.value, kept.opened.reason) for kept in values.values)
    report = EncryptionRecoverReport(
        **report_origin(source.describe(), request.configuration, uid),
        token_files=[*map(shown_word, request.token_files)],
        looked_in=[shown_word(str(named)) for named in request.places],
        bootstrap_keys=values.keys,
        values=[BootstrapValues(state=state, reason=why, number=n) for (state, why), n in states.items()],
        configurations=configurations,
        nodes=nodes,
        unread_nodes=unread,
        tried=tried.findings if tried is not None else None,
        opened=tried.opened if tried is not None else 0,
        groups=tried.groups if tried is not None else [],
        audit_records=records,
        no_record=no_record,
        complete=not problems,
        incomplete_reasons=[*dict.fromkeys(problems)],
    )
    advised = tried.next if tried is not None and request.save_dir is not None else None
    report = msgspec.structs.replace(report, notes=[*report.what_to_know(), *notes])
    return msgspec.structs.replace(report, next=report.next_step(advised)), ended


def _tried(
    source: Source,
    request: RecoverRequest,
    recovered: Iterable[_Recovered],
    open_plugins: OpenPlugins,
    progress: Progress,
    problems: list[str],
) -> tuple[EncryptionTryReport | None, EndedEarly | None]:
    """Try what was recovered on what does not open today; add why that is not everything."""
    usable = {one.name: one.usable for one in recovered if one.usable is not None}
    if not usable:
        problems += source.problems
        return None, None
    candidates = tuple(NamedCandidate(*candidate) for candidate in usable.items())
    trying = msgspec.structs.replace(request, candidates=candidates)
    try:
        with open_plugins(*usable.values()) as plugins:
            report, ended = try_candidates(source, trying, plugins=plugins, progress=progress)
    except SourceError as problem:  # what was recovered, and written, is told all the same
        problems.append(f"which values they open could not be read: {problem.message}")
        problems += source.problems
        return None, None
    for group in report.groups if request.save_dir is None else ():
        group.next = None  # it names files
    problems += report.incomplete_reasons
    return report, ended


def _notes_on(finders: Iterable[Finder]) -> Iterator[str]:
    """Yield what to know of the places that were named, and refuse those of another history."""
    for finder in finders:
        if isinstance(finder, Log):
            yield from (f"write-ahead log: {note}" for note in finder.notes)
        for looked in finder.looked:
            if looked.history is Sameness.OTHER:
                raise OtherHistory(
                    f"{looked.path}: {looked.detail}",
                    hint="name a place of this very cluster, not of a clone",
                )
            if looked.searched and looked.history is Sameness.UNKNOWN:
                yield (
                    f"Nothing shows that {looked.path} is of this etcd: {looked.detail}. A server that had this token "
                    "wrote what the token opens."
                )


def _read_nodes(source: Source, examiner: Examiner) -> tuple[list[NodeConfiguration], int]:
    """Return what each Node says of the configuration of its server, and how many could not be read."""
    said: list[NodeConfiguration] = []
    unread = 0
    for name_of_node, node in read_nodes(source, examiner):
        unread += node is None
        annotations = ((node or {}).get("metadata") or {}).get("annotations") or {}
        for name in _ANNOTATIONS:
            stage = Stage.parse(str(annotations.get(name) or "").encode(errors="replace"))
            if stage is not None:
                said.append(NodeConfiguration(display(name_of_node), stage.name, stage.sha256))
    return said, unread


def _marked(file: RecoveredFile, name: str) -> EncryptionConfiguration | None:
    """Return a configuration as it would be written; None, without a reason, for one that API servers refuse."""
    try:
        as_it_was = parse_configuration(file.expose(), path=name)
        return parse_configuration(recovered_file(as_it_was, file.sha256), path=name)
    except ConfigurationError:
        return None


def _save(
    source: Source, request: RecoverRequest, recovered: Iterable[_Recovered], uid: str | None
) -> tuple[list[FileRecord], str]:
    """Record and then write every configuration that API servers would take."""
    here, files = source.describe(), []
    origin = f"{here.type} {shown_word(here.path)}" if here.path is not None else "a live etcd"
    for one in recovered:
        if request.save_dir is not None and one.usable is not None:
            sha256 = one.found.file.sha256
            text = recovered_file(one.usable, sha256)
            path = request.save_dir / f"encryption-config-{sha256.removeprefix('sha256:')[:_DIGITS]}.yaml"
            one.written = shown_file(path, text)
            one.usable = msgspec.structs.replace(one.usable, path=one.written.path)
            detail = f"EncryptionConfiguration {sha256} recovered from the bootstrap data in {origin}"
            files.append(KeyFile(path.name, text, one.written, detail))
    if request.save_dir is None or not files:
        return [], ""
    return save_key_files(
        request.save_dir,
        files,
        audit_log=request.audit_log,
        operator=Operator.of_this_process(etcd_user=request.etcd_user),
        cluster_uid=uid or "",
        revision=here.revision if here.path is None else 0,
    )


def _published(one: _Recovered, opened: Opened, nodes: Iterable[NodeConfiguration]) -> RecoveredConfiguration:
    held, surest, sha256 = one.found.held, one.found.surest, one.found.file.sha256
    revisions = [kept.mod_revision for kept in held if kept.mod_revision]
    # The newest word on it: one file goes through several stages.
    stages = [kept.opened.file.stage for kept in reversed(held) if kept.opened.file is not None]
    return RecoveredConfiguration(
        name=one.name,
        sha256=sha256,
        usable=one.usable is not None,
        current=any(kept.current for kept in held),
        confidence=surest.sure.value,
        doubt=surest.doubt,
        first_mod_revision=min(revisions, default=None),
        last_mod_revision=max(revisions, default=None),
        stage=next((stage.name for stage in stages if stage is not None and stage.is_of(sha256)), ""),
        nodes=[node.node for node in nodes if node.names_a_file and node.sha256 == sha256],
        rules=rules_of(one.usable) if one.usable is not None else [],
        opens=opened.opens,
        right_key=opened.right_key,
        undetermined=opened.undetermined,
        file=one.written,
    )
