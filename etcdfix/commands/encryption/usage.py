"""Which encryption key is needed by how many values, and whether one can be taken out of the configuration.

Never "safe" while anything speaks against it that was not looked at: a key that was removed too early makes objects
unreadable, and nobody notices before the next restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etcdfix.commands.encryption.key_uses import EVERY_RULE, KeyUses
from etcdfix.commands.encryption.whole import (
    MAIN_NOT_READ,
    DeploymentRequest,
    Looked,
    Whole,
    write_again,
)
from etcdfix.encryption.config import EncryptionConfiguration
from etcdfix.encryption.config_rules import parse_group_resource
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.transformer import ResourceTransformers, Transformers
from etcdfix.errors import BackupUnreadable, EndedEarly, SourceError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, examine_all, no_progress
from etcdfix.examine_jobs import Helpers, Jobs
from etcdfix.model import Outcome, StoredValue, key_id_digest
from etcdfix.remediation.backup.directory import FileKind, look_into
from etcdfix.remediation.backup.file import read_backup
from etcdfix.report.document import Step
from etcdfix.report.encryption import EncryptionUsageReport, KeyUsage, key_fields
from etcdfix.report.origin import report_origin, shown_word
from etcdfix.sources.base import Source
from etcdfix.sources.several import SeveralSources
from etcdfix.text.commands import Command, Part, look, scan
from etcdfix.text.words import counted
from etcdfix.verdicts.examination import KeyName

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins


class UsageRequest(DeploymentRequest, frozen=True, kw_only=True):
    """Everything that decides what is looked at."""

    backup_directories: tuple[Path, ...] = ()
    snapshots: tuple[Path, ...] = ()


def encryption_usage(
    source: Source,
    request: UsageRequest,
    *,
    open_snapshot: Callable[[Path], Source],
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
) -> Looked[EncryptionUsageReport]:
    """Look at every value once, and at what else may need an encryption key.

    Raises:
        SourceError: Nothing could be read.
        BackupUnreadable: A backup directory cannot be listed.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    cluster = examiner.kube_system_uid(source)
    rules = examiner.transformers.rules if examiner.transformers is not None else ()
    uses = KeyUses(rules)
    helpers = Helpers(examiner, request, source, jobs) if jobs != 1 else None
    ending = examine_all(
        examiner, source.pages(b""), uses.take, plain=uses.take_plain, helpers=helpers, progress=progress
    )
    whole = Whole.of(source, ending, uses.objects)
    others: list[str] = []
    kept_known = False
    if whole.below_prefix and whole.ended is None:
        try:
            # Which key a value needs is asked here, not what is in it; for one under KMS its envelope says that.
            apart = Examiner.of_cluster(source, request)
            try:
                for stored in progress(source.superseded(), "earlier values", 0):
                    _count(apart, stored, uses, "kept_revisions")
                kept_known = True
            except SourceError as exc:
                others.append(f"the earlier values that are still kept could not all be read: {exc.message}")
            others.extend(_count_backups(request, apart, uses, cluster))
            others.extend(_count_snapshots(request, apart, uses, open_snapshot))
        except KeyboardInterrupt as exc:
            whole = whole.ended_by(EndedEarly.of(exc))
    reasons = whole.incomplete_reasons(uses.undetermined, others)
    if (
        source.compacted_midway
        if isinstance(source, SeveralSources)
        else not source.describe().single_revision
    ):
        reasons.append("etcd compacted midway, so that not everything was read at one revision")
    keys = _judged(examiner, request, uses, plugins, reasons)
    _needed_elsewhere(keys, examiner.transformers, request.configuration)
    if not kept_known:
        for key in keys:
            key.kept_revisions = None
    report = EncryptionUsageReport(
        **report_origin(source.describe(), request.configuration, cluster),
        keys=keys,
        backup_directories=[shown_word(str(path)) for path in request.backup_directories],
        other_snapshots=[shown_word(str(path)) for path in request.snapshots],
        notes=list(_notes(request, uses.without_backup)),
        next=_next(request, uses, keys),
        complete=not reasons,
        incomplete_reasons=reasons,
    )
    return Looked(report, whole)


