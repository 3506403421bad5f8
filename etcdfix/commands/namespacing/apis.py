"""What to do about APIs that a namespace needs to finish: definitions, aggregated APIs, webhooks.

Of the ways on without a webhook, those that change least come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from etcdfix.graph.model import Stays, WebhookHold
from etcdfix.graph.namespaces import NamespaceState
from etcdfix.report.namespace import SERVICE_PROBLEMS, NamespaceStep, webhook_name
from etcdfix.storagekey import StorageLayout, display
from etcdfix.text.commands import explain, kubectl
from etcdfix.text.words import counted

_MOST: Final = 20
_NONE: Final = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
_CRDS: Final = b"apiextensions.k8s.io/customresourcedefinitions/"


def definition_steps(state: NamespaceState, layout: StorageLayout) -> Iterator[NamespaceStep]:
    """Yield how CustomResourceDefinitions come back without which objects are left behind."""
    for content in state.contents:
        api = f"{content.resource}.{content.group}"
        key = layout.prefix_bytes + _CRDS + api.encode("utf-8", "surrogateescape")
        many = counted(content.count, "object")
        if content.stays == Stays.CRD_UNREADABLE:
            yield NamespaceStep(
                f"Fix the CustomResourceDefinition {api}, which cannot be read, before any API server restarts",
                explain(key, "--impact"),
                f"Running API servers may still serve {many} of it here. After a restart none does, and they are left "
                "behind. The API cannot show the definition: the command says what can be done.",
                display(key),
            )
        elif content.stays == Stays.NOT_SERVED:
            yield NamespaceStep(
                f"First bring back the CustomResourceDefinition {api}: without it {many} stay unseen",
                kubectl("apply", "-f", "FILE"),
                "FILE is its manifest, which came with the operator; an older backup of etcd has it under "
                f"{display(key)}. Keep group, plural, scope and versions. Finalizers of its objects need its "
                "controller, too.",
                display(key),
            )


def api_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield what to do about APIs that do not answer, and hold every namespace."""
    missing = list(state.missing_apis)
    for api in missing[: min(state.unavailable_apis, _MOST)]:
        yield NamespaceStep(
            f"Bring back the API {api}, or delete its APIService: {state.missing_apis[api]}",
            kubectl("get", "apiservices", api, "-o", "yaml"),
            "While discovery fails, no namespace of the cluster finishes.",
        )
    unknown = missing[state.unavailable_apis :][: state.unknown_apis]
    if unknown:
        more = ", …" if len(unknown) > 5 else ""
        yield NamespaceStep(
            f"Check that APIs answer whose APIService cannot be read: {', '.join(unknown[:5])}{more}",
            kubectl("api-resources"),
            "It names those that do not answer. While there is one, no namespace of the cluster finishes.",
        )


def webhook_steps(holds: Sequence[WebhookHold]) -> Iterator[NamespaceStep]:
    """Yield a step for each Service that is missed, then the ways on without it, once for each configuration."""
    services = {hold.service.key: hold for hold in reversed(holds)}
    for hold in list(services.values())[::-1][:_MOST]:
        yield _answered(hold)
    configurations = [[*members] for _, members in groupby(holds, key=lambda hold: hold.configuration.key)]
    for members in configurations[:_MOST]:
        yield from _without_webhook(members) if members[0].webhook else [_unconverted(members[0])]


def _answered(hold: WebhookHold) -> NamespaceStep:
    which = f"Service {hold.service.namespace}/{hold.service.name}, {SERVICE_PROBLEMS[hold.problem]}"
    if hold.problem == "missing":
        action, command = f"Bring back {which}", kubectl("apply", "-f", "FILE")
        note = "FILE is its manifest, which came with the operator. Its pods have to run, too."
    else:
        action = f"See that pods answer for {which}"
        command = kubectl("get", "pods,endpointslices", "-n", hold.service.namespace)
        note = "The webhook may answer again before the namespace controller tries next. Look again then."
    note += " The next steps are for a Service that does not come back."
    return NamespaceStep(f"{action}: {webhook_name(hold)} asks it", command, note, hold.configuration.key)


def _unconverted(hold: WebhookHold) -> NamespaceStep:
    ref = hold.configuration
    count = counted(hold.elsewhere, "object")
    saved = f" {count} of other namespaces are stored in another version: save them first with etcdfix get."
    saved = saved if hold.elsewhere else ""
    return NamespaceStep(
        f"Or set the conversion of {ref.kind} {ref.name} to None",
        kubectl("patch", ref.resource, ref.name, "--type=merge", "-p", _NONE),
        "API servers then change nothing but apiVersion. The next write drops fields that the other version does not "
        f"have.{saved} Deleting the {ref.kind} is no way out: that waits for the same webhook.",
        ref.key,
    )


def _without_webhook(holds: Sequence[WebhookHold]) -> Iterator[NamespaceStep]:
    ref = holds[0].configuration
    patch = []
    for hold in holds:
        path = f"/webhooks/{hold.position}"
        # Positions may have changed since: then nothing is patched.
        patch.append({"op": "test", "path": f"{path}/name", "value": hold.webhook})
        patch.append({"op": "add", "path": f"{path}/failurePolicy", "value": "Ignore"})
    yield NamespaceStep(
        f"Or let API servers go on without an answer: failurePolicy Ignore for {counted(len(holds), 'webhook')} of "
        f"{ref.kind} {ref.name}",
        kubectl("patch", ref.resource, ref.name, "--type=json", "-p", msgspec.json.encode(patch).decode()),
        "What these would refuse is then allowed, until you set it to Fail again.",
        ref.key,
    )
    yield NamespaceStep(
        f"Or delete the stale {ref.kind} {ref.name}",
        kubectl("delete", ref.resource, ref.name, "--dry-run=server"),
        "Only if its operator is gone for good. All webhooks of this configuration go: save it first with kubectl get "
        "-o yaml. Without --dry-run=server the command deletes it.",
        ref.key,
    )
