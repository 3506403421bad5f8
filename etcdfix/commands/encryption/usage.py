"""Which encryption key is needed by how many values, and whether one can be taken out of the configuration.

Never "safe" while anything speaks against it that was not looked at: a key that was removed too early makes objects
unreadable, and nobody notices before the next restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etcdfix.commands.encryption.whole import (
    MAIN_NOT_READ,
    ByKey,
    DeploymentRequest,
    may_be_enveloped,
    why_not_whole,
    write_again,
)
from etcdfix.encryption.config_model import parse_group_resource
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.all import Progress, examine_all, no_progress
from etcdfix.examine.first_pass import FirstPass, Jobs
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.examine.verdicts.plaintext import is_surely_unencrypted
from etcdfix.model.errors import EndedEarly, SourceError
from etcdfix.model.model import Outcome, StoredValue, key_id_digest
from etcdfix.model.providers import IDENTITY, facts_of
from etcdfix.model.storagekey import ResourcePrefix
from etcdfix.remediation.backup.file import read_backup
from etcdfix.remediation.backup.folder import look_into
from etcdfix.remediation.errors import BackupUnreadable
from etcdfix.report.document import Step
from etcdfix.report.encryption import EncryptionUsageReport, KeyUsage, key_fields
from etcdfix.report.origin import report_origin, shown_word
from etcdfix.sources.base import Source
from etcdfix.sources.several import SeveralSources
from etcdfix.text.commands import Command, Part, look, scan
from etcdfix.text.words import counted

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
) -> tuple[EncryptionUsageReport, EndedEarly | None]:
    """Look at every value once, and at what else may need an encryption key; return what ended the look early, too.

    Raises:
        BackupUnreadable: A backup directory cannot be listed.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    cluster = examiner.kube_system_uid(source)
    uses = _KeyUses()
    first_pass = FirstPass(examiner, request, source, jobs) if jobs != 1 else None
    ending = examine_all(
        examiner,
        source.pages(b""),
        uses.take,
        plain=uses.take_plain,
        first_pass=first_pass,
        progress=progress,
    )
    reasons, ended = why_not_whole(source, request.layout, ending, uses.objects), ending.ended
    if ended is None:
        # Which key a value needs is asked here, not what is in it; for one under KMS its envelope says that.
        apart = Examiner.of_cluster(source, request)
        try:
            for field, stored in _elsewhere(source, request, open_snapshot, cluster, reasons, progress):
                uses.take_elsewhere(apart.examine(stored), field)
        except KeyboardInterrupt as exc:
            ended = EndedEarly.of(exc)
            reasons.append(f"{ended.reason} before the end")
    several = source if isinstance(source, SeveralSources) else None
    if several.compacted_midway if several is not None else not source.describe().single_revision:
        reasons.append("etcd compacted midway, so that not everything was read at one revision")
    keys = _judged(examiner.transformers, request, uses, plugins, reasons)
    if uses.undetermined:
        reasons.append(f"undetermined: {counted(uses.undetermined, 'key')}")
    report = EncryptionUsageReport(
        **report_origin(source.describe(), request.configuration, cluster),
        keys=keys,
        backup_directories=[shown_word(str(path)) for path in request.backup_directories],
        other_snapshots=[shown_word(str(path)) for path in request.snapshots],
        notes=list(_notes(request)),
        next=_next(request, uses, keys),
        complete=not reasons,
        incomplete_reasons=reasons,
    )
    return report, ended


