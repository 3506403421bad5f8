"""What a person reads before and after a change, as lines of plain text; a tired one, so the order matters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.recovery import ServerSigns
from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.model import ClusterIdentity, Outcome, RepairKind, RepairProof
from etcdfix.operations.change.reencrypt import ReencryptPreview
from etcdfix.operations.change.repair import RepairPreview
from etcdfix.remediation.audit.record import Result
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.preflight.cluster import Cluster, peek_lines
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.report.advice.finding import unsafe_deletion, ways_out
from etcdfix.report.advice.ways import WayKind
from etcdfix.report.head import stakes_of
from etcdfix.report.impact import loss_document
from etcdfix.report.model import FollowUp
from etcdfix.report.render.text import text_lines
from etcdfix.storagekey import display
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.safetext import quote_command, safe_text
from etcdfix.text.words import counted
from etcdfix.verdicts.deletability import IDENTITY
from etcdfix.verdicts.examination import Examination

_MOST_ROWS = 5
_WIDTH = 100
_STOPS = "grows more slowly, and stops when nothing else is unreadable"
_CANDIDATE = {
    RepairProof.TAG: "the value then opens, and its tag authenticates it",
    RepairProof.DECODES: "the object then decodes",
    RepairProof.NONE: "an object of this etcd key comes out, and nothing proves its contents",
}
MASK = 0xFFFFFFFFFFFFFFFF
# KEP-3926, in meaning.
WARNINGS = (
    "This may break the cluster if the object has dependencies that nobody here knows of.",
    "It may put the cluster outside of what its vendor supports.",
    "Finalizers are not run: what they would have cleaned up elsewhere (volumes, load balancers) stays behind.",
    "There is no graceful termination: a Pod's containers go on until its kubelet notices.",
    "The garbage collector will take everything that the object owned for orphaned, and may delete it.",
    "API servers restart the watch of this resource; clients list it again.",
)


def preview_lines(cluster: Cluster, checked: Preflight, again: RepeatedOptions) -> Iterator[str]:
    """Yield what was found out, what a deletion means, and what would be less destructive."""
    found, verdict, stored = checked.found, checked.found.verdict, checked.stored
    yield f"Key          {safe_text(display(stored.key))}"
    where = f" in namespace {found.namespace}" if found.namespace else ""
    yield f"Object       {safe_text(f'{found.directory.group_resource} {found.name}{where}')}"
    yield (
        f"Stored       {len(stored.value)} bytes, mod_revision {stored.mod_revision}, create_revision "
        f"{stored.create_revision}, version {stored.version}"
    )
    if verdict.outcome is Outcome.UNDETERMINED:
        yield f"Verdict      NOT PROVEN ({verdict.cause}): the value may be whole; your declaration alone deletes it"
    else:
        yield f"Verdict      {verdict.outcome}, {verdict.cause} ({verdict.confidence})"
    yield f"             {safe_text(verdict.message)}"
    if verdict.upstream_message:
        yield f"             API server: {safe_text(verdict.upstream_message)}"
    yield from _stake_lines(found)
    with_candidate = found
    if checked.candidate is not None:
        with_candidate = msgspec.structs.replace(found, repair=checked.candidate)
        yield f"May repair   {safe_text(checked.candidate.words)}: {_CANDIDATE[checked.candidate.proof]}"
    yield from cluster_lines(cluster, checked.identity, f", {counted(checked.alike.keys, 'key')}")
    yield from _pattern_lines(checked)
    if checked.lease is not None:
        left = f"{checked.lease.remaining_seconds} s left" if checked.lease.alive else "expired"
        yield f"Lease        {checked.lease.lease:x}, {left}"
    yield from api_lines(checked.servers)
    if checked.accepted:
        yield safe_text(f"Accepted     {', '.join(checked.accepted)}")
    yield from warning_lines(checked.warnings)
    if checked.assessment is not None:
        yield ""
        yield from text_lines(loss_document(checked.assessment), again, _WIDTH, cap=_MOST_ROWS, wide=True)
        if not checked.assessment.complete:
            yield "What cannot be read, or waits for KMS, may depend on it too"
        yield ""
        yield f"See all of it: {again.impact(stored.key)}"
    ways = ways_out(with_candidate, again, readable=checked.readable, breaking=bool(checked.protected))
    options = [way.remedy for way in ways if way.kind is not WayKind.DELETE]
    if options:
        yield ""
        yield "Less destructive options:"
        for number, remedy in enumerate(options, start=1):
            yield f"  {number}. {remedy.action}"
            if remedy.command:
                yield f"     {remedy.command.line(again)}"
    yield ""
    yield "What a deletion means:"
    if checked.protected:
        yield f"  - CLUSTER-BREAKING, as accepted: {safe_text(checked.protected)}."
    for text in WARNINGS:
        yield f"  - {text}"


def _stake_lines(found: Examination) -> Iterator[str]:
    title = "At stake"
    for line in stakes_of([found]).lines():
        yield f"{title:<13}{line}"
        title = ""


def warning_lines(warnings: Iterable[str]) -> Iterator[str]:
    return (f"Warning      {safe_text(warning)}" for warning in warnings)


def cluster_lines(cluster: Cluster, identity: ClusterIdentity, keys: str = "") -> Iterator[str]:
    where = safe_text(", ".join(cluster.where))
    accepted = "" if identity.is_known else " (accepted)"
    yield f"Cluster      {safe_text(identity.describe())}{accepted}{keys}, at {where}"
    for number, origin in enumerate(cluster.origins):
        yield f"{'' if number else 'Named by':<13}{safe_text(origin)}"
    if cluster.no_encryption:
        yield "Encryption   none at rest, as you say (--no-encryption)"


_SAID = {
    Answer.READS_IT: "reads it",
    Answer.NOT_FOUND: "finds no such object",
    Answer.READ_ERROR: "cannot read it either",
    Answer.EMPTY: "makes an empty object of it",
    Answer.DENIED: "may not be asked",
    Answer.NO_ANSWER: "gave no answer",
}


def api_lines(servers: ServerAnswers) -> Iterator[str]:
    """Yield who allows the change, and what each API server said of the object."""
    allowed = servers.authorization
    if allowed is not None:
        yield f"Allowed by   {safe_text(allowed.server)}, for {safe_text(allowed.user_name)}"
    elif servers.answers:
        yield "Allowed by   nobody: no API server answered, as accepted; the etcd credentials are the only gate"
    else:
        yield "Allowed by   nobody was asked: without --kubeconfig the etcd credentials are the only gate"
    for asked in servers.answers:
        detail = f": {asked.detail}" if asked.detail else ""
        yield f"API server   {safe_text(f'{asked.server} {_SAID[asked.answer]}{detail}')}"
    for warning in servers.warnings:
        yield f"             {safe_text(warning)}"


def _pattern_lines(checked: Preflight) -> Iterator[str]:
    for name, counts in checked.alike.counts.items():
        undetermined = f", {counts.undetermined} undetermined" if counts.undetermined else ""
        damaged = f", {counts.damaged} of them proven damaged" if counts.damaged else ""
        rule = f" of {name.rule}" if name.rule else ""
        key = f" ({name.key})" if name.key else ""
        yield (
            f"Under        {safe_text(name.transformer or 'no envelope that is known')}{safe_text(rule)}{key}: "
            f"{counts.opened} open, {counts.failed} fail{damaged}{undetermined} (this one included)"
        )
        if checked.declared_lost and counts.opened:
            opened = counted(counts.opened, "value")
            yield f"             {opened} OPEN under this key: make sure that you mean this one"
    if checked.declared_lost:
        yield "             declared lost for ever"
    title = "Proof"
    for line in peek_lines(checked.found):
        yield f"{title:<13}{safe_text(line)}"
        title = ""


def reencrypt_preview_lines(cluster: Cluster, shown: ReencryptPreview) -> Iterator[str]:
    """Yield what will be rewritten, and with what."""
    today, candidate = shown.found, shown.candidate
    yield f"Key          {safe_text(display(today.stored.key))}"
    yield f"Today        {today.verdict.outcome}, {today.verdict.cause}: {safe_text(today.verdict.message)}"
    yield from _stake_lines(today)
    kind = candidate.directory.kind or "object"
    yield f"Candidate    opens it with {safe_text(candidate.transformer)}: a readable {kind}"
    yield f"Written with {safe_text(shown.write_transformer)}"
    if shown.proof:
        yield f"             API servers hold that key: {safe_text(display(shown.proof))} is stored under it"
    else:
        yield "             nothing shows that API servers hold that key, as accepted"
    yield from _rewrite_lines(cluster, shown)


_PROVEN = {
    RepairProof.TAG: "the value opens, and its tag authenticates it",
    RepairProof.DECODES: "an unencrypted object of this etcd key decodes whole; no bit was searched for",
    RepairProof.NONE: "NONE: AES-CBC has no tag. An object comes out, AND ITS CONTENTS MAY BE WRONG, as accepted",
}
_OF_THE_NAME = (
    "NONE that the name is damaged. ANOTHER KEY MAY HAVE THAT NAME, as accepted; a tag says nothing of it"
)


def repair_preview_lines(cluster: Cluster, shown: RepairPreview) -> Iterator[str]:
    """Yield what will be put right, what proves it, and what the value is then."""
    found, repaired = shown.found, shown.repaired
    stored, gvk = found.stored, repaired.gvk
    where = f" in namespace {found.namespace}" if found.namespace else ""
    yield f"Key          {safe_text(display(stored.key))}"
    yield f"Object       {safe_text(f'{found.directory.group_resource} {found.name}{where}')}"
    yield f"Now          {found.verdict.outcome}, {found.verdict.cause}: {safe_text(found.verdict.message)}"
    yield from _stake_lines(found)
    yield f"Repair       {safe_text(shown.repair.words)}"
    named = shown.repair.kind is RepairKind.NAME
    yield f"Proof        {_OF_THE_NAME if named else _PROVEN[shown.repair.proof]}"
    kind = safe_text(f"{gvk.api_version} {gvk.kind}") if gvk is not None else "object"
    name = f"{repaired.namespace}/{repaired.name}".lstrip("/")
    yield f"Then         {repaired.verdict.outcome}: {kind} {safe_text(name)}"
    if repaired.transformer != IDENTITY:
        yield f"             opened with {safe_text(repaired.transformer)}"
    before, after = stored.value, repaired.stored.value
    yield f"Bytes        {len(before)} now, {digest(before)}"
    yield f"             {len(after)} then, {digest(after)}"
    yield from _rewrite_lines(cluster, shown, f", {counted(shown.alike.keys, 'key')}")


def _rewrite_lines(
    cluster: Cluster, shown: ReencryptPreview | RepairPreview, keys: str = ""
) -> Iterator[str]:
    """Yield where a value stays that gets other bytes, and what to know of it."""
    yield from cluster_lines(cluster, shown.identity, keys)
    yield from api_lines(shown.servers)
    if shown.lease is not None:
        yield f"Lease        {shown.lease.lease & MASK:x}, kept"
    yield from warning_lines(shown.warnings)


_DONE = {
    Result.DELETED: "deleted",
    Result.RESTORED: "put back",
    Result.REENCRYPTED: "rewritten",
    Result.REPAIRED: "repaired",
    Result.HEALED: "healed",
}


def outcome_lines(
    key_bytes: bytes, done: Result, outcome: ChangeOutcome, again: RepeatedOptions, *, unread: bool = False
) -> Iterator[str]:
    """Yield what became of a change, where the backup is, and how to undo it.

    Args:
        key_bytes: Which key.
        done: What it is called when all goes well.
        outcome: What it came to.
        again: Options that commands must repeat.
        unread: As in :func:`follow_ups`.
    """
    key = safe_text(display(key_bytes))
    if outcome.result is None:
        yield f"DRY RUN: {key} would be {_DONE[done]}. Nothing was changed."
    elif outcome.result is done:
        yield f"{done.upper()} {key} at revision {outcome.revision}."
    else:
        yield f"{outcome.result.upper()}: {key}: {safe_text(outcome.detail)}"
    for warning in outcome.warnings:
        yield f"Note: {safe_text(warning)}"
    for path in outcome.backups:
        yield f"Backup: {safe_text(path)}"
    for found in outcome.values:
        yield f"Its value: {found}"
    yield audit_line(outcome)
    for follow_up in follow_ups(key_bytes, done, outcome, again, unread=unread):
        yield f"{follow_up.what}: {follow_up.command}"


def audit_line(outcome: ChangeOutcome) -> str:
    """Return where the records of a change are."""
    head = f", head {outcome.head}" if outcome.head else ""
    return f"Audit log: {safe_text(str(outcome.audit_log))}{head}"


def follow_ups(
    key: bytes, done: Result, outcome: ChangeOutcome, again: RepeatedOptions, *, unread: bool = False
) -> Iterator[FollowUp]:
    """Yield the commands for afterwards: how to settle what is open, how to undo, how to look again.

    Args:
        key: Which key.
        done: What it is called when all goes well.
        outcome: What it came to.
        again: Options that commands must repeat.
        unread: An encrypted value was put back without a configuration: a look at it needs one.
    """
    if outcome.result is None:
        return
    yield from settling(outcome, again)
    yield from _undo(done, outcome, _same(outcome, again))
    if done is not Result.DELETED:
        reading = [*again.reading, "--encryption-config", "FILE"] if unread else again.reading
        yield FollowUp("Look again", again.scan(key, reading=reading))


def settling(outcome: ChangeOutcome, again: RepeatedOptions) -> Iterator[FollowUp]:
    """Yield how to settle what is open of a change, where something is."""
    if outcome.result is Result.UNKNOWN or outcome.head is None:
        words = [*_same(outcome, again), str(outcome.audit_log)]
        settle = quote_command(["etcdfix", "audit", "reconcile", *words])
        yield FollowUp(f"Settle it {again.when_it_answers}", settle)


def _same(outcome: ChangeOutcome, again: RepeatedOptions) -> tuple[str, ...]:
    return again.after_change(known_cluster=not outcome.unknown_cluster)


def _undo(done: Result, outcome: ChangeOutcome, same: Sequence[str]) -> Iterator[FollowUp]:
    """Yield how each backup goes back to where it was."""
    log = ["--audit-log", str(outcome.audit_log), "--reason", "REASON"]
    replace: list[str] = []
    if done is not Result.DELETED:
        if outcome.result is not done:
            return
        # What the undo replaces is kept where the change kept what it replaced.
        places = [word for path in outcome.backups for word in ("--backup-dir", str(Path(path).parent))]
        replace = [*places, "--replace-mod-revision", str(outcome.revision)]
    elif outcome.result in {Result.NOT_APPLIED, Result.REFUSED}:
        return
    if outcome.result is Result.ANOMALY:
        for path, what in zip(outcome.backups, ("what was examined", "what etcd gave back"), strict=False):
            yield FollowUp(f"Put back {what}", quote_command(["etcdfix", "restore", path, *same, *log]))
    elif outcome.backups:
        undo = quote_command(["etcdfix", "restore", outcome.backups[0], *same, *log, *replace])
        yield FollowUp("Undo", undo)


def _recovery_lines(resource: str, unread: Mapping[str, int]) -> Iterator[str]:
    """Yield what comes back by itself, and when; and what stands in the way."""
    others = unread.get(resource, 0)
    if others:
        yield (
            f"{counted(others, 'other value')} of {resource} cannot be read without fault, or could not be examined to "
            f"the end. While one fails, LIST and watches of {resource} fail; a LIST that works may come from a "
            "server's memory, which a deletion ends after 30 s."
        )
    else:
        yield (
            f"No other value of {resource} is known to fail: LIST works again at once, watches and resourceVersion=0 "
            "within about a minute. API servers do that by themselves; nothing has to be restarted."
        )
    elsewhere = ", ".join(f"{name} ({number})" for name, number in sorted(unread.items()) if name != resource)
    if elsewhere:
        yield safe_text(f"Others are not known to be read without fault: {elsewhere}.")
    if unread:
        yield "An API server that starts may not get ready while such values are there (/readyz: informer-sync)."
    else:
        yield "/readyz of an API server that was not ready for this value recovers within about a minute too."


def looked_at_lines(looked: Sequence[ServerSigns]) -> Iterator[str]:
    """Yield how each API server stood when it was looked at last."""
    for one in looked:
        signs = ", ".join(f"{sign.what} {sign.text}" for sign in one.signs)
        yield safe_text(f"API server {one.server}, after {one.seconds:.0f} s: {signs}")
    if any(one.failing for one in looked):
        yield (
            "Not everything works yet. The usual reasons: more values that cannot be read (the scan above), or an "
            "API server with another EncryptionConfiguration. Look again: kubectl get --raw '/readyz?verbose'"
        )


def after_deletion_lines(checked: Preflight, again: RepeatedOptions) -> Iterator[str]:
    """Yield what to watch once a key is gone, and what the same is called elsewhere."""
    found = checked.found
    resource = str(found.directory.group_resource)
    # Of every namespace: one value that cannot be read, wherever it is, fails the LIST of all.
    yield f"Look at what is left: {again.scan_of([resource])}"
    yield from _recovery_lines(resource, checked.alike.unread)
    request = unsafe_deletion(found).line(again)
    if request:
        yield f"Already done; the API call that would have done the same: {request}"
    yield "Watch, on every API server:"
    for metric, course in (
        ("apiserver_storage_transformation_operations_total, status other than OK", _STOPS),
        ("apiserver_storage_decode_errors_total", f"{_STOPS}, for {resource}"),
        ("apiserver_watch_cache_initializations_total", f"rises once for {resource}, then stays"),
        ("apiserver_storage_list_total", "rises for a moment, then as before"),
        ("apiserver_terminated_watchers_total, apiserver_init_events_total", "rise for a moment"),
        ("apiserver_resource_objects", f"one less for {resource}"),
    ):
        yield f"  {metric}: {course}"
