"""The order in which Go writes a message's fields: that of the struct, which is not always that of the numbers.

A struct's fields mostly stand in the order in which they were added, and so by number. Where they do not, the
order is noted below, as upstream's sample objects of 1.34 and 1.36 show it. It is a matter of looks, since JSON
objects have no order; a message that no sample holds is shown by number.
"""

from __future__ import annotations

from typing import Final

from etcdfix.decoding.schema import Field, MessageType

# By group (with the version where versions differ) and message: field numbers that come first, in this order; all
# others follow by number.
_FIRST: Final = {
    "admissionregistration.MutatingWebhook": "1, 2, 3, 4, 9, 5, 11",
    "admissionregistration.ValidatingWebhook": "1, 2, 3, 4, 9, 5, 10",
    "admissionregistration.WebhookClientConfig": "3",
    "apps.DeploymentCondition": "1, 2, 6, 7",
    "apps.DeploymentStatus": "1, 2, 3, 7, 4, 5, 9",
    "apps.ReplicaSetSpec": "1, 4",
    "apps.ReplicaSetStatus": "1, 2, 4, 5, 7",
    "authentication.TokenRequestSpec": "1, 4",
    "authentication.TokenReviewStatus": "1, 2, 4",
    "authorization.SubjectAccessReviewStatus": "1, 4",
    "autoscaling.HPAScalingRules": "3",
    "autoscaling.MetricSpec": "1, 2, 3, 4, 7",
    "autoscaling.MetricStatus": "1, 2, 3, 4, 7",
    "batch.CronJobSpec": "1, 8",
    "batch.JobSpec": "1, 2, 3, 11, 16, 7, 12, 13",
    "batch.JobStatus": "1, 2, 3, 4, 5, 6, 11, 7, 10",
    "certificates.CertificateSigningRequestCondition": "1, 6",
    "certificates.CertificateSigningRequestSpec": "1, 7, 8, 5",
    "certificates.PodCertificateRequestSpec": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12",
    "core.ClusterTrustBundleProjection": "1, 2, 3, 5",
    "core.ConfigMap": "1, 4",
    "core.Container": "1, 2, 3, 4, 5, 6, 19, 7, 8, 23, 24, 25, 9, 21, 10, 11, 22, 12, 13, 20",
    "core.EndpointAddress": "1, 3, 4",
    "core.EphemeralContainerCommon": "1, 2, 3, 4, 5, 6, 19, 7, 8, 23, 24, 25, 9, 21, 10, 11, 22, 12, 13, 20",
    "core.ISCSIPersistentVolumeSource": "1, 2, 3, 4, 5, 6, 7, 8, 11",
    "core.ISCSIVolumeSource": "1, 2, 3, 4, 5, 6, 7, 8, 11",
    "core.NodeSpec": "1, 7, 3, 4, 5, 6",
    "core.PersistentVolumeClaimSpec": "1, 4",
    "core.PodCondition": "1, 7",
    "core.PodSecurityContext": "1, 8, 2, 6, 3, 4, 12",
    "core.PodSpec": "1, 20, 2, 34, 3, 4, 5, 6, 7, 8, 9, 21, 10, 11, 12, 13, 27",
    "core.PodStatus": "17, 1, 2, 3, 4, 11, 5, 16, 6, 12, 7, 10",
    "core.ReplicationControllerSpec": "1, 4",
    "core.ReplicationControllerStatus": "1, 2, 4, 5",
    "core.Secret": "1, 5, 2, 4",
    "core.SecurityContext": "1, 2, 3, 10, 4, 8",
    "core.ServicePort": "1, 2, 6",
    "core.ServiceSpec": "1, 2, 3, 18, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 19",
    "core.VolumeMount": "1, 2, 7",
    "core.VolumeSource": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 26",
    "discovery.EndpointSlice": "1, 4",
    "extensions.DeploymentCondition": "1, 2, 6, 7",
    "extensions.DeploymentStatus": "1, 2, 3, 7, 4, 5, 9",
    "extensions.HTTPIngressPath": "1, 3",
    "extensions.IngressSpec": "4",
    "extensions.ReplicaSetSpec": "1, 4",
    "extensions.ReplicaSetStatus": "1, 2, 4, 5, 7",
    "meta.ListOptions": "1, 2, 3, 9, 4, 10",
    "meta.OwnerReference": "5",
    "meta.StatusDetails": "1, 2, 3, 6",
    "networking.HTTPIngressPath": "1, 3",
    "networking.IngressBackend": "4",
    "networking.IngressSpec": "4",
    "resource.AllocatedDeviceStatus": "1, 2, 3, 7",
    "resource.PoolStatus": "1, 2, 9, 8, 4, 5, 6, 7",
    "resource.ResourcePoolStatusRequestStatus": "6",
}


def in_go_order(type_: MessageType) -> tuple[Field, ...]:
    """Return a message's fields in the order of its Go struct."""
    *_, group, version, name = type_.full_name.split(".")
    first = _FIRST.get(f"{group}.{name}") or _FIRST.get(f"{group}.{version}.{name}")
    if first is None:
        return tuple(sorted(type_.fields, key=_number))
    place = {int(number): index for index, number in enumerate(first.split(", "))}
    return tuple(sorted(type_.fields, key=lambda field: (place.get(field.number, len(place)), field.number)))


def _number(field: Field) -> int:
    return field.number
