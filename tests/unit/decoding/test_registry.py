from __future__ import annotations

from etcdfix.decoding.registry import Registry, SchemeName, stored_kinds
from etcdfix.decoding.schema import kind_rows

# A running 1.36 kube-apiserver's scheme, without the kinds that live in schemes of their own.
REGISTERED_1_36 = {
    "": "v1",
    "admission.k8s.io": "v1 v1beta1",
    "admissionregistration.k8s.io": "v1 v1beta1 v1alpha1",
    "apps": "v1 v1beta2 v1beta1",
    "authentication.k8s.io": "v1 v1beta1 v1alpha1",
    "authorization.k8s.io": "v1 v1beta1",
    "autoscaling": "v2 v1",
    "batch": "v1 v1beta1",
    "certificates.k8s.io": "v1 v1beta1 v1alpha1",
    "coordination.k8s.io": "v1 v1beta1 v1alpha2",
    "discovery.k8s.io": "v1 v1beta1",
    "events.k8s.io": "v1 v1beta1",
    "extensions": "v1beta1",
    "flowcontrol.apiserver.k8s.io": "v1 v1beta3 v1beta2 v1beta1",
    "imagepolicy.k8s.io": "v1alpha1",
    "internal.apiserver.k8s.io": "v1alpha1",
    "networking.k8s.io": "v1 v1beta1",
    "node.k8s.io": "v1 v1beta1 v1alpha1",
    "policy": "v1 v1beta1",
    "rbac.authorization.k8s.io": "v1 v1beta1 v1alpha1",
    "resource.k8s.io": "v1 v1beta2 v1beta1 v1alpha3",
    "scheduling.k8s.io": "v1 v1beta1 v1alpha2",
    "storage.k8s.io": "v1 v1beta1 v1alpha1",
    "storagemigration.k8s.io": "v1beta1",
}


def registered_versions(registry: Registry) -> set[tuple[str, str]]:
    known = {(row.group, row.version) for row in kind_rows() if row.version}
    known |= {(group, version) for group, versions in REGISTERED_1_36.items() for version in versions.split()}
    return {pair for pair in known if registry.lookup(*pair, "GetOptions") is not None}


def test_group_versions_of_1_36() -> None:
    expected = {
        (group, version) for group, versions in REGISTERED_1_36.items() for version in versions.split()
    }
    assert registered_versions(Registry(36)) == expected


def test_group_versions_of_the_other_schemes() -> None:
    for scheme, group in (
        (SchemeName.APIEXTENSIONS, "apiextensions.k8s.io"),
        (SchemeName.AGGREGATOR, "apiregistration.k8s.io"),
    ):
        registry = Registry(36, scheme)
        assert registered_versions(registry) == {("", "v1"), (group, "v1"), (group, "v1beta1")}
        assert registry.lookup("", "v1", "Secret") is None
        status = registry.lookup("", "v1", "Status")
        assert status is not None
        assert registry.lookup("", "v1", "GetOptions") is not None


def test_what_other_releases_register() -> None:
    kind = ("autoscaling", "v2beta2", "HorizontalPodAutoscaler")

    assert Registry(35).lookup(*kind) is not None
    assert Registry(36).lookup(*kind) is None
    assert Registry().lookup(*kind) is not None
    for registry in (Registry(35), Registry(36), Registry()):
        assert registry.readable_until(*kind) == "1.35"
    assert Registry(36).reason_unregistered(*kind) == "version-removed"
    assert Registry(20).reason_unregistered(*kind) == "not-registered"
    # options kinds go with their group version
    assert Registry(35).lookup("autoscaling", "v2beta2", "ListOptions") is not None
    assert Registry(36).lookup("autoscaling", "v2beta2", "ListOptions") is None


def test_a_kind_newer_than_the_release_is_not_registered_rather_than_removed() -> None:
    kind = ("storagemigration.k8s.io", "v1", "StorageVersionMigration")

    assert Registry(36).lookup(*kind) is None
    assert Registry(36).reason_unregistered(*kind) == "not-registered"
    assert Registry(36).readable_until(*kind) == ""


def test_internal_versions() -> None:
    registry = Registry(36)
    assert registry.internal_of("", "ConfigMap", "", "Secret") == "core.ConfigMap"
    assert registry.internal_of("extensions", "Deployment", "", "Secret") == "apps.Deployment"
    assert not registry.internal_of("", "Deployment", "", "Secret")
    assert not registry.internal_of("scheduling.k8s.io", "CompositePodGroup", "", "Secret")
    assert Registry().internal_of("scheduling.k8s.io", "CompositePodGroup", "", "Secret")
    assert registry.first_group("networking.k8s.io", "Ingress") == "extensions"
    assert registry.first_group("", "Secret") == ""


def test_what_some_release_may_store() -> None:
    kinds = stored_kinds()
    assert list(kinds) == sorted(kinds)
    assert {("v1", "Secret"), ("extensions/v1beta1", "Deployment")} < set(kinds)
    assert ("v1", "SecretList") not in kinds
