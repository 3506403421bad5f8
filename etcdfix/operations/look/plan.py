"""From a scan report to a reviewed list: one pass over everything, then one look at each broken object."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from etcdfix.encryption.config import EncryptionConfiguration
from etcdfix.errors import ConfigurationError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, View, examine_all, no_progress
from etcdfix.graph.assess import assess
from etcdfix.graph.builder import IndexBuilder
from etcdfix.graph.contents import ContentReader
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import Action
from etcdfix.graph.recreation import Neighbours, Place, who_recreates
from etcdfix.inputs.ownfiles import PLAN_KIND
from etcdfix.maybe_newer import NOT_THE_OBJECT, Similarity, SimilarValues, in_our_tables, similarity_of
from etcdfix.model import Outcome, StoredValue
from etcdfix.operations.look.plan_steps import (
    STAGES,
    in_order,
    is_breaking,
    kms_step,
    steps_for,
    users_of,
    what_it_is,
)
from etcdfix.reports.model import API_VERSION
from etcdfix.reports.origin import TOOL, shown_configuration, shown_word, timestamp
from etcdfix.reports.plan_model import (
    DeletionPlan,
    LeftOut,
    PlanEntry,
    PlanGroup,
    PlanMaker,
    PlanReport,
    PlanSource,
    acceptance,
    declaration,
)
from etcdfix.reports.planfile import sealed
from etcdfix.reports.saved_report import SavedFinding, SavedReport
from etcdfix.sources.base import Source
from etcdfix.storagekey import ResourcePrefix, display
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.safetext import key_base64, quote_command, safe_text
from etcdfix.verdicts.deletability import (
    FAILED,
    IDENTITY,
    AcceptRisk,
    Deletability,
    deletability_of,
    key_may_be_lost,
    risks_of,
)
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import NOT_THE_KEY, THE_KEY, KeyCounter, KeyDoubt, doubt_about
from etcdfix.verdicts.protected import protected_reason

_WORST_FIRST: Final = (
    KeyDoubt.NONE_OPENS,
    KeyDoubt.MOST_FAIL,
    KeyDoubt.IN_BETWEEN,
    KeyDoubt.UNFITTING,
    KeyDoubt.MASS_DAMAGE,
    KeyDoubt.NONE,
)

_BROKEN: Final = FAILED | {Outcome.INCONSISTENT, Outcome.UNDETERMINED}
_MOST_REASONS: Final = 8
_NAMES: Final = frozenset({"key", "key_base64", "namespace", "name"})


def _now() -> datetime:
    return datetime.now(UTC)


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a plan holds.

    Attributes:
        report: What was found broken.
        configuration: Of the API servers; None where nothing is encrypted at rest.
        kubernetes_version: ``1.36``, None for every known release.
        newest: The source is read at its newest revision.
        same_again: Options that a command must repeat.
        plan_file: Where the plan will be, for its commands; "" where it is only shown.
    """

    report: SavedReport
    configuration: EncryptionConfiguration | None
    kubernetes_version: str | None = None
    newest: bool = True
    same_again: RepeatedOptions = RepeatedOptions()
    plan_file: str = ""


class _Broken(msgspec.Struct, frozen=True):
    """One object that may be deleted; its value is let go of, for there may be many."""

    found: Examination
    value_sha256: str
    similarity: Similarity | None


class _Gathered(msgspec.Struct):
    """What the pass over everything leaves."""

    broken: list[_Broken] = []
    left_out: dict[bytes, tuple[str, str]] = {}
    not_in_report: int = 0

    def leave_out_newer(self, similar: SimilarValues) -> None:
        """Leave out what fails as a whole kind does, unless the release may prove that the kind is gone."""
        for one in self.broken:
            counts = similar.of(one.found, one.similarity)
            if counts.points_at_us and not in_our_tables(one.found):
                self.left_out[one.found.stored.key] = (
                    "newer-than-known",
                    f"{counts}: that is {NOT_THE_OBJECT}",
                )
        self.broken = [one for one in self.broken if one.found.stored.key not in self.left_out]


