"""EncryptionConfigurations out of the bootstrap data of k3s and RKE2, and which values each of them opens."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from etcdfix.encryption.bootstrap import RecoveredFile
from etcdfix.encryption.config import EncryptionConfiguration, parse_configuration
from etcdfix.encryption.config_mark import MADE_BY_RECOVER
from etcdfix.encryption.config_rules import parse_group_resource
from etcdfix.encryption.config_text import Element, Part, configuration_file
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.encryption.server_token import ServerToken
from etcdfix.errors import ConfigurationError, EndedEarly, SourceError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, no_progress
from etcdfix.operations.look.encryption.bootstrap_log import LoggedValues
from etcdfix.operations.look.encryption.bootstrap_values import (
    BootstrapValues,
    KeptValue,
    read_values,
)
from etcdfix.operations.look.encryption.candidates import NamedCandidate, TryRequest, try_candidates
from etcdfix.operations.look.encryption.merge import rules_of
from etcdfix.operations.look.encryption.node_stages import read_node_stages
from etcdfix.operations.look.encryption.recover_advice import next_step, notes
from etcdfix.operations.look.encryption.whole import Looked
from etcdfix.report.configurations import FileRecord
from etcdfix.report.encryption_try import CandidateResult, EncryptionTryReport, Opened
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import report_origin, shown_word
from etcdfix.report.recover import (
    BootstrapValue,
    EncryptionRecoverReport,
    NamedByNodes,
    NodeConfiguration,
    RecoveredConfiguration,
)
from etcdfix.sources.base import Source


class RecoverRequest(TryRequest, frozen=True, kw_only=True):
    """Everything that decides what is looked for; what is found are the candidates.

    Attributes:
        tokens: Every form of every token, the empty one too.
    """

    tokens: tuple[ServerToken, ...]
    token_files: tuple[str, ...]
    write_ahead_logs: tuple[str, ...] = ()


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration.

    Attributes:
        file: As the server had it.
        configuration: The same as etcdfix writes it, marked; None where API servers would refuse it.
    """

    name: str
    file: RecoveredFile
    configuration: EncryptionConfiguration | None


