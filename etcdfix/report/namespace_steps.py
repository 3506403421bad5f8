"""What to do about a namespace, as far as its state alone tells: APIs, webhooks, pods, finalizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from etcdfix.graph.model import Stays, WebhookHold
from etcdfix.graph.namespaces import NamespaceState
from etcdfix.report.namespace import SERVICE_PROBLEMS, NamespaceStep, webhook_name
from etcdfix.storagekey import StorageLayout, display
from etcdfix.text.commands import FORCE, NO_COMMAND, Command, explain, kubectl, look
from etcdfix.text.words import counted

MOST_STEPS: Final = 20
"""So many steps of one kind are told one by one."""

_CRDS: Final = b"apiextensions.k8s.io/customresourcedefinitions/"
_UNCONVERTED: Final = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
_PATIENCE: Final = {
    "absent": "There is no Node object {0}, so the pod garbage collector forces the pod away within a minute.",
    "not-ready": "The Node object {0} is not ready. Bring its kubelet back, or nobody ends the pod.",
    "ready": "The Node object {0} says that it is ready. Find out why its kubelet does not end the pod.",
    "unknown": "The state of the Node object {0} is not known.",
}
_FORCED: Final = (
    " Without --dry-run=server the command forces the pod away and does not wait for its containers. Check first that "
    "they do not run, or two may write the same volume, and that no new pod of that name has come."
)


def definition_steps(state: NamespaceState, layout: StorageLayout) -> Iterator[NamespaceStep]:
    """Yield how CustomResourceDefinitions come back without which objects are left behind."""
    for content in state.contents:
        api = f"{content.resource}.{content.group}"
        key = layout.prefix_bytes + _CRDS + api.encode("utf-8", "surrogateescape")
        many = counted(content.count, "object")
        if content.stays == Stays.CRD_UNREADABLE:
            action = f"Fix the CustomResourceDefinition {api}, which cannot be read, before any API server restarts"
            note = f"After a restart no API server serves {many} of it here, and they are left behind."
            yield NamespaceStep(action, explain(key, "--impact"), note, display(key))
        elif content.stays == Stays.NOT_SERVED:
            action = f"First bring back the CustomResourceDefinition {api}: without it {many} stay unseen"
            note = "FILE is its manifest, which came with the operator; an older backup of etcd has it, too."
            yield NamespaceStep(action, kubectl("apply", "-f", "FILE"), note, display(key))


def api_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield what to do about APIs that do not answer, and hold every namespace."""
    missing = [*state.missing_apis]
    for api in missing[: min(state.unavailable_apis, MOST_STEPS)]:
        action = f"Bring back the API {api}, or delete its APIService: {state.missing_apis[api]}"
        note = "While discovery fails, no namespace of the cluster finishes."
        yield NamespaceStep(action, kubectl("get", "apiservices", api, "-o", "yaml"), note)
    unknown = missing[state.unavailable_apis :][: state.unknown_apis]
    if unknown:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        action = f"Check that APIs answer whose APIService cannot be read: {names}"
        yield NamespaceStep(action, kubectl("api-resources"), "It names those that do not answer.")