def build_plan(
    source: Source,
    examiner: Examiner,
    request: PlanRequest,
    *,
    progress: Progress = no_progress,
    now: Callable[[], datetime] = _now,
) -> DeletionPlan:
    """Make the plan.

    Args:
        source: The cluster of the report, live or as a snapshot.
        examiner: It must have learned the CRDs.
        request: What for.
        progress: Counts the values, and then the broken objects, for a display.
        now: The clock.

    Raises:
        ConfigurationError: The report is of another cluster, configuration or storage prefix.
        SourceError: The source cannot be read.
    """
    begun = now()
    report = request.report
    uid = examiner.kube_system_uid(source)
    _check_same(report, uid, request, examiner)
    reported = {finding.raw_key(): finding for finding in report.findings}
    reader = ContentReader(examiner)
    keys, similar = KeyCounter(), SimilarValues(examiner)
    neighbours = Neighbours(reader, {_place(examiner, key) for key in reported})
    builder = IndexBuilder(examiner, source)
    gathered = _Gathered()

    def take(found: Examination, _view: View) -> None:
        builder.add(found)
        neighbours.take(found)
        keys.add(found)
        similar.add(found)
        _gather(gathered, found, reported.get(found.stored.key), examiner)

    examine_all(examiner, source.current(b""), take, progress=progress, whole=True)
    for key in reported.keys() - gathered.left_out.keys() - {b.found.stored.key for b in gathered.broken}:
        # What could not be read is not gone.
        gathered.left_out[key] = (
            ("undetermined", "it was not seen, and not everything could be read")
            if source.problems
            else ("gone", "the key does not exist any more")
        )
    gathered.leave_out_newer(similar)
    index = builder.finish(source.problems)
    description = source.describe()
    # A live etcd tells of earlier generations only by a watch for each key; a file has them at hand.
    file = description.type != "etcd"
    write = _Writer(index, source, examiner, reader, neighbours, keys, request, uid, file)
    drafts = [
        write.draft(broken)
        for broken in progress(iter(gathered.broken), "broken objects", len(gathered.broken))
    ]
    groups = _groups(gathered.broken, keys)
    entries = [
        msgspec.structs.replace(entry, needs=[*entry.needs, acceptance(AcceptRisk.CLUSTER_BREAKING)])
        if is_breaking(entry)
        else entry
        for entry in in_order(drafts)
    ]
    makers = _makers(entries)
    problems = [*report.problems, *source.problems]
    if index.opaque:
        problems.append(f"{index.opaque} objects cannot be looked into")
    if index.truncated:
        problems.append(f"{index.truncated} objects have more references than are followed")
    steps = steps_for(entries, groups, _lists(gathered.broken), request.same_again)
    plan = DeletionPlan(
        api_version=API_VERSION,
        kind=PLAN_KIND,
        tool=TOOL,
        generated_at=timestamp(begun),
        source=PlanSource(
            description.type,
            shown_word(description.path) if description.path is not None else None,
            list(description.endpoints) if description.endpoints is not None else None,
            description.revision,
            request.newest and not file,
            description.cluster_id,
        ),
        kube_system_uid=uid,
        encryption_config=shown_configuration(request.configuration),
        etcd_prefix=examiner.layout.prefix.rstrip("/") or "/",
        kubernetes_version=request.kubernetes_version,
        report=PlanReport(shown_word(report.path), report.sha256, report.generated_at),
        complete=not problems,
        incomplete_reasons=problems,
        groups=groups,
        recreated_by=makers,
        steps=steps,
        not_in_report=gathered.not_in_report,
        left_out=[_left_out(key, *why) for key, why in sorted(gathered.left_out.items())],
        entries=entries,
    )
    return sealed(_printable(plan))


def _printable(value: Any, field: str = "") -> Any:
    """Return a plan, or a part of it, whose texts a terminal can show: people cut them out of the JSON with jq.

    Texts that name an object stay as they are, for whoever needs to find it.
    """
    if isinstance(value, str):
        return value if field in _NAMES else safe_text(value)
    if isinstance(value, list):
        return [_printable(item, field) for item in value]
    if isinstance(value, msgspec.Struct):
        parts = {name: getattr(value, name) for name in value.__struct_fields__}
        return type(value)(**{name: _printable(part, name) for name, part in parts.items()})
    return value


def _check_same(report: SavedReport, uid: str | None, request: PlanRequest, examiner: Examiner) -> None:
    """Refuse a report that speaks of something else.

    Raises:
        ConfigurationError: It does.
    """
    if report.source.kube_system_uid != uid:
        raise ConfigurationError(
            f"the report is of the cluster whose kube-system has uid {report.source.kube_system_uid or 'unknown'}, "
            f"and here it is {uid or 'unknown'}",
            hint="name the etcd or the snapshot that was scanned, or scan this one",
        )
    theirs = report.encryption_config.sha256 if report.encryption_config is not None else "none"
    ours, name = "none", "here it"
    if request.configuration is not None:
        ours, name = request.configuration.sha256, request.configuration.path
    if theirs != ours:
        raise ConfigurationError(
            f"the report was made with the encryption configuration {theirs}, and {name} is {ours}",
            hint="scan again with the configuration that the API servers have now",
        )
    here = examiner.layout.prefix.rstrip("/") or "/"
    if report.scope.etcd_prefix != here:
        raise ConfigurationError(
            f"the report is of keys below {report.scope.etcd_prefix}, and here they are below {here}",
            hint=quote_command(["--etcd-prefix", report.scope.etcd_prefix]),
        )


