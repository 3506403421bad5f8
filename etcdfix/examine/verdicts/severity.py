"""What is at stake with a value that is wrong: what fails now, what fails at the next start, or this object alone.

Said from what the API server does with the value, never from its name alone. Nothing is said of a value that could not
be judged. Recorded on API servers of 1.36 with RBAC: what becomes of LIST, WATCH and namespaces, and what a start comes
to, type by type. With the Node authorizer, more types may keep a server from getting ready. Told with "may": what else
a server that is not ready cannot do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from etcdfix.examine.verdicts.catalogue import CATALOGUE, CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED, KMS_DOUBTS
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import GroupResource, Outcome, ServerBehaviour
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, builtin_directories
from etcdfix.text.words import counted, fit

DO_NOT_RESTART: Final = "Do not restart an API server"
"""How the warning begins that stands in the head of a report."""


Rank = tuple[int, int, int]
"""Sorts what is at stake, the worst first."""


class Severity(StrEnum):
    """How bad it is, worst first: what fails already, what fails at the next start, and what concerns nothing else."""

    BREAKS_NOW = "breaks-now"
    BREAKS_AT_RESTART = "breaks-at-restart"
    ONE_OBJECT = "one-object"


_ORDER: Final = list(Severity)
_NO_OBJECT: Final = frozenset({Cause.EMPTY_VALUE, Cause.EMPTY_OBJECT, Cause.NOT_AN_OBJECTS_KEY})
_MOST_NAMED: Final = 2
_MOST_NAME: Final = 40
_RBAC: Final = "rbac.authorization.k8s.io"
_SERVED: Final = frozenset({StorageCodec.BUILTIN, StorageCodec.JSON_BUILTIN})
_DEFINITIONS: Final = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
_NAMESPACES: Final = GroupResource("", "namespaces")
_KEEP_FROM_READY: Final = frozenset(
    GroupResource(group, name)
    for group, names in {
        "": "limitranges namespaces nodes pods resourcequotas secrets serviceaccounts services",
        "admissionregistration.k8s.io": """mutatingadmissionpolicies mutatingadmissionpolicybindings
            mutatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings
            validatingwebhookconfigurations""",
        "apiextensions.k8s.io": "customresourcedefinitions",
        "apiregistration.k8s.io": "apiservices",
        "discovery.k8s.io": "endpointslices",
        "flowcontrol.apiserver.k8s.io": "flowschemas prioritylevelconfigurations",
        "networking.k8s.io": "ingressclasses ipaddresses servicecidrs",
        "node.k8s.io": "runtimeclasses",
        _RBAC: "clusterrolebindings clusterroles rolebindings roles",
        "resource.k8s.io": "deviceclasses resourceclaims",
        "scheduling.k8s.io": "priorityclasses",
        "storage.k8s.io": "storageclasses",
    }.items()
    for name in names.split()
)
"""Types whose unreadable objects keep an API server that starts from getting ready (1.36.2, watched type by type)."""
_ONLY_DELAY: Final = (
    frozenset(directory.group_resource for directory in builtin_directories() if directory.codec in _SERVED)
    - _KEEP_FROM_READY
)
"""The other built-in types: such a server gets ready once ``poststarthook/storage-readiness`` gives up."""


class Stake(msgspec.Struct, frozen=True):
    """What is at stake with the values of one resource that fail in one way.

    Attributes:
        resource: Which resource; an allocator's name for a key below ``ranges``.
        conditional: API servers fail on it only if they read with the configuration that was given here.
    """

    severity: Severity
    resource: GroupResource
    behaviour: ServerBehaviour
    namespaced: bool
    conditional: bool = False

    @property
    def rank(self) -> Rank:
        """Sorts the worst first: by severity, then by what the start of an API server comes to."""
        lists_fail = self.behaviour is ServerBehaviour.CORRUPT
        at_start = ({_DEFINITIONS}, _KEEP_FROM_READY, _ONLY_DELAY)
        worst = next((at for at, types in enumerate(at_start) if self.resource in types), len(at_start))
        return _ORDER.index(self.severity), int(not lists_fail), worst

    @property
    def holds_namespaces(self) -> bool:
        """Whether no namespace of the cluster finishes deleting once an API server cannot list the type."""
        return self.namespaced or self.resource == _NAMESPACES

    @property
    def _warning(self) -> str:
        if self.conditional:
            return _MEMORY
        if self.severity is Severity.BREAKS_AT_RESTART:
            return "it would not get ready again (readyz)."
        if self.behaviour is not ServerBehaviour.CORRUPT:
            return "that cures nothing."
        if self.resource == _DEFINITIONS:
            return "then all custom resources stop (readyz fails)."
        if self.resource in _KEEP_FROM_READY:
            return "it would not get ready again (readyz)."
        return "its memory may still hold what etcd lost."


def by_rank(stakes: Iterable[Stake]) -> list[Stake]:
    """Return them with the worst first, and in an order of their own."""
    return sorted(
        stakes, key=lambda stake: (stake.rank, str(stake.resource), *msgspec.structs.astuple(stake)[2:])
    )


def stake_of(found: Examination) -> Stake | None:
    """Return what is at stake with one value; None where nothing is proven wrong with it."""
    verdict = found.verdict
    in_namespace = bool(found.namespace)
    return _stake(
        verdict.outcome, verdict.cause, verdict.apiserver, found.directory, in_namespace=in_namespace
    )


@lru_cache(1024)  # a million values come to a few
def _stake(
    outcome: Outcome,
    cause: Cause | None,
    apiserver: ServerBehaviour,
    directory: ResourcePrefix,
    *,
    in_namespace: bool,
) -> Stake | None:
    if outcome in {Outcome.READABLE, Outcome.UNDETERMINED, Outcome.NOT_AN_OBJECT}:
        return None
    if cause is Cause.ALLOCATOR_DAMAGED:
        severity = Severity.BREAKS_AT_RESTART
    elif apiserver in {ServerBehaviour.CORRUPT, ServerBehaviour.BREAKS_LIST}:
        severity = Severity.BREAKS_NOW
    else:
        severity = Severity.ONE_OBJECT
    namespaced = directory.namespaced if directory.namespaced is not None else in_namespace
    return Stake(severity, directory.group_resource, apiserver, namespaced, is_conditional(cause))


def severities_of_cause(cause: Cause) -> tuple[Severity, ...]:
    """Return how bad values with a cause can be, worst first; empty where nothing is proven wrong with them."""
    outcomes = set(CATALOGUE[cause].outcomes)
    if cause is Cause.ALLOCATOR_DAMAGED:
        return (Severity.BREAKS_AT_RESTART,)
    if outcomes & FAILED:
        # Of built-in types, API servers serve some of them: empty, or as they are.
        served = cause in _NO_OBJECT or Outcome.INCONSISTENT in outcomes
        return (Severity.BREAKS_NOW, Severity.ONE_OBJECT) if served else (Severity.BREAKS_NOW,)
    if Outcome.INCONSISTENT not in outcomes:
        return ()
    breaking = cause in {Cause.RAW_JSON_INVALID, Cause.INT_OR_STRING_INVALID}
    return (Severity.BREAKS_NOW,) if breaking else (Severity.ONE_OBJECT,)


def is_conditional(cause: str | None) -> bool:
    """Say whether another configuration than the one given here may read a value with this cause."""
    return cause in CURABLE_BY_CONFIGURATION and cause != Cause.CRD_VERSION_MISSING


_MEMORY: Final = "its memory may hold keys and objects."
_UNKNOWN: Final = "Severity not known: "


def headline(stakes: Sequence[Stake], undetermined: Sequence[str] = (), *, past: bool = False) -> str:
    """Return the worst of what is at stake in one line, the severity in front; "" for nothing."""
    if not stakes:
        if not undetermined:
            return ""
        if Cause.NO_CONFIGURATION in undetermined:
            return f"{_UNKNOWN}encrypted values cannot be judged without their configuration."
        if set(undetermined) & KMS_DOUBTS:
            return f"{_UNKNOWN}these values cannot be judged before their KMS opens them."
        return f"{_UNKNOWN}nothing is proven wrong with them."
    ranked = by_rank(stakes)
    worst = ranked[0].severity
    same = [stake for stake in ranked if stake.severity is worst]
    start, still = worst.value.upper().replace("-", " "), " if the cluster still holds this" if past else ""
    if worst is Severity.BREAKS_AT_RESTART:
        return f"{start}{still}: an API server that starts does not get ready (readyz)."
    if worst is Severity.ONE_OBJECT:
        return f"{start}: LIST still works. Only the objects that are wrong are affected."
    conditional = all(stake.conditional for stake in same)
    if past or conditional:
        failing = [stake for stake in same if stake.behaviour is ServerBehaviour.CORRUPT] or same
        return f"{start}{still or ' if API servers use this configuration'}: LIST of {_failing(failing)}."
    same = [stake for stake in same if not stake.conditional]
    failing = [stake for stake in same if stake.behaviour is ServerBehaviour.CORRUPT]
    if not failing:
        return f"{start}: LIST of {_failing(same, ' as JSON')}. kubectl cannot read them."
    frozen = " No namespace gets deleted." if any(stake.holds_namespaces for stake in failing) else ""
    return f"{start}: LIST of {_failing(failing)} unless a cache answers.{frozen}"


def restart_warning(stakes: Sequence[Stake], undetermined: Sequence[str] = (), *, past: bool = False) -> str:
    """Return why no API server should be restarted, in one line; "" where nothing speaks against it."""
    breaking = [stake for stake in by_rank(stakes) if stake.severity is not Severity.ONE_OBJECT]
    certain = [stake for stake in breaking if not stake.conditional]
    if past and any(stake.conditional for stake in breaking):
        return f"{DO_NOT_RESTART} before you run etcdfix rescue: its memory may hold these objects."
    if breaking and past:
        return keep_memory(past=True)
    if breaking:
        return f"{DO_NOT_RESTART}: {(certain or breaking)[0]._warning}"  # noqa: SLF001 - its own
    if set(undetermined) & KMS_DOUBTS:
        return keep_memory()
    return ""


def keep_memory(*, past: bool = False) -> str:
    """Return why no API server should be restarted where encryption keys may be lost, or not at hand, in one line."""
    why = " until a scan of the cluster finds nothing wrong." if past else f": {_MEMORY}"
    return f"{DO_NOT_RESTART}{why}"


def _failing(stakes: Sequence[Stake], how: str = "") -> str:
    """Name the resources with the verb: one fails, several fail."""
    several = len({stake.resource.resource for stake in stakes}) > 1
    return f"{_named(stakes)}{how} {'fail' if several else 'fails'}"


def _named(stakes: Iterable[Stake]) -> str:
    """Name the first of the resources, in few words; a stranger may have chosen a name, of any length."""
    names = [fit(name, _MOST_NAME) for name in dict.fromkeys(stake.resource.resource for stake in stakes)]
    if len(names) <= _MOST_NAMED and len(" and ".join(names)) <= _MOST_NAME:
        return " and ".join(names)
    first = f"{names[0]} and {counted(len(names) - 1, 'more type')}"
    return names[0] if len(names) == 1 else first if len(first) <= _MOST_NAME else f"{len(names)} types"
