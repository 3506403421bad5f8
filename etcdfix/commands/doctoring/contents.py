"""What the stored objects say: which cluster and release this is, what the time is, how much history is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from etcdfix.commands.doctoring.check import fail, ok, unknown, warn
from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.errors import DecodeError, RefusedByRule, SourceDenied, SourceUnreachable
from etcdfix.examine import Examiner
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.preflight.release import check_release, newest_kubelet
from etcdfix.report.doctor import Check
from etcdfix.rules import Rule, acceptance
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text.commands import Part, etcdctl, scan
from etcdfix.text.words import counted, fit

if TYPE_CHECKING:
    from etcdfix.encryption.config import EncryptionConfiguration

AHEAD: Final = timedelta(seconds=60)
"""A Lease that was renewed so far in the future was not renewed by this clock."""

SILENT: Final = timedelta(minutes=5)
"""Nodes and controllers renew theirs every few seconds."""

_LEASES: Final = (b"leases/kube-node-lease/", b"leases/kube-system/")
_COMPACT_REV_KEY: Final = b"compact_rev_key"
_LONGEST_NUMBER: Final = 19


def check_identity(uid: str | None) -> Check:
    """Return whether the cluster has a name: the uid of namespace kube-system."""
    if uid:
        return ok("cluster", f"namespace kube-system has the uid {fit(uid, 100)}")
    return warn(
        "cluster",
        "namespace kube-system cannot be read: nothing names this cluster",
        "check --encryption-config and --etcd-prefix; a change will look for the uid in earlier revisions and "
        f"backups, and otherwise needs {acceptance(Rule.UNKNOWN_CLUSTER)}",
    )


def check_kubernetes(source: Source, examiner: Examiner, newest_known: int) -> Iterator[Check]:
    """Yield whether the release that was named fits the stored Nodes."""
    newest, named = newest_kubelet(source, examiner), examiner.assumed_release
    kubelet = "no Node can be read" if newest is None else f"the newest kubelet is 1.{newest}"
    if newest is not None and newest > newest_known:
        yield warn(
            "version",
            f"{kubelet}; this etcdfix knows releases up to 1.{newest_known}",
            "use a newer etcdfix: this one may call new fields damaged",
        )
    elif not named:
        yield ok("version", f"Kubernetes: {kubelet}; no release was named, so every known one counts")
    elif newest is None:
        yield warn(
            "version",
            f"Kubernetes: release {named} was named, and {kubelet}",
            f"leave --kubernetes-version out, or a change needs {acceptance(Rule.UNKNOWN_RELEASE)}",
        )
    else:
        try:
            check_release(source, examiner, Acceptances())
        except RefusedByRule as exc:
            yield fail("version", f"Kubernetes: {exc.message}", exc.hint)
        else:
            yield ok("version", f"Kubernetes: release {named} was named, and {kubelet}")


def check_clock(source: Source, examiner: Examiner, *, now: datetime) -> Iterator[Check]:
    """Yield what the newest renewal of a Lease says of this machine's clock."""
    reader = ObjectReader(examiner.decoder)
    total, ahead = 0, 0
    newest, farthest = datetime.min.replace(tzinfo=UTC), ("", now)
    for path in _LEASES:
        for stored in source.current(examiner.layout.prefix_bytes + path):
            total += 1
            renewed = _renewed(reader, examiner.plaintext(examiner.examine(stored)))
            if renewed is not None and renewed > now + AHEAD:
                ahead += 1
                farthest = max(farthest, (display(stored.key), renewed), key=lambda one: one[1])
            elif renewed is not None:
                newest = max(newest, renewed)
    if ahead:
        yield warn(
            "clock",
            f"{counted(ahead, 'Lease')} of {total} renewed in the future, the farthest {_apart(farthest[1] - now)} "
            f"from now ({fit(farthest[0], 200)}): this machine's clock is behind, or theirs is ahead",
            "compare the clocks: timedatectl. Records and certificates depend on them",
        )
    elif newest == datetime.min.replace(tzinfo=UTC):
        yield unknown(
            "clock", "no Lease can be read to compare this clock with", "compare the clocks: timedatectl"
        )
    elif now - newest > SILENT:
        yield warn(
            "clock",
            f"no controller has renewed a Lease for {_apart(now - newest)}: the control plane is down, or "
            "this clock is ahead",
            "check whether API servers and controller managers run, and compare the clocks: timedatectl",
        )
    else:
        yield ok("clock", f"a Lease was renewed {_apart(max(timedelta(), now - newest))} ago by this clock")


