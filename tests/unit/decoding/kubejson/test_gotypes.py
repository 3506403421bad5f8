"""The Go types behind the JSON fields, as the wire schema tells them."""

from __future__ import annotations

import pytest

from etcdfix.decoding.kubejson.gotypes import GoTypes
from etcdfix.decoding.schema import load_schema

TYPES = GoTypes(load_schema(36))


@pytest.mark.parametrize(
    ("message", "field", "form", "name"),
    [
        ("k8s.io.api.core.v1.Pod", "kind", "string", "string"),
        ("k8s.io.api.core.v1.Pod", "metadata", "struct", "v1.ObjectMeta"),
        ("k8s.io.api.core.v1.PodSpec", "containers", "slice", "[]v1.Container"),
        ("k8s.io.api.core.v1.PodSpec", "nodeSelector", "map", "map[string]string"),
        ("k8s.io.api.core.v1.PodSpec", "priority", "int", "int32"),
        ("k8s.io.api.core.v1.PodSpec", "overhead", "map", "v1.ResourceList"),
        ("k8s.io.api.core.v1.Secret", "data", "map", "map[string][]uint8"),
        ("k8s.io.api.core.v1.Volume", "hostPath", "struct", "v1.HostPathVolumeSource"),
        ("k8s.io.api.core.v1.SecretKeySelector", "name", "string", "string"),
        ("k8s.io.api.core.v1.ServicePort", "targetPort", "int-or-string", "intstr.IntOrString"),
        ("k8s.io.api.core.v1.Event", "eventTime", "microtime", "v1.MicroTime"),
        ("k8s.io.api.apps.v1.ControllerRevision", "data", "raw-json", "runtime.RawExtension"),
        ("k8s.io.api.certificates.v1.CertificateSigningRequestSpec", "extra", "map", "map[string]v1.ExtraValue"),
        ("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta", "creationTimestamp", "time", "v1.Time"),
        ("k8s.io.apimachinery.pkg.apis.meta.v1.OwnerReference", "uid", "string", "types.UID"),
        ("k8s.io.api.resource.v1.DeviceCapacity", "value", "quantity", "resource.Quantity"),
    ],
)  # fmt: skip
def test_types_of_fields(message: str, field: str, form: str, name: str) -> None:
    type_ = TYPES.fields(message)[field]
    assert (type_.form, type_.name) == (form, name)
