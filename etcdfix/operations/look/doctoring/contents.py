"""What the stored objects say: which cluster and release this is, what the time is, how much history is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.errors import DecodeError, RefusedByRule, SourceDenied, SourceUnreachable
from etcdfix.examine import Examiner
from etcdfix.operations.look.doctoring.check import fail as failed
from etcdfix.operations.look.doctoring.check import ok, unknown, warn
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.preflight.release import check_release, newest_kubelet
from etcdfix.report.base import fit
from etcdfix.report.doctor import Check
from etcdfix.rules import Rule, acceptance
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text.commands import Part, etcdctl, scan
from etcdfix.text.words import counted

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
        "namespace kube-system cannot be read, or is not there: nothing names this cluster",
        "check --encryption-config and --etcd-prefix; a change will look for the uid in earlier revisions and "
        f"backups, and else needs {acceptance(Rule.UNKNOWN_CLUSTER)}",
    )


def check_kubernetes(source: Source, examiner: Examiner, newest_known: int) -> Iterator[Check]:
    """Yield whether the release that was named fits the stored Nodes.

    Raises:
        SourceError: The source was lost.
    """
    newest = newest_kubelet(source, examiner)
    named = examiner.assumed_release
    if newest is not None and newest > newest_known:
        yield warn(
            "version",
            f"the newest kubelet is 1.{newest}; this version of etcdfix knows releases up to 1.{newest_known}",
            "use a newer etcdfix: what is new there may look damaged here",
        )
    elif not named:
        told = "no Node can be read" if newest is None else f"the newest kubelet is 1.{newest}"
        yield ok("version", f"Kubernetes: {told}; no release was named, so every known one counts")
    elif newest is None:
        yield warn(
            "version",
            f"Kubernetes: release {named} was named, and no Node can be read that would bear it out",
            f"leave --kubernetes-version out, or a change needs {acceptance(Rule.UNKNOWN_RELEASE)}",
        )
    else:
        try:
            check_release(source, examiner, Acceptances())
        except RefusedByRule as exc:
            yield failed("version", f"Kubernetes: {exc.message}", exc.hint)
        else:
            yield ok(
                "version", f"Kubernetes: release {named} was named, and the newest kubelet is 1.{newest}"
            )


def check_clock(source: Source, examiner: Examiner, *, now: datetime) -> Iterator[Check]:
    """Yield what the newest renewal of a Lease says of this machine's clock.

    Raises:
        SourceError: The source was lost.
    """
    reader = ObjectReader(examiner.decoder)
    total = ahead = 0
    newest = farthest = ("", datetime.min.replace(tzinfo=UTC))
    for path in _LEASES:
        for stored in source.current(examiner.layout.prefix_bytes + path):
            total += 1
            renewed = _renewed(reader, examiner.plaintext(examiner.examine(stored)))
            if renewed is None:
                continue
            if renewed > now + AHEAD:
                ahead += 1
                farthest = max(farthest, (display(stored.key), renewed), key=lambda one: one[1])
            else:
                newest = max(newest, (display(stored.key), renewed), key=lambda one: one[1])
    if ahead:
        yield warn(
            "clock",
            f"{counted(ahead, 'Lease')} of {total} renewed in the future, the farthest {_apart(farthest[1] - now)} "
            f"from now ({fit(farthest[0], 200)}): the clock of this machine is behind, or theirs is ahead",
            "compare the clocks, for records and certificates rest on them: timedatectl",
        )
    elif not newest[0]:
        yield unknown(
            "clock",
            "no Lease of a node or a controller can be read, so this clock cannot be compared with any other",
            "compare the clocks by hand: timedatectl",
        )
    elif now - newest[1] > SILENT:
        yield warn(
            "clock",
            f"no controller has renewed a Lease for {_apart(now - newest[1])}: either the control plane is down or "
            "this clock is ahead",
            "see whether API servers and controller managers run, and compare the clocks: timedatectl",
        )
    else:
        yield ok(
            "clock", f"a Lease was renewed {_apart(max(timedelta(), now - newest[1]))} ago by this clock"
        )


def _renewed(reader: ObjectReader, plaintext: bytes | None) -> datetime | None:
    if plaintext is None:
        return None
    try:
        spec = reader.builtin(plaintext, "coordination.k8s.io", "Lease").value["spec"]
        found = datetime.fromisoformat(spec["renewTime"])
    except (DecodeError, KeyError, TypeError, ValueError, OverflowError):
        return None
    try:
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except OverflowError:  # at the ends of the calendar
        return None


def _apart(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return counted(seconds // size, noun)
    return counted(seconds, "second")


def check_revision(source: Source) -> Iterator[Check]:
    """Yield how much history is kept: no date, for nothing in etcd tells one.

    Raises:
        SourceError: The source was lost.
    """
    try:
        stored = source.get(_COMPACT_REV_KEY)
    except SourceDenied:
        yield unknown(
            "revision",
            f"{_kept(source, None)}; the etcd user may not read compact_rev_key, which says up to where API servers "
            "compacted",
            "grant it, if you want to know",
            etcdctl("role", "grant-permission", "ROLE", "read", _COMPACT_REV_KEY.decode()),
        )
        return
    if source.describe().type == "kine":
        # What API servers compact there, kine notes under a key of its own.
        yield ok("revision", _kept(source, None))
        return
    if stored is None:
        yield ok(
            "revision", f"{_kept(source, None)}; no API server has compacted this etcd (no compact_rev_key)"
        )
        return
    text = stored.value
    if not (text.isdigit() and len(text) <= _LONGEST_NUMBER):
        yield warn(
            "revision",
            f"{_kept(source, None)}; compact_rev_key holds no number, so API servers cannot compact",
            "find out who wrote it: an API server writes it anew after its next compaction",
        )
        return
    told, revision = int(text), source.describe().revision
    if told > revision:
        yield warn(
            "revision",
            f"revision {revision}, and API servers had compacted up to {told}: this etcd was put back to an earlier "
            "state, or --revision names an old one",
            "if it was restored from a snapshot, the API servers' caches are of later revisions: first etcdfix scan; "
            "only where it finds nothing wrong, restart them",
            scan(source=[Part.NOW]),
        )
    else:
        yield ok("revision", _kept(source, told))


def _kept(source: Source, told: int | None) -> str:
    """Say how many revisions are kept: etcd itself and whoever runs etcdctl compact too, not API servers alone.

    Args:
        source: Whose history.
        told: Up to where API servers say that they compacted; None where they do not.
    """
    try:
        compacted = source.compacted_revision()
    except (SourceDenied, SourceUnreachable):
        compacted = None
    revision = source.describe().revision
    most = revision - (told or 0)
    if compacted is None:
        servers = "" if told is None else f", compacted up to {told} by the API servers"
        return (
            f"revision {revision}{servers}: at most the last {counted(most, 'revision')} can be looked back at, for "
            "up to where etcd is compacted could not be told"
        )
    if not compacted:
        servers = "" if told is None else f", although API servers say up to {told}"
        return f"revision {revision}, never compacted{servers}: every revision can be looked back at"
    by = "" if told is None else " by the API servers"
    if told is not None and told != compacted:
        why = ": etcd itself or somebody with etcdctl compacted too" if told < compacted else ""
        by = f" (API servers say {told}{why})"
    return (
        f"revision {revision}, compacted up to {compacted}{by}: the last "
        f"{counted(max(0, revision - compacted), 'revision')} can be looked back at; how much time that is, nothing in "
        "etcd tells"
    )


def check_configuration(
    configuration: EncryptionConfiguration | None, *, no_encryption: bool
) -> Iterator[Check]:
    """Yield which EncryptionConfiguration is used, and what is odd about it."""
    if no_encryption:
        yield ok("configuration", "--no-encryption: nothing is encrypted at rest, you say")
    elif configuration is None:
        yield warn(
            "configuration",
            "no EncryptionConfiguration was given: encrypted values stay undetermined, and nothing can be changed",
            "give --encryption-config FILE, as in the API servers' --encryption-provider-config, or --no-encryption "
            "where they have none",
        )
    else:
        yield ok("configuration", f"{configuration.path} {configuration.sha256}")
        for warning in configuration.warnings:
            yield warn(
                "configuration", f"{configuration.path} {warning}", "compare it with the API servers' own"
            )