def _place(examiner: Examiner, key: bytes) -> Place:
    directory, shared = examiner.layout.locate(key)
    custom = examiner.readers.custom_resource(directory)
    namespaced = directory.namespaced if custom is None else custom.scope == "Namespaced"
    where = examiner.layout.split(key, directory, shared, namespaced=namespaced)
    return Place(directory.path, where.namespace)


def _gather(
    gathered: _Gathered, found: Examination, finding: SavedFinding | None, examiner: Examiner
) -> None:
    verdict = found.verdict
    if finding is None:
        gathered.not_in_report += verdict.outcome in _BROKEN
        return
    stored = found.stored
    value = f"sha256:{hashlib.sha256(stored.value).hexdigest()}"
    why: tuple[str, str] | None = None
    if verdict.outcome not in _BROKEN:
        why = ("readable", "it can be read now")
    elif stored.mod_revision != finding.mod_revision:
        why = (
            "changed", f"it stands at mod_revision {stored.mod_revision}, the report has {finding.mod_revision}",
        )  # fmt: skip
    elif value != finding.value_sha256:
        why = ("changed", "its value has another digest than in the report")
    elif verdict.outcome is Outcome.INCONSISTENT:
        why = ("inconsistent", "the API server accepts it: heal or delete it through the API")
    else:
        why = _never(found)
    if why is not None:
        gathered.left_out[stored.key] = why
    else:
        bare = msgspec.structs.replace(found, stored=msgspec.structs.replace(stored, value=b""), decoded=None)
        gathered.broken.append(_Broken(bare, value, similarity_of(found, examiner)))


def _never(found: Examination) -> tuple[str, str] | None:
    """Return why a broken value is never deleted, whatever a person declares; None where it may be."""
    verdict = found.verdict
    match deletability_of(found):
        case Deletability.UNPROVEN:
            return "undetermined", f"nothing is proven against it ({verdict.message})"
        case Deletability.CURABLE:
            return "curable-by-configuration", f"the configuration alone can cure it ({verdict.message})"
        case Deletability.MOVED:
            return "value-moved", f"it belongs to {display(verdict.belongs_to)}: look at that key first"
        case Deletability.NEVER:
            return "never-deletable", f"{verdict.cause} is no reason to delete ({verdict.message})"
    return None


class _Writer(msgspec.Struct, frozen=True):
    """Looks at one broken object after the other."""

    index: ImpactIndex
    source: Source
    examiner: Examiner
    reader: ContentReader
    neighbours: Neighbours
    keys: KeyCounter
    request: PlanRequest
    uid: str | None
    generations: bool

    def draft(self, broken: _Broken) -> PlanEntry:
        """Return the entry of one object, without its turn.

        Raises:
            SourceError: Its history cannot be read.
        """
        found = broken.found
        stored = found.stored
        index = self.index
        node = index.find(stored.key)
        assert node is not None  # it was added
        assessment = assess(
            index,
            self.source,
            self.examiner,
            stored.key,
            reader=self.reader,
            generations=self.generations,
        )
        assert assessment is not None  # same
        recreation = who_recreates(index, node, self.neighbours, assessment)
        users, stopped = users_of(assessment)
        cause = found.verdict.cause
        return PlanEntry(
            order=0,
            key=display(stored.key),
            key_base64=key_base64(stored.key),
            group=found.directory.group,
            resource=found.directory.resource,
            namespace=found.namespace,
            name=found.name,
            mod_revision=stored.mod_revision,
            value_sha256=broken.value_sha256,
            outcome=found.verdict.outcome.value,
            cause=cause.value if cause is not None else "",
            transformer=found.transformer,
            kms_key_id_sha256=found.kms_key_id_sha256,
            what=what_it_is(assessment, recreation),
            users=users,
            users_stopped=stopped,
            cascade=assessment.collection.counts[Action.CASCADE_DELETED],
            recreated_by=recreation.recreated_by.name,
            recreate_confidence=recreation.confidence.value if recreation.confidence is not None else None,
            comes_back=recreation.recreated_by.comes_back.value,
            recreate_basis=recreation.basis,
            recreate_how=recreation.recreated_by.how,
            readable_revision=assessment.last_known.readable_at,
            protected=protected_reason(found.directory.group_resource, found.namespace),
            risk=assessment.risk.value,
            reasons=list(assessment.reasons[:_MOST_REASONS]),
            needs=_needs(found, _worst_doubt(found, self.keys)),
            command=self._command(stored),
        )

    def _command(self, stored: StoredValue) -> str:
        words = ["--expect-mod-revision", str(stored.mod_revision)]
        # A deletion refuses a plan that cannot say which cluster it is of.
        if self.request.plan_file and self.uid:
            words += ["--plan", self.request.plan_file]
        return f"{self.request.same_again.delete(stored.key)} {quote_command(words)}"