class _KeyUses:
    """Counts values under their encryption keys. Memory depends on keys in use, not on values."""

    def __init__(self) -> None:
        self.by_key: ByKey[KeyUsage] = ByKey()
        self.objects = self.undetermined = self.unreadable = 0
        # The first in key order of which something is not written with today's write key.
        self.stale: ResourcePrefix | None = None

    def of(self, name: KeyName) -> KeyUsage:
        return self.by_key.of(name, lambda name: KeyUsage(**key_fields(name)))

    def take(self, found: Examination) -> None:
        outcome, stale = found.verdict.outcome, found.stale
        if outcome is not Outcome.NOT_AN_OBJECT:
            untold = outcome is Outcome.UNDETERMINED
            self.undetermined += untold
            stale = stale and outcome is Outcome.READABLE
            for use in self._count(found.encryption_keys, found.directory, 1, stale=stale):
                use.failing += outcome in FAILED
                use.undetermined += untold
        self.unreadable += _may_need_any_key(found)

    def take_plain(self, counts: Sequence[PlainCount]) -> None:
        """Count current values that are plain; which encryption key each needs is known."""
        for plain in counts:
            self._count(plain.encryption_keys, plain.directory, plain.count, stale=plain.stale)

    def _count(
        self, names: Iterable[KeyName], directory: ResourcePrefix, count: int, *, stale: bool
    ) -> list[KeyUsage]:
        self.objects += count
        if stale and (self.stale is None or directory.path < self.stale.path):
            self.stale = directory
        uses = [self.of(name) for name in names]
        for use in uses:
            use.objects += count
            use.stale += count if stale else 0
        return uses

    def others(self, reason: str) -> list[KeyUsage]:
        """Return the keys that are not configured, each with why it is not safe to remove; identity is none."""
        found = [self.by_key[name] for name in sorted(self.by_key) if name.transformer != IDENTITY]
        found = [key for key in found if not key.configured]
        for key in found:
            key.reasons = [reason]
        return found

    def take_elsewhere(self, found: Examination, field: str) -> None:
        """Count a value that is not a current one of this etcd; no plugin was asked about it."""
        if found.verdict.outcome is not Outcome.NOT_AN_OBJECT:
            for use in map(self.of, found.encryption_keys):
                setattr(use, field, getattr(use, field) + 1)
        # It counts under the KMS provider that it names; one whose name is damaged may need any.
        named = found.verdict.cause is Cause.KMS_UNREACHABLE and facts_of(found.transformer).under_kms
        self.unreadable += not named and _may_need_any_key(found)


def _may_need_any_key(found: Examination) -> bool:
    """Say whether it is not known which encryption key a value needs: it does not read, and may be encrypted."""
    outcome, value = found.verdict.outcome, found.stored.value
    if outcome is Outcome.NOT_AN_OBJECT:
        return may_be_enveloped(value)  # under another storage prefix, of an API server with the same keys
    plain = found.transformer == IDENTITY and is_surely_unencrypted(value)
    return not plain and (outcome in FAILED or outcome is Outcome.UNDETERMINED)


def _elsewhere(
    source: Source,
    request: UsageRequest,
    open_snapshot: Callable[[Path], Source],
    cluster: str | None,
    problems: list[str],
    progress: Progress,
) -> Iterator[tuple[str, StoredValue]]:
    """Yield what is no current value and may need a key: where it is counted, and the value."""
    try:
        for stored in progress(source.superseded(), "earlier values", 0):
            yield "kept_revisions", stored
    except SourceError as exc:
        problems.append(f"the earlier values that are still kept could not all be read: {exc.message}")
    for file in (file for directory in request.backup_directories for file in look_into(directory)):
        try:
            content = read_backup(file.path).content
        except BackupUnreadable as exc:
            problems.append(f"a backup could not be read: {exc.message}")
            continue
        if cluster is None or content.cluster.kube_system_uid in {None, cluster}:
            yield "backups", content.stored
    for path in request.snapshots:
        with open_snapshot(path) as snapshot:
            for values in (snapshot.current(b""), snapshot.superseded()):
                yield from (("snapshots", stored) for stored in values)
            problems += (f"{shown_word(str(path))}: {problem}" for problem in snapshot.problems)