def _count(apart: Examiner, stored: StoredValue, uses: KeyUses, field: str) -> None:
    found = apart.examine(stored)
    if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
        uses.note(found)
        return
    for name in found.encryption_keys:
        use = uses.of(name)
        setattr(use, field, getattr(use, field) + 1)
    # No plugin was asked; which key id a value of a KMS provider needs, its envelope says.
    if not (found.transformer.startswith("kms/") and uses.is_configured(found)):
        uses.note(found)


def _count_backups(
    request: UsageRequest, apart: Examiner, uses: KeyUses, cluster: str | None
) -> Iterator[str]:
    for directory in request.backup_directories:
        found = False
        for file in look_into(directory):
            if file.kind in {FileKind.OURS, FileKind.FOREIGN}:
                continue
            try:
                content = read_backup(file.path).content
            except BackupUnreadable as exc:
                found = True
                yield f"a backup could not be read: {exc.message}"
                continue
            theirs = content.cluster.kube_system_uid
            if cluster is None or theirs is None or theirs == cluster:
                found = True
                _count(apart, content.stored, uses, "backups")
        if not found:
            uses.without_backup.append(directory)


def _count_snapshots(
    request: UsageRequest, apart: Examiner, uses: KeyUses, open_snapshot: Callable[[Path], Source]
) -> Iterator[str]:
    for path in request.snapshots:
        with open_snapshot(path) as snapshot:
            for values in (snapshot.current(b""), snapshot.superseded()):
                for stored in values:
                    _count(apart, stored, uses, "snapshots")
            yield from (f"{shown_word(str(path))}: {problem}" for problem in snapshot.problems)


def _notes(request: UsageRequest, without_backup: Sequence[Path]) -> Iterator[str]:
    if len(without_backup) == len(request.backup_directories) and not request.snapshots:
        yield (
            "No backups and no other snapshots were looked at. Restoring one needs the key of its values "
            "(--backup-dir DIR, --in snapshot:FILE)."
        )
    yield from (f"{shown_word(str(path))} has no backup of this cluster." for path in without_backup)
    if request.configuration is not None:
        yield "An API server that does not run with this configuration yet may write with an older key."
    if not request.overrides_known:
        yield "Only this etcd was read. A manifest names the others, if there are any (--manifest FILE)."


def _next(request: UsageRequest, uses: KeyUses, keys: Sequence[KeyUsage]) -> Step | None:
    if request.configuration is None:
        also: list[Part | str] = [
            word for path in request.backup_directories for word in ("--backup-dir", str(path))
        ]
        also += [word for path in request.snapshots for word in ("--in", f"snapshot:{path}")]
        again = ("etcdfix", "encryption", "usage", Part.SOURCE, Part.LAYOUT, Part.CONFIGURATION, *also)
        return Step("Look again with the EncryptionConfiguration of the API servers", Command(again))
    if any(key.failing or key.undetermined for key in keys):
        return Step("Remove no key yet. Find out first which values cannot be read, and why", scan())
    if uses.stale is not None:
        resource = str(uses.stale.group_resource)
        return Step(
            f"Have an API server write {resource} again, so that they need only today's write key. Then look again",
            write_again(resource),
            "A second run writes what changed meanwhile.",
        )
    if any(key.safe_to_remove for key in keys):
        return Step(
            "Try the configuration without the key before you remove it",
            look("encryption what-if", "--new", "FILE"),
        )
    return None