class Found(msgspec.Struct, kw_only=True):
    """What was found before any value was tried.

    Attributes:
        recovered: The newest configuration first, those that are only ``possible`` last.
        log_notes: What to know of the write-ahead logs, one sentence each.
        cluster: uid of kube-system; None where it cannot be read.
    """

    values: BootstrapValues
    problems: list[str]
    recovered: list[Recovered]
    log_notes: tuple[str, ...]
    nodes: list[NodeConfiguration] = []
    unread_nodes: int = 0
    cluster: str | None = None

    @property
    def usable(self) -> list[EncryptionConfiguration]:
        """Those that API servers would take."""
        return [one.configuration for one in self.recovered if one.configuration is not None]


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What was written.

    Attributes:
        no_record: Why there is none, else "".
    """

    files: Mapping[str, ReportConfiguration] = msgspec.field(default_factory=dict)
    records: tuple[FileRecord, ...] = ()
    no_record: str = ""


def find_configurations(source: Source, request: RecoverRequest, logged: LoggedValues | None = None) -> Found:
    """Find every configuration that is still kept, and what the Nodes say of theirs.

    Raises:
        SourceError: Nothing can be read under the prefix of the bootstrap data.
    """
    logged = logged if logged is not None else LoggedValues()
    values = read_values(source, request.tokens, logged.values)
    files = ((f"recovered-{at}", file) for at, file in enumerate(values.files.values(), start=1))
    found = Found(
        values=values,
        problems=[*values.problems, *logged.problems],
        recovered=[
            Recovered(name=name, file=file, configuration=_marked(file, name)) for name, file in files
        ],
        log_notes=logged.notes,
    )
    examiner = Examiner.of(request)
    try:
        found.cluster = examiner.kube_system_uid(source)
        found.nodes, found.unread_nodes = read_node_stages(source, examiner)
    except SourceError as problem:  # what was recovered is worth more
        found.problems.append(f"what the Nodes say could not be read: {problem.message}")
    return found


def _marked(file: RecoveredFile, name: str) -> EncryptionConfiguration | None:
    """Return a configuration as it would be written; None, without a reason, for one that API servers refuse."""
    try:
        as_it_was = parse_configuration(file.expose(), path=name)
        return parse_configuration(marked_file(as_it_was, file.sha256), path=name)
    except ConfigurationError:
        return None


def marked_file(configuration: EncryptionConfiguration, sha256: str) -> bytes:
    """Return a configuration as a file that is for reading, encryption keys included.

    It says nothing of where it was found, so that the same configuration always makes the same file.
    """
    elements = [
        Element(
            tuple(map(parse_group_resource, rule.resources)),
            tuple(Part(provider, None) for provider in rule.providers),
        )
        for rule in configuration.rules
    ]
    comment = [
        f"Made by etcdfix encryption {MADE_BY_RECOVER}, of a file that a server of k3s or RKE2 kept in the datastore:",
        f"  {sha256}",
        "Which one the servers run with today, the annotation encryption-config-hash of their Nodes tells.",
    ]
    return configuration_file(elements, made_by=MADE_BY_RECOVER, comment=comment)


def try_recovered(
    source: Source,
    request: RecoverRequest,
    found: Found,
    *,
    saved: Saved | None = None,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> tuple[EncryptionRecoverReport, EndedEarly | None]:
    """Try every configuration on the values that do not open today; return all of it, and what ended the look early.

    Raises:
        ConfigurationError: The scope names something that does not exist.
    """
    saved = saved if saved is not None else Saved()
    candidates = tuple(
        NamedCandidate(one.name, _at(one.configuration, saved.files.get(one.name)))
        for one in found.recovered
        if one.configuration is not None
    )
    tried = None
    if candidates:
        trying = msgspec.structs.replace(request, candidates=candidates)
        try:
            tried = try_candidates(source, trying, plugins=plugins, progress=progress)
        except SourceError as problem:  # what was recovered, and written, is told all the same
            found.problems.append(f"which values they open could not be read: {problem.message}")
    report = _report(source, request, found, saved, tried)
    advised = tried.report.next if tried is not None and saved.files else None
    report = msgspec.structs.replace(
        report, notes=[*notes(report), *found.log_notes], next=next_step(report, advised)
    )
    return report, tried.whole.ended if tried is not None else None


def _at(configuration: EncryptionConfiguration, file: ReportConfiguration | None) -> EncryptionConfiguration:
    return configuration if file is None else msgspec.structs.replace(configuration, path=file.path)


def _report(
    source: Source,
    request: RecoverRequest,
    found: Found,
    saved: Saved,
    tried: Looked[EncryptionTryReport] | None,
) -> EncryptionRecoverReport:
    names = {one.file.sha256: one.name for one in found.recovered}
    results = {one.name: one for one in tried.report.candidates} if tried is not None else {}
    reasons = [*found.problems, *(tried.report.incomplete_reasons if tried is not None else source.problems)]
    if tried is not None and not tried.whole.below_prefix:
        reasons.append(f"no key starts with {request.layout.prefix}: nothing was there to try them on")
    if found.unread_nodes:
        reasons.append(f"{found.unread_nodes} of the Nodes could not be read")
    groups = tried.report.groups if tried is not None else []
    if not saved.files:  # what they advise names files
        for group in groups:
            group.next = None
    return EncryptionRecoverReport(
        **report_origin(source.describe(), request.configuration, found.cluster),
        token_files=list(map(shown_word, request.token_files)),
        write_ahead_logs=list(map(shown_word, request.write_ahead_logs)),
        bootstrap_keys=found.values.keys,
        values=[_value(kept, names) for kept in found.values.values],
        configurations=[_published(found, one, results.get(one.name), saved) for one in found.recovered],
        nodes=found.nodes,
        unread_nodes=found.unread_nodes,
        tried=tried.report.findings if tried is not None else None,
        opened=tried.report.opened if tried is not None else 0,
        groups=groups,
        audit_records=list(saved.records),
        no_record=saved.no_record,
        complete=not reasons,
        incomplete_reasons=list(dict.fromkeys(reasons)),
    )


def _value(kept: KeptValue, names: Mapping[str, str]) -> BootstrapValue:
    opened = kept.opened
    return BootstrapValue(
        mod_revision=kept.mod_revision,
        current=kept.current,
        log_index=kept.log_index,
        confidence=kept.confidence.value,
        state=opened.state.value,
        reason=opened.reason,
        token_form=opened.token_form.value if opened.token_form is not None else None,
        form=opened.form.value if opened.form is not None else None,
        configuration=names[opened.file.sha256] if opened.file is not None else None,
    )


def _published(
    found: Found, one: Recovered, result: CandidateResult | None, saved: Saved
) -> RecoveredConfiguration:
    holding, surest = found.values.of(one.file.sha256), found.values.surest_of(one.file.sha256)
    revisions = [kept.mod_revision for kept in holding if kept.mod_revision is not None]
    # The newest word on it: one file goes through several stages.
    stages = [kept.opened.file.stage for kept in holding if kept.opened.file is not None]
    stage = next((stage for stage in reversed(stages) if stage is not None), None)
    naming = [node for node in found.nodes if node.names_a_file]
    nodes = [node.node for node in naming if node.sha256 == one.file.sha256]
    opened = result if result is not None else Opened()
    return RecoveredConfiguration(
        name=one.name,
        sha256=one.file.sha256,
        usable=one.configuration is not None,
        current=any(kept.current for kept in holding),
        confidence=surest.confidence.value,
        doubt=surest.doubt,
        first_mod_revision=min(revisions, default=None),
        last_mod_revision=max(revisions, default=None),
        file_time=one.file.file_time,
        stage=stage.name if stage is not None else "",
        stage_fits=stage.sha256 == one.file.sha256 if stage is not None and stage.names_a_file else None,
        named_by_nodes=_named(len(nodes), len(naming)),
        nodes=nodes,
        rules=rules_of(one.configuration) if one.configuration is not None else [],
        opens=opened.opens,
        right_key=opened.right_key,
        undetermined=opened.undetermined,
        file=saved.files.get(one.name),
    )


def _named(nodes: int, naming: int) -> NamedByNodes:
    if not naming:
        return NamedByNodes.UNKNOWN
    if not nodes:
        return NamedByNodes.NONE
    return NamedByNodes.ALL if nodes == naming else NamedByNodes.SOME