def webhook_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield a step for each Service that is missed, then the way on without it, once for each configuration."""
    holds = state.webhooks
    services = {hold.service.key: hold for hold in reversed(holds)}
    for hold in [*services.values()][::-1][:MOST_STEPS]:
        which = f"Service {hold.service.namespace}/{hold.service.name}, {SERVICE_PROBLEMS[hold.problem]}"
        action, command = f"Bring back {which}", kubectl("apply", "-f", "FILE")
        if hold.problem != "missing":
            action = f"See that pods answer for {which}"
            command = kubectl("get", "pods,endpointslices", "-n", hold.service.namespace)
        note = "Its pods have to run, too. The next step is for a Service that does not come back."
        yield NamespaceStep(f"{action}: {webhook_name(hold)} asks it", command, note, hold.configuration.key)
    groups = [[*members] for _, members in groupby(holds, key=lambda hold: hold.configuration.key)]
    yield from map(_without, groups[:MOST_STEPS])


def _without(holds: Sequence[WebhookHold]) -> NamespaceStep:
    """Return the way on without an answer that changes least, for the webhooks of one configuration."""
    hold, ref, patch = holds[0], holds[0].configuration, []
    if not hold.webhook:
        note = "API servers then change nothing but apiVersion; the next write drops fields that the other one lacks."
        if hold.elsewhere:
            note += f" Save {counted(hold.elsewhere, 'object')} of other namespaces first with etcdfix get."
        command = kubectl("patch", ref.resource, ref.name, "--type=merge", "-p", _UNCONVERTED)
        return NamespaceStep(
            f"Or set the conversion of {ref.kind} {ref.name} to None", command, note, ref.key
        )
    for one in holds:
        path = f"/webhooks/{one.position}"
        # Positions may have changed since: then nothing is patched.
        patch.append({"op": "test", "path": f"{path}/name", "value": one.webhook})
        patch.append({"op": "add", "path": f"{path}/failurePolicy", "value": "Ignore"})
    return NamespaceStep(
        f"Or let API servers go on without an answer: failurePolicy Ignore for {counted(len(holds), 'webhook')} of "
        f"{ref.kind} {ref.name}",
        kubectl("patch", ref.resource, ref.name, "--type=json", "-p", msgspec.json.encode(patch).decode()),
        "What these would refuse is then allowed, until you set it to Fail again.",
        ref.key,
    )


def pod_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield a step for each pod that no kubelet ends; where it stays, only those marked for deletion."""
    held = [b for b in state.blockers if b.reason == "node"]
    pods = [b for b in held if state.terminating or b.past_grace]
    for number, pod in enumerate(pods[:MOST_STEPS]):
        ref, late = pod.object, "nothing will end it"
        note = _PATIENCE[pod.node_state or "unknown"].format(pod.node) + ("" if number else _FORCED)
        if pod.past_grace:
            late = "its grace period is over, and nothing ended it"
        if pod.finalizers:
            note += f" Its finalizers go first: {', '.join(pod.finalizers[:10])}."
        command = kubectl("delete", "pod", ref.name, "-n", ref.namespace, *FORCE)
        yield NamespaceStep(f"End {ref} on node {pod.node}: {late}", command, note, ref.key)
    if len(pods) > MOST_STEPS:
        rest = counted(len(pods) - MOST_STEPS, "more pod")
        yield NamespaceStep(f"Then {rest}", look_again(state.name, "-o", "json"))


def finalizer_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield whose controllers are waited for: of pods, of the rest, of the Namespace itself, and in a circle."""
    if not state.terminating:
        return  # nobody was marked for deletion: finalizers that wait are in order
    by_hand = (
        "Take a finalizer off by hand only if its controller is gone for good: that skips what it guards."
    )
    for stage in state.stages:
        held = [b for b in stage.blockers if b.reason == "finalizers"]
        if held:
            first, names = (
                held[0].object,
                sorted({name for blocker in held for name in blocker.finalizers}),
            )
            many = counted(stage.blocker_count, "object")
            action = f"Check that the controllers of these finalizers run: {', '.join(names[:10])} ({many})"
            get = kubectl("get", first.full_resource, first.name, "-n", first.namespace, "-o", "yaml")
            yield NamespaceStep(action, get, by_hand)
    rings = {cycle.pod.key: cycle for cycle in reversed(state.cycles)}
    for ring in [*rings.values()][::-1][:MOST_STEPS]:
        pod = ring.pod
        yield NamespaceStep(
            f"End the cyclic wait of {pod} and {ring.object}: remove finalizer {ring.finalizer} from the pod, once "
            "what it guards is safe",
            kubectl("edit", "pod", pod.name, "-n", pod.namespace),
            f"{ring.confidence.value}: pods go first, and this one waits for what comes after it.",
            pod.key,
        )
    if state.finalizers:
        action = f"Check the controllers of the Namespace's metadata.finalizers: {', '.join(state.finalizers[:10])}"
        yield NamespaceStep(action, kubectl("get", "namespace", state.name, "-o", "yaml"), by_hand)
    if foreign := state.own_finalizers[len(state.finalizers) :]:
        yield NamespaceStep(
            f"Check the controllers of the Namespace's spec.finalizers: {', '.join(foreign[:10])}",
            kubectl("replace", "--raw", f"/api/v1/namespaces/{state.name}/finalize", "-f", "FILE"),
            f"{by_hand} FILE is the Namespace as JSON without that entry; leave kubernetes in.",
        )


def look_again(name: str, *options: str) -> Command:
    """Return the command that asks for the same namespace once more; none where its name could act upon something."""
    return look("namespace", name, *options) if name.isprintable() else NO_COMMAND