def _renewed(reader: ObjectReader, plaintext: bytes | None) -> datetime | None:
    if plaintext is None:
        return None
    try:
        spec = reader.builtin(plaintext, "coordination.k8s.io", "Lease").value["spec"]
        found = datetime.fromisoformat(spec["renewTime"])
        return found.astimezone(UTC) if found.tzinfo is not None else None
    # The last at the ends of the calendar.
    except (DecodeError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _apart(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return counted(seconds // size, noun)
    return counted(seconds, "second")


def check_revision(source: Source) -> Iterator[Check]:
    """Yield how much history is kept: no date, for nothing in etcd tells one."""
    try:
        stored = source.get(_COMPACT_REV_KEY)
    except SourceDenied:
        yield unknown(
            "revision",
            f"{_kept(source)}; the etcd user may not read compact_rev_key, the revision of the last compaction",
            "grant it, if you want to know",
            etcdctl("role", "grant-permission", "ROLE", "read", _COMPACT_REV_KEY.decode()),
        )
        return
    # What API servers compact in kine, it notes under a key of its own.
    text = stored.value if stored is not None and source.describe().type != "kine" else None
    revision = source.describe().revision
    if text is None:
        yield ok("revision", _kept(source))
    elif not (text.isdigit() and len(text) <= _LONGEST_NUMBER):
        yield warn(
            "revision",
            f"{_kept(source)}; compact_rev_key holds no number, so API servers cannot compact",
            "find out who wrote it: an API server writes it again after its next compaction",
        )
    elif int(text) > revision:
        yield warn(
            "revision",
            f"revision {revision}, and API servers had compacted up to {int(text)}: this etcd was put back to an "
            "earlier state, or --revision names an old one",
            "if it was restored from a snapshot, the API servers' caches are of later revisions: first etcdfix scan; "
            "only where it finds nothing wrong, restart them",
            scan(source=[Part.NOW]),
        )
    else:
        yield ok("revision", f"{_kept(source)}; API servers compacted up to {int(text)}")


def _kept(source: Source) -> str:
    revision = source.describe().revision
    try:
        compacted = source.compacted_revision()
    except (SourceDenied, SourceUnreachable):
        compacted = None
    if compacted is None:
        return f"revision {revision}: how far etcd is compacted could not be told"
    if not compacted:
        return f"revision {revision}, never compacted: every revision is kept"
    kept = counted(max(0, revision - compacted), "revision")
    return f"revision {revision}, compacted up to {compacted}: the last {kept} are kept"


def check_configuration(
    configuration: EncryptionConfiguration | None, *, no_encryption: bool
) -> Iterator[Check]:
    """Yield which EncryptionConfiguration is used, and what is odd about it."""
    if no_encryption:
        yield ok("configuration", "--no-encryption: you say that nothing is encrypted at rest")
    elif configuration is None:
        yield warn(
            "configuration",
            "no EncryptionConfiguration was given: encrypted values stay undetermined, and nothing can be changed",
            "give --encryption-config FILE, as in the API servers' --encryption-provider-config, or --no-encryption "
            "if they have none",
        )
    else:
        yield ok("configuration", f"{configuration.path} {configuration.sha256}")
        for warning in configuration.warnings:
            yield warn(
                "configuration", f"{configuration.path} {warning}", "compare it with the API servers' own"
            )