def _judged(
    examiner: Examiner,
    request: UsageRequest,
    uses: KeyUses,
    plugins: KMSPlugins | None,
    incomplete: Iterable[str],
) -> list[KeyUsage]:
    """Return every key with what speaks against its removal: those of the configuration first, in its order."""
    transformers = examiner.transformers
    rules = dict.fromkeys(transformers.rules) if transformers is not None else {}
    write_ids = {
        transformer_name("kms", one.api_version, one.name): key_id_digest(one.write_key_id)
        for one in (plugins.reports() if plugins is not None else ())
        if one.write_key_id  # what each KMS v2 plugin encrypts with today
    }
    found: dict[KeyName, KeyUsage] = {}
    for rule in rules:
        for one in rule.keys:
            name = KeyName(rule.rule or "", one.transformer, one.key_fingerprint)
            # Of a KMS provider each key id that is met is an entry of its own.
            ids = [other for other in uses.by_key if name.key == "" and other[:2] == name[:2]]
            for entry in sorted(ids) or [name]:
                use = found[entry] = uses.by_key.get(entry) or KeyUsage(**key_fields(entry))
                use.configured, use.write_key = True, _is_write_key(entry, rule, write_ids)
    found |= {entry: uses.by_key[entry] for entry in sorted(uses.by_key) if entry not in found}
    keys = [*found.values()]
    everywhere = [
        f"not everything was seen: {one}" for one in incomplete if not one.startswith("undetermined")
    ]
    if request.run.revision:
        everywhere.append("an older revision was read, named by --revision")
    if request.main_not_read:
        everywhere.append(MAIN_NOT_READ)
    unread: dict[str | None, list[str]] = {}
    if transformers is not None:
        for resource, said in request.unread_etcds:
            unread.setdefault(transformers.for_resource(resource).rule, []).append(said)
    for key in keys:
        if transformers is None:
            key.reasons = [
                "without an encryption configuration only its name is known, and not which key it is"
            ]
        elif not key.configured:
            key.reasons = ["the configuration does not have it"]
        else:
            rule_of = ",".join(key.resources)
            key.reasons = [*_needs(key, uses, rule_of), *unread.get(rule_of, []), *everywhere]
        key.safe_to_remove = not key.reasons
    return keys


def _needs(key: KeyUsage, uses: KeyUses, rule: str) -> Iterator[str]:
    if key.write_key:
        yield "API servers write with it"
    unreadable = f" ({key.failing} unreadable)" if key.failing else ""
    for number, noun, what in (
        (key.objects, "value", f"{unreadable} under it"),
        (key.kept_revisions or 0, "earlier value", " under it, which etcd keeps until it compacts"),
        (key.backups, "backup", " under it"),
        (key.snapshots, "value", " under it in the other snapshots"),
        (uses.unexplained[rule] + uses.unexplained[EVERY_RULE], "value", " of which no one knows the key"),
    ):
        if number:
            yield counted(number, noun) + what


def _is_write_key(entry: KeyName, rule: ResourceTransformers, write_ids: Mapping[str, str]) -> bool:
    first = rule.keys[0]
    if (entry.transformer, entry.key) == (first.transformer, first.key_fingerprint):
        return True
    known = write_ids.get(entry.transformer, "")
    return entry.transformer == first.transformer and first.material is None and known in {"", entry.key}


def _needed_elsewhere(
    keys: Sequence[KeyUsage], transformers: Transformers | None, configuration: EncryptionConfiguration | None
) -> None:
    """Call no key safe that may stand in the file once for another rule too, which needs it.

    A resource that the file names twice has a rule of its own, of which it shares elements with other resources.
    """
    if transformers is None or configuration is None:
        return
    needed = [(key, key.rule) for key in keys if key.configured and not key.safe_to_remove]
    for element in configuration.rules:
        sharing = {transformers.for_resource(parse_group_resource(entry)).rule for entry in element.resources}
        for key in keys:
            others = [
                rule
                for other, rule in needed
                if (other.transformer, other.key_fingerprint) == (key.transformer, key.key_fingerprint)
                and rule != key.rule
                and {rule, key.rule} <= sharing
            ]
            if key.safe_to_remove and others:
                key.safe_to_remove = False
                key.reasons = [
                    f"{' and '.join(others)} needs it too, and it may stand in the file once for both"
                ]
