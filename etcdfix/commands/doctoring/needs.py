"""What a change needs beside etcd: configuration, release, places for its records, an API server that says yes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etcdfix.apiserver.kubeconfig import APIAccess, open_access
from etcdfix.apiserver.permissions import VERBS, authorize_all, check_cluster
from etcdfix.commands.doctoring.etcd import mib
from etcdfix.examine.one import Examiner
from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.inputs.releases import LAST_MINOR
from etcdfix.model.errors import why
from etcdfix.model.model import ClusterIdentity, GroupResource
from etcdfix.model.rules import Rule, acceptance
from etcdfix.remediation.audit.verify import LOG_IS_GONE, is_there, verify
from etcdfix.remediation.checks.key import misfit, newest_kubelet
from etcdfix.remediation.durable import open_directory, probe, refuse_foreign_file
from etcdfix.remediation.errors import NotDurable
from etcdfix.remediation.places import RecordPaths, lasting_warnings
from etcdfix.report.doctor import Check, CheckState, fail, ok, unknown, warn
from etcdfix.sources.base import Source
from etcdfix.text.commands import Command
from etcdfix.text.words import counted, fit

if TYPE_CHECKING:
    from etcdfix.encryption.config_model import EncryptionConfiguration

LEAST_FREE_BYTES: Final = 100 << 20
"""Less room than this for backups is warned of."""

ELSEWHERE: Final = "name another place: --backup-dir DIR --audit-log FILE"
_LOCK_SECONDS: Final = 1.0


def check_configuration(configuration: EncryptionConfiguration | None, *, told_none: bool) -> Iterator[Check]:
    """Yield which EncryptionConfiguration is used, and what is odd about it."""
    if told_none:
        yield ok("--no-encryption: you say that nothing is encrypted at rest")
    elif configuration is None:
        what = (
            "no EncryptionConfiguration was given: encrypted values stay undetermined, nothing can be changed"
        )
        yield warn(what, "give --encryption-config FILE, or --no-encryption if the API servers have none")
    else:
        yield ok(f"{configuration.path} {configuration.sha256}")
        for warning in configuration.warnings:
            yield warn(f"{configuration.path} {warning}", "compare it with the API servers' own")


def check_kubernetes(source: Source, examiner: Examiner) -> Iterator[Check]:
    """Yield whether the release that was named fits the stored Nodes; one that does not is refused."""
    newest, named = newest_kubelet(source, examiner), examiner.assumed_release
    told = "no Node can be read" if newest is None else f"the newest kubelet is 1.{newest}"
    if newest is not None and newest > LAST_MINOR:
        what = f"Kubernetes: {told}; this etcdfix knows releases up to 1.{LAST_MINOR}"
        yield warn(what, "use a newer etcdfix: this one may call new fields damaged")
    elif named and newest is None:
        advice = f"a change needs {acceptance(Rule.UNKNOWN_RELEASE)}"
        yield warn(f"Kubernetes: release {named} was named, and {told}", advice)
    else:
        doubt = misfit(named, newest) if named and newest is not None else None
        if doubt is not None:
            raise doubt
        yield ok(
            f"Kubernetes: {told}; {f'release {named} was named' if named else 'every known release counts'}"
        )


def check_directory(path: Path, *, named: bool) -> Iterator[Check]:
    """Yield whether files can be kept in a directory, by writing one there and removing it.

    Raises:
        NotDurable: They cannot.
    """
    if not os.path.lexists(path):
        above = next(parent for parent in path.parents if parent.exists())
        lasting_warnings(above, named=named)
        if named or not os.access(above, os.W_OK | os.X_OK):
            make = Command(("mkdir", "-m", "0700", str(path)))
            yield fail(f"directory {path} does not exist", "make it, with mode 0700", make)
        else:
            yield ok(f"{path} does not exist yet: the first change makes it")
        return
    with open_directory(path) as directory:
        for warning in lasting_warnings(directory.path, named=named):
            yield warn(warning, ELSEWHERE)
        probe(directory)
        room = os.fstatvfs(directory.descriptor)
    free = room.f_bavail * room.f_frsize
    if free < LEAST_FREE_BYTES:
        yield warn(f"{path}: {mib(free)} are free on its file system", f"make room there, or {ELSEWHERE}")
    yield ok(f"{path}: a file can be written and kept there, {mib(free)} free")


def check_audit_log(places: RecordPaths) -> Iterator[Check]:
    """Yield whether a record can be kept, and whether the log is what was written.

    Raises:
        NotDurable: The next writer would refuse the place or the log.
        AuditLogUnreadable: It cannot be told.
    """
    path = places.log_path
    checks = [*check_directory(path.parent, named=places.audit_log is not None)]
    yield from checks
    if any(check.state is CheckState.FAIL for check in checks):
        return
    if not is_there(path):
        gone = is_there(path.with_name(path.name + HEAD_SUFFIX))
        new = ok(f"{path} does not exist yet: the first change makes it")
        yield fail(f"{path}: {LOG_IS_GONE}", "find the log, or begin a new one") if gone else new
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise NotDurable(f"audit log {path}: {why(exc)}", path=path) from exc
    try:
        refuse_foreign_file(descriptor, path, what="audit log")
    finally:
        os.close(descriptor)
    found = verify(path, wait_seconds=_LOCK_SECONDS)
    look = Command(("etcdfix", "log", "verify", str(path)))
    if found.trouble:
        advice = "keep it as it is, find out who changed it, and begin a new one with --audit-log"
        yield fail(f"{path}: {found.trouble}", advice, look)
        return
    if found.open_intents:
        what = f"{path}: {counted(len(found.open_intents), 'change')} without a known outcome"
        settle = Command(("etcdfix", "log", "settle", str(path), "--dry-run"))
        yield warn(what, "find out what became of it: docs/runbooks/open-intents.md", settle)
    elif found.torn_size:
        yield warn(f"{path}: its last line is torn", "the next change sets it aside", look)
    else:
        yield ok(f"{path}: whole, {counted(found.records, 'record')}")
    yield from (warn(warning, "see what it says", look) for warning in found.warnings)


def check_kubeconfig(api: APIAccess, cluster: ClusterIdentity | None) -> Iterator[Check]:
    """Yield whether the API server answers, is of this cluster, and lets its user do what a deletion wants.

    Raises:
        AuthorizationRefused: Anything but a clear yes.
    """
    with closing(open_access(api)) as access:
        server = access.server(access.url)
        told = f"the API server at {server.address}"
        doubt = "nothing in etcd tells whether it is of this cluster"
        if cluster is not None and cluster.is_known:
            doubt = check_cluster(server, cluster)
        of_it = unknown(f"{told}: {doubt}", "see the check cluster")
        yield of_it if doubt else ok(f"{told} answers, and is of this cluster")
        user = authorize_all(server, GroupResource("", "secrets"))
        yield ok(f"user {fit(user, 100)} may {' and '.join(VERBS)} every Secret")