def _judged(
    transformers: Transformers | None,
    request: UsageRequest,
    uses: _KeyUses,
    plugins: KMSPlugins | None,
    not_seen: Iterable[str],
) -> list[KeyUsage]:
    """Return every key with what speaks against its removal: those of the configuration first, in its order."""
    if transformers is None or request.configuration is None:
        told = "without an encryption configuration only its name is known, and not which key it is"
        return uses.others(told)
    everywhere = [f"not everything was seen: {one}" for one in not_seen]
    everywhere += ["an older revision was read, named by --revision"] if request.run.revision else []
    everywhere += [MAIN_NOT_READ] if request.main_not_read else []
    unread = [(transformers.for_resource(resource).rule, said) for resource, said in request.unread_etcds]
    found = _configured(transformers, uses, plugins)
    for key in found:
        unread_here = (said for rule, said in unread if rule == key.rule)
        key.reasons = [*_needs(key, uses.unreadable), *unread_here, *everywhere]
        key.safe_to_remove = not key.reasons
    # A resource that the file names twice has a rule of its own, of which it shares elements with other resources.
    needed = [key for key in found if not key.safe_to_remove]
    for element in request.configuration.rules:
        sharing = {transformers.for_resource(parse_group_resource(entry)).rule for entry in element.resources}
        for key in (key for key in found if key.safe_to_remove and key.rule in sharing):
            others = [one.rule for one in needed if one.label == key.label and one.rule in sharing]
            if others:
                told = "needs it too, and it may stand in the file once for both"
                key.safe_to_remove, key.reasons = False, [f"{' and '.join(others)} {told}"]
    return [*found, *uses.others("the configuration does not have it")]


def _configured(transformers: Transformers, uses: _KeyUses, plugins: KMSPlugins | None) -> list[KeyUsage]:
    """Return the keys of the configuration; of a KMS provider each key id that is met is an entry of its own."""
    write_ids = {
        transformer_name("kms", one.api_version, one.name): key_id_digest(one.write_key_id)
        for one in (plugins.reports() if plugins is not None else ())
        if one.write_key_id  # what each KMS v2 plugin encrypts with today
    }
    found = []
    for rule in dict.fromkeys(transformers.rules):
        first = rule.keys[0]
        for one in rule.keys:
            name = KeyName(rule.rule or "", one.transformer, one.key_fingerprint)
            ids = [other for other in uses.by_key if name.key == "" and other[:2] == name[:2]]
            for entry in sorted(ids) or [name]:
                writes = entry.key == first.key_fingerprint
                if first.material is None:
                    writes = writes or write_ids.get(one.transformer, entry.key) == entry.key
                use = uses.of(entry)
                use.configured, use.write_key = True, writes and one.transformer == first.transformer
                found.append(use)
    return found


def _needs(key: KeyUsage, unreadable: int) -> Iterator[str]:
    if key.write_key:
        yield "API servers write with it"
    failing = f" ({key.failing} unreadable)" if key.failing else ""
    for number, noun, what in (
        (key.objects, "value", f"{failing} under it"),
        (key.kept_revisions, "earlier value", " under it, which etcd keeps until it compacts"),
        (key.backups, "backup", " under it"),
        (key.snapshots, "value", " under it in the other snapshots"),
        (unreadable, "value", " that cannot be read, and may need it"),
    ):
        if number:
            yield counted(number, noun) + what


def _notes(request: UsageRequest) -> Iterator[str]:
    if not request.backup_directories and not request.snapshots:
        yield (
            "No backups and no other snapshots were looked at. Restoring one needs the key of its values "
            "(--backup-dir DIR, --in snapshot:FILE)."
        )
    yield "An API server that does not run with this configuration yet may write with an older key."


def _next(request: UsageRequest, uses: _KeyUses, keys: Sequence[KeyUsage]) -> Step | None:
    if request.configuration is None:
        again = Command(("etcdfix", "encryption", "usage", Part.SOURCE, Part.LAYOUT, Part.CONFIGURATION))
        return Step("Look again with the EncryptionConfiguration of the API servers", again)
    safe = any(key.safe_to_remove for key in keys if key.transformer != IDENTITY)
    if not safe and any(key.failing or key.undetermined for key in keys):
        return Step("Remove no key yet. Find out first which values cannot be read, and why", scan())
    if uses.stale is not None:
        resource = str(uses.stale.group_resource)
        told = f"Have an API server write {resource} again, so that they need only today's write key. Then look again"
        return Step(told, write_again(resource))
    if safe:
        what_if = look("encryption what-if", "--new", "FILE")
        return Step("Try the configuration without the key before you remove it", what_if)
    return None
