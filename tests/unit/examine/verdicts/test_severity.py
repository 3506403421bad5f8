from __future__ import annotations

import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.severity import (
    DO_NOT_RESTART,
    Severity,
    Stake,
    by_rank,
    headline,
    restart_warning,
    stake_of,
)
from etcdfix.model.model import Outcome, ServerBehaviour
from etcdfix.model.storagekey import builtin_directories
from tests.support.examinations import examination, readable

CRD = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
EMPTY = ServerBehaviour.SERVES_EMPTY
CORRUPT = ServerBehaviour.CORRUPT
BREAKS = ServerBehaviour.BREAKS_LIST


def stake(key: str, behaviour: ServerBehaviour = CORRUPT, cause: Cause = Cause.PROTOBUF_DAMAGED) -> Stake:
    outcome = (
        Outcome.INCONSISTENT if behaviour in {BREAKS, ServerBehaviour.SERVES} else Outcome.DECODE_FAILURE
    )
    found = stake_of(examination(key, outcome=outcome, cause=cause, apiserver=behaviour))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("behaviour", "severity"),
    [
        (CORRUPT, Severity.BREAKS_NOW), (BREAKS, Severity.BREAKS_NOW), (EMPTY, Severity.ONE_OBJECT),
        (ServerBehaviour.SERVES, Severity.ONE_OBJECT),
    ],
)  # fmt: skip
def test_what_the_api_server_does_decides(behaviour: ServerBehaviour, severity: Severity) -> None:
    assert stake("/registry/pods/shop/web", behaviour).severity is severity


@pytest.mark.parametrize("outcome", [Outcome.READABLE, Outcome.UNDETERMINED, Outcome.NOT_AN_OBJECT])
def test_what_is_not_proven_wrong_has_no_severity(outcome: Outcome) -> None:
    kept = readable("/registry/pods/shop/web", outcome=outcome, cause=Cause.KMS_UNREACHABLE)
    assert stake_of(kept) is None


@pytest.mark.parametrize("name", ["servicenodeports", "serviceips", "secondaryserviceips"])
def test_an_allocator_breaks_the_next_start_and_nothing_before(name: str) -> None:
    found = stake(f"/registry/ranges/{name}", ServerBehaviour.NOT_ASKED, Cause.ALLOCATOR_DAMAGED)
    assert found.severity is Severity.BREAKS_AT_RESTART
    assert headline([found]).startswith("BREAKS AT RESTART: ")
    assert "would not get ready" in restart_warning([found])


def test_a_definition_says_both_and_comes_first() -> None:
    definition = stake(CRD)
    assert definition.severity is Severity.BREAKS_NOW
    others = [stake("/registry/pods/shop/web"), stake("/registry/deployments/shop/web")]
    assert by_rank([*others, definition])[0] is definition
    assert "all custom resources stop" in restart_warning([*others, definition])


# Watched on a server of 1.36.2 with RBAC: one object of each type cut short, and a second server started on it.
NEVER_READY = """
    secrets pods serviceaccounts namespaces customresourcedefinitions apiservices roles rolebindings clusterroles
    clusterrolebindings flowschemas prioritylevelconfigurations services endpointslices nodes limitranges resourcequotas
    priorityclasses storageclasses ingressclasses runtimeclasses ipaddresses servicecidrs mutatingwebhookconfigurations
    validatingwebhookconfigurations mutatingadmissionpolicies mutatingadmissionpolicybindings
    validatingadmissionpolicies validatingadmissionpolicybindings deviceclasses resourceclaims
""".split()  # noqa: SIM905 - as it was written down


def of_type(resource: str) -> Stake:
    (directory,) = (d for d in builtin_directories() if d.resource == resource)
    return stake(f"/registry/{directory.path}/{'shop/' if directory.namespaced else ''}x")


def test_types_that_keep_a_server_from_getting_ready() -> None:
    for resource in NEVER_READY:
        found = of_type(resource)
        assert "readyz" in restart_warning([found]), resource
        holds = found.namespaced or resource == "namespaces"
        assert ("No namespace gets deleted" in headline([found])) is holds, resource


def test_the_worst_is_said_of_several() -> None:
    one = stake("/registry/pods/shop/web", EMPTY, Cause.EMPTY_VALUE)
    breaks = stake("/registry/pods/shop/api", BREAKS, Cause.RAW_JSON_INVALID)
    corrupt = stake("/registry/leases/shop/api")
    start = stake("/registry/ranges/servicenodeports", ServerBehaviour.NOT_ASKED, Cause.ALLOCATOR_DAMAGED)
    assert by_rank([one, start, breaks, corrupt]) == [corrupt, breaks, start, one]
    assert "LIST of leases fails" in headline([one, breaks, corrupt])
    assert headline([one]).startswith("ONE OBJECT: ")
    assert restart_warning([one]) == ""


@pytest.mark.parametrize(
    ("causes", "words", "warned"),
    [
        ([], "", False),
        ([Cause.NO_CONFIGURATION], "without their configuration", False),
        ([Cause.KMS_UNREACHABLE], "before their KMS opens them", True),
        ([Cause.KMS_KEY_UNKNOWN], "before their KMS opens them", True),
        ([Cause.OWNER_UNKNOWN], "nothing is proven wrong", False),
        ([Cause.NO_CONFIGURATION, Cause.KMS_DENIED], "without their configuration", True),
    ],
)
def test_of_what_could_not_be_judged_no_severity_is_known(
    causes: list[Cause], words: str, *, warned: bool
) -> None:
    line = headline([], causes)
    assert words in line
    assert not line or line.startswith("Severity not known: ")
    assert (DO_NOT_RESTART in restart_warning([], causes)) is warned


def test_what_another_configuration_may_read_is_said_with_an_if() -> None:
    lost = stake("/registry/secrets/shop/web", cause=Cause.WRONG_KEY)
    assert headline([lost]) == "BREAKS NOW if API servers use this configuration: LIST of secrets fails."
    assert restart_warning([lost]) == f"{DO_NOT_RESTART}: its memory may hold keys and objects."


def test_names_are_left_out_where_the_line_would_be_too_long() -> None:
    many = [stake(f"/registry/{name}/shop/web") for name in ("pods", "secrets", "persistentvolumeclaims")]
    line = headline(many)
    assert line.startswith("BREAKS NOW: LIST of pods and 2 more types fail unless a cache answers. ")
    assert len(line) <= 100
    assert "pods and services fail" in headline(
        [stake("/registry/pods/a/b"), stake("/registry/services/specs/a/b")]
    )


def test_nothing_is_made_up_for_other_types() -> None:
    custom = stake("/registry/example.com/widgets/shop/w-0")
    assert restart_warning([custom]) == f"{DO_NOT_RESTART}: its memory may still hold what etcd lost."


def test_malformed_answers_are_those_of_clients_that_read_json() -> None:
    found = stake("/registry/pods/shop/web", BREAKS, Cause.RAW_JSON_INVALID)
    assert headline([found]) == "BREAKS NOW: LIST of pods as JSON fails. kubectl cannot read them."
