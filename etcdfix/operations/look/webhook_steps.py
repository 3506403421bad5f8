"""What to do about webhooks that nobody answers and that hold a namespace: the ways that change least first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from etcdfix.graph.model import WebhookHold
from etcdfix.report.formats.namespace import SERVICE_PROBLEMS, webhook_name
from etcdfix.report.impact_model import NamespaceStep
from etcdfix.text.words import counted

_MOST: Final = 20
_NONE: Final = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'

Kubectl = Callable[..., str]
"""Makes a command for the API out of its words; "" where a name would not survive the way through a shell."""


def webhook_steps(holds: Sequence[WebhookHold], kubectl: Kubectl) -> Iterator[NamespaceStep]:
    """Yield a step for each Service that is missed, then the ways out without it, once for each configuration."""
    services = {hold.service.key: hold for hold in reversed(holds)}
    for hold in list(services.values())[::-1][:_MOST]:
        yield _answered(hold, kubectl)
    for _, members in list(_by_configuration(holds))[:_MOST]:
        yield from (
            _without_webhook(members, kubectl) if members[0].webhook else _converted(members[0], kubectl)
        )


def _by_configuration(holds: Sequence[WebhookHold]) -> Iterator[tuple[str, list[WebhookHold]]]:
    for key, members in groupby(holds, key=lambda hold: hold.configuration.key):
        yield key, list(members)


def _step(hold: WebhookHold, action: str, command: str, note: str) -> NamespaceStep:
    return NamespaceStep(number=0, action=action, command=command, note=note, key=hold.configuration.key)


def _answered(hold: WebhookHold, kubectl: Kubectl) -> NamespaceStep:
    which = f"Service {hold.service.namespace}/{hold.service.name}, {SERVICE_PROBLEMS[hold.problem]}"
    if hold.problem == "missing":
        action, command = f"Bring back {which}", kubectl("apply", "-f", "FILE")
        note = "FILE is its manifest, of the operator that it came with, whose pods have to run, too."
    else:
        action = f"See that pods answer for {which}"
        command = kubectl("get", "pods,endpointslices", "-n", hold.service.namespace)
        note = "The webhook may answer again before the namespace controller tries next; look again then."
    note += " The next steps are for a Service that does not come back."
    return _step(hold, f"{action}: {webhook_name(hold)} asks it", command, note)


def _converted(hold: WebhookHold, kubectl: Kubectl) -> Iterator[NamespaceStep]:
    ref = hold.configuration
    saved = (
        f" {counted(hold.elsewhere, 'object')} of other namespaces are stored in another version: save them first with "
        "etcdfix get."
        if hold.elsewhere
        else ""
    )
    yield _step(
        hold,
        f"Or set the conversion of {ref.kind} {ref.name} to None",
        kubectl("patch", ref.resource, ref.name, "--type=merge", "-p", _NONE),
        "API servers then change nothing but apiVersion. Fields that the other version does not have are dropped, and "
        f"lost with the next write.{saved} To delete the {ref.kind} is no way out: that waits for the same webhook.",
    )


def _without_webhook(holds: Sequence[WebhookHold], kubectl: Kubectl) -> Iterator[NamespaceStep]:
    first = holds[0]
    ref = first.configuration
    patch = []
    for hold in holds:
        path = f"/webhooks/{hold.position}"
        # Positions may have changed since: then nothing is patched.
        patch.append({"op": "test", "path": f"{path}/name", "value": hold.webhook})
        patch.append({"op": "add", "path": f"{path}/failurePolicy", "value": "Ignore"})
    yield _step(
        first,
        f"Or let API servers go on without an answer: failurePolicy Ignore for {counted(len(holds), 'webhook')} of "
        f"{ref.kind} {ref.name}",
        kubectl("patch", ref.resource, ref.name, "--type=json", "-p", msgspec.json.encode(patch).decode()),
        "What these would refuse is then allowed, until you set it to Fail again.",
    )
    yield _step(
        first,
        f"Or delete the stale {ref.kind} {ref.name}",
        kubectl("delete", ref.resource, ref.name, "--dry-run=server"),
        "Only where its operator is gone for good. All webhooks of this configuration go; save it first with kubectl "
        "get -o yaml. Without --dry-run=server the command deletes it.",
    )