def _groups(broken: list[_Broken], keys: KeyCounter) -> list[PlanGroup]:
    members: dict[tuple[str, str, tuple[KeyName, ...]], list[Examination]] = {}
    for one in broken:
        found = one.found
        cause = found.verdict.cause.value if found.verdict.cause else ""
        members.setdefault((found.verdict.outcome.value, cause, found.encryption_keys), []).append(found)
    groups = []
    for (outcome, cause, names), alike in sorted(members.items(), key=lambda item: -len(item[1])):
        first = alike[0]
        doubt = _worst_doubt(first, keys)
        advice, flag = _advice(first, doubt)
        groups.append(
            PlanGroup(
                outcome,
                cause,
                first.transformer,
                first.rule,
                first.kms_key_id_sha256,
                len(alike),
                max(keys.of(name).opened for name in names),
                doubt is not KeyDoubt.NONE,
                advice,
                flag,
            )
        )
    return groups


def _worst_doubt(found: Examination, keys: KeyCounter) -> KeyDoubt:
    doubts = {doubt_about(keys.of(name), found.verdict) for name in found.encryption_keys}
    return next(doubt for doubt in _WORST_FIRST if doubt in doubts)


def _needs(found: Examination, doubt: KeyDoubt) -> list[str]:
    """Return the flags that a deletion needs beyond its command, but for the one that the object's place asks for."""
    _, flag = _advice(found, doubt)
    risks = [acceptance(risk) for risk in risks_of(found.verdict)]
    mass = [acceptance(AcceptRisk.MASS_DAMAGE)] if doubt in NOT_THE_KEY else []
    return [*([flag] if flag else []), *risks, *mass]


def _advice(found: Examination, doubt: KeyDoubt) -> tuple[str, str]:
    """Return what is to be said of values like this one, and the flag that declares their key lost; "" for nothing."""
    transformer, key = found.transformer, doubt in THE_KEY
    if doubt in NOT_THE_KEY:
        return "something happened to values in numbers: find out what before anything is deleted", ""
    if transformer in {IDENTITY, ""}:
        return (
            ("many values do not open, and no key is to blame: find out what wrote them", "")
            if key
            else ("", "")
        )
    if found.verdict.outcome is Outcome.UNDETERMINED:
        text = kms_step(found.verdict.cause)
        text = f"nothing is proven: {text[0].lower()}{text[1:]}"
    elif deletability_of(found) is Deletability.DECLARABLE:
        text = "the configuration alone can cure this: find the key"
    elif key and not key_may_be_lost(found):
        return "many values under its key do not open, and the key is there: find out why first", ""
    elif doubt is KeyDoubt.IN_BETWEEN:
        text = "the key may have had other bytes for a time: find them"
    elif key:
        text = "that is the key, not the objects: find it"
    else:
        return "", ""
    flag = declaration(transformer, found.kms_key_id_sha256)
    return f"{text}; only if it is gone for ever: {flag}", flag


def _makers(entries: Iterable[PlanEntry]) -> list[PlanMaker]:
    counts = Counter((e.recreated_by, e.comes_back, e.recreate_how) for e in entries)
    return [
        PlanMaker(name, comes_back, count, how)
        for (name, comes_back, how), count in sorted(
            counts.items(), key=lambda item: (STAGES[item[0][1]], -item[1], item[0])
        )
    ]


def _lists(broken: list[_Broken]) -> dict[tuple[str, str], str]:
    """Return the paths of the LISTs in the API that show the broken objects, those of most first."""
    counts: Counter[ResourcePrefix] = Counter(one.found.directory for one in broken)
    paths = {}
    for directory, _ in counts.most_common():
        path = directory.api_path("", None)
        if path:
            paths[directory.group, directory.resource] = path
    return paths


def _left_out(key: bytes, why: str, detail: str) -> LeftOut:
    return LeftOut(key=display(key), key_base64=key_base64(key), why=why, detail=detail)
