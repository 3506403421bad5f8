"""Checks of what stands at the key: it may make room, or nothing is there; members and API servers agree."""

from __future__ import annotations

import msgspec

from etcdfix.copies.model import THE_VALUE, Place
from etcdfix.errors import RefusedByRule
from etcdfix.remediation.change import Rewritable
from etcdfix.remediation.checks.situation import UNSIGNED_LEASE, Situation
from etcdfix.remediation.places import place_warnings
from etcdfix.remediation.preflight.api_servers import check_api_servers
from etcdfix.remediation.preflight.deletion import check_deletion
from etcdfix.remediation.preflight.members import read_lease
from etcdfix.remediation.preflight.release import check_release
from etcdfix.remediation.preflight.target import (
    Target,
    check_alarms,
    check_members,
    check_writable,
    require_alive,
    require_space,
)
from etcdfix.rules import Rule, acceptance, refuse


def nothing_there(one: Situation) -> None:
    """Nothing stands there, on any member, and no API server has the object."""
    request = one.request
    release(one)
    one.warnings += check_members(one.cluster, one.key, one.reading, request.accepted)
    one.warnings += check_alarms(one.cluster)
    one.servers = check_api_servers(one.found, one.identity, request.api, request.accepted, held=False)


def may_make_room(one: Situation) -> None:
    """What stands there could be deleted."""
    request = one.request
    try:
        checked = check_deletion(
            one.cluster,
            one.key,
            request.accepted,
            backup_directories=request.record_paths.directories,
            api=request.api,
            expected=request.expected,
            act="putting another value over this key",
            run=one.run,
            progress=one.progress,
            step=one.step,
        )
    except RefusedByRule as refusal:
        if refusal.rule != Rule.READABLE:
            raise
        hint = "nothing has to be put back; what differs can be changed through the API: kubectl edit"
        raise refuse(Rule.READABLE, refusal.message, hint=hint) from None
    one.replaced, one.servers, one.alike = checked, checked.servers, checked.alike
    one.rests_on = one.rests_on or checked.moved_to
    one.warnings += checked.warnings


def writable(one: Situation) -> None:
    """The value itself may be written anew: every member has it, and no API server reads it."""
    request, present = one.request, one.present
    assert present is not None  # it is made of that
    target = Target(one.landmarks, one.reading, present)
    directories = request.record_paths.directories
    one.identity, warnings = check_writable(one.cluster, target, request.accepted, directories, one.step)
    one.warnings += warnings
    one.servers = check_api_servers(one.found, one.identity, request.api, request.accepted)


def room(one: Situation) -> None:
    """Etcd takes a value."""
    require_space(one.cluster.client)


def lease(one: Situation) -> None:
    """The lease that the value is to have is alive; of a value from elsewhere it may be left out."""
    present = one.present
    if one.copy.place in THE_VALUE:
        assert present is not None  # it is made of that
        state = require_alive(one.cluster, present)
        one.lease = present.lease
        one.replaced = Rewritable(
            reading=one.reading,
            found=one.found,
            identity=one.identity,
            servers=one.servers,
            warnings=tuple(one.warnings),
            lease=state,
        )
        return
    wanted = one.copy.lease
    if one.copy.place is Place.OBJECT:
        wanted = present.lease if present is not None else 0
    if not wanted or one.request.accepted.accepts(Rule.EXPIRED_LEASE):
        return
    if not read_lease(one.cluster.client, wanted).alive:
        raise refuse(
            Rule.EXPIRED_LEASE,
            f"the value had the lease {wanted & UNSIGNED_LEASE:x}, which has expired: etcd would have deleted it "
            "by now",
            hint=f"to put it back for good: {acceptance(Rule.EXPIRED_LEASE)}",
        )
    one.lease = wanted


def places(one: Situation) -> None:
    """Backup and record can be kept."""
    one.warnings += place_warnings(one.request.record_paths, backup=one.present is not None)


def release(one: Situation) -> None:
    """No Node contradicts the release that was named."""
    check_release(one.cluster.source, one.cluster.examiner, one.request.accepted)


def our_own_write(one: Situation) -> None:
    """What stands there is what we put: that stands for the proof that it may go."""
    request, present = one.request, one.present
    assert present is not None  # we put it
    found = one.cluster.examiner.examine(present)
    release(one)
    warnings = check_members(one.cluster, one.key, one.reading, request.accepted, readable_is_fine=True)
    warnings += check_alarms(one.cluster)
    one.servers = check_api_servers(found, one.identity, request.api, request.accepted, readable_is_fine=True)
    one.warnings += warnings
    one.wanted = msgspec.structs.replace(one.wanted, found=found)
    one.replaced = Rewritable(
        reading=one.reading,
        found=found,
        identity=one.identity,
        servers=one.servers,
        warnings=tuple(warnings),
        lease=read_lease(one.cluster.client, present.lease) if present.lease else None,
    )
