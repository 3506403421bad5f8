"""Keys of etcd against the layout of kube-apiserver 1.36.

The expected table below was written down apart from the package's own: it follows the path expectations of
upstream's ``test/integration/etcd/data.go``, a line per directory.
"""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from etcdfix.model.errors import ConfigurationError
from etcdfix.model.storagekey import (
    NOT_AN_OBJECT,
    ResourcePrefix,
    StorageCodec,
    StorageLayout,
    api_path,
    builtin_directories,
    clean_prefix,
    custom_directory,
    display,
    likely_prefixes,
)

# directory, group (-: core), resource (=: last segment of the directory), kind, scope, version that 1.36 writes
LAYOUT = """
configmaps - = ConfigMap ns v1
services/endpoints - = Endpoints ns v1
events - = Event ns v1
limitranges - = LimitRange ns v1
namespaces - = Namespace cluster v1
minions - nodes Node cluster v1
persistentvolumeclaims - = PersistentVolumeClaim ns v1
persistentvolumes - = PersistentVolume cluster v1
pods - = Pod ns v1
podtemplates - = PodTemplate ns v1
controllers - replicationcontrollers ReplicationController ns v1
resourcequotas - = ResourceQuota ns v1
secrets - = Secret ns v1
serviceaccounts - = ServiceAccount ns v1
services/specs - services Service ns v1
mutatingadmissionpolicies admissionregistration.k8s.io = MutatingAdmissionPolicy cluster v1beta1
mutatingadmissionpolicybindings admissionregistration.k8s.io = MutatingAdmissionPolicyBinding cluster v1beta1
mutatingwebhookconfigurations admissionregistration.k8s.io = MutatingWebhookConfiguration cluster v1
validatingadmissionpolicies admissionregistration.k8s.io = ValidatingAdmissionPolicy cluster v1
validatingadmissionpolicybindings admissionregistration.k8s.io = ValidatingAdmissionPolicyBinding cluster v1
validatingwebhookconfigurations admissionregistration.k8s.io = ValidatingWebhookConfiguration cluster v1
controllerrevisions apps = ControllerRevision ns v1
daemonsets apps = DaemonSet ns v1
deployments apps = Deployment ns v1
replicasets apps = ReplicaSet ns v1
statefulsets apps = StatefulSet ns v1
horizontalpodautoscalers autoscaling = HorizontalPodAutoscaler ns v2
cronjobs batch = CronJob ns v1
jobs batch = Job ns v1
certificatesigningrequests certificates.k8s.io = CertificateSigningRequest cluster v1
clustertrustbundles certificates.k8s.io = ClusterTrustBundle cluster v1beta1
podcertificaterequests certificates.k8s.io = PodCertificateRequest ns v1beta1
leasecandidates coordination.k8s.io = LeaseCandidate ns v1beta1
leases coordination.k8s.io = Lease ns v1
endpointslices discovery.k8s.io = EndpointSlice ns v1
flowschemas flowcontrol.apiserver.k8s.io = FlowSchema cluster v1
prioritylevelconfigurations flowcontrol.apiserver.k8s.io = PriorityLevelConfiguration cluster v1
storageversions internal.apiserver.k8s.io = StorageVersion cluster v1alpha1
ingressclasses networking.k8s.io = IngressClass cluster v1
ingress networking.k8s.io ingresses Ingress ns v1
ipaddresses networking.k8s.io = IPAddress cluster v1
networkpolicies networking.k8s.io = NetworkPolicy ns v1
servicecidrs networking.k8s.io = ServiceCIDR cluster v1
runtimeclasses node.k8s.io = RuntimeClass cluster v1
poddisruptionbudgets policy = PodDisruptionBudget ns v1
clusterrolebindings rbac.authorization.k8s.io = ClusterRoleBinding cluster v1
clusterroles rbac.authorization.k8s.io = ClusterRole cluster v1
rolebindings rbac.authorization.k8s.io = RoleBinding ns v1
roles rbac.authorization.k8s.io = Role ns v1
deviceclasses resource.k8s.io = DeviceClass cluster v1
devicetaintrules resource.k8s.io = DeviceTaintRule cluster v1alpha3
resourceclaims resource.k8s.io = ResourceClaim ns v1
resourceclaimtemplates resource.k8s.io = ResourceClaimTemplate ns v1
resourcepoolstatusrequests resource.k8s.io = ResourcePoolStatusRequest cluster v1alpha3
resourceslices resource.k8s.io = ResourceSlice cluster v1
podgroups scheduling.k8s.io = PodGroup ns v1alpha2
priorityclasses scheduling.k8s.io = PriorityClass cluster v1
workloads scheduling.k8s.io = Workload ns v1alpha2
csidrivers storage.k8s.io = CSIDriver cluster v1
csinodes storage.k8s.io = CSINode cluster v1
csistoragecapacities storage.k8s.io = CSIStorageCapacity ns v1
storageclasses storage.k8s.io = StorageClass cluster v1
volumeattachments storage.k8s.io = VolumeAttachment cluster v1
volumeattributesclasses storage.k8s.io = VolumeAttributesClass cluster v1
storageversionmigrations storagemigration.k8s.io = StorageVersionMigration cluster v1beta1
apiextensions.k8s.io/customresourcedefinitions apiextensions.k8s.io = CustomResourceDefinition cluster v1
apiregistration.k8s.io/apiservices apiregistration.k8s.io = APIService cluster v1
"""

ROWS = [line.split() for line in LAYOUT.strip().splitlines()]
EXPECTED = {
    path: ResourcePrefix(
        path=path,
        group=group.strip("-"),
        resource=path.rpartition("/")[2] if resource == "=" else resource,
        kind=kind,
        namespaced=scope == "ns",
        codec=StorageCodec.JSON_BUILTIN if "/" in path and "." in path else StorageCodec.BUILTIN,
        version=version,
    )
    for path, group, resource, kind, scope, version in ROWS
}


def take_apart(
    layout: StorageLayout, key: bytes, namespaced: bool | None = None
) -> tuple[ResourcePrefix, str, str]:
    directory, shared = layout.locate(key)
    scoped = replace(directory, namespaced=directory.namespaced or namespaced)
    where = layout.split(key, (scoped, shared))
    assert where.directory is scoped
    return directory, where.namespace, where.name


def test_directories_are_those_of_the_layout() -> None:
    found = {d.path: msgspec.structs.replace(d, short_names=()) for d in builtin_directories()}
    assert found == EXPECTED
    assert len(builtin_directories()) == len(ROWS) == 67


@pytest.mark.parametrize(
    ("last", "resource"),
    [
        ("serviceips", "serviceipallocations"),
        ("secondaryserviceips", "serviceipallocations"),
        ("servicenodeports", "servicenodeportallocations"),
    ],
)
def test_allocators_are_single_keys(last: str, resource: str) -> None:
    layout = StorageLayout()
    key = f"/registry/ranges/{last}".encode()
    directory, shared = layout.locate(key)
    assert (directory.codec, directory.kind, directory.resource) == (
        StorageCodec.ALLOCATOR,
        "RangeAllocation",
        resource,
    )
    assert directory.namespaced is False
    assert shared == key
    where = layout.split(key)
    assert (where.namespace, where.name, where.well_formed) == ("", last, True)


@pytest.mark.parametrize("key", [b"/registry/ranges/other", b"/registry/ranges/serviceips/more"])
def test_other_keys_below_ranges_belong_to_nobody_known(key: bytes) -> None:
    assert StorageLayout().locate(key)[0].codec is StorageCodec.UNKNOWN


@pytest.mark.parametrize(
    ("key", "resource", "namespace", "name"),
    [
        ("routes/shop/r1", "routes.route.openshift.io", "shop", "r1"),
        ("oauth/accesstokens/sha256~a", "oauthaccesstokens.oauth.openshift.io", "", "sha256~a"),
        ("oauth/clientauthorizations/a:b", "oauthclientauthorizations.oauth.openshift.io", "", "a:b"),
        ("useridentities/ldap:a", "identities.user.openshift.io", "", "ldap:a"),
    ],
)
def test_openshifts_own_tree(key: str, resource: str, namespace: str, name: str) -> None:
    directory, *where = take_apart(StorageLayout("openshift.io"), f"/openshift.io/{key}".encode())
    assert (str(directory.group_resource), where) == (resource, [namespace, name])
    elsewhere, _ = StorageLayout().locate(f"/registry/{key}".encode())
    assert str(elsewhere.group_resource) != resource  # of a kube-apiserver nothing is known by these names


@pytest.mark.parametrize(
    "key",
    [
        b"compact_rev_key",
        b"/registry/masterleases/10.0.0.1",
        b"/registry/health",
        b"/registrysecrets/shop/web",
        b"/registry",
        b"/openshift.io/routes/shop/web",
        b"",
        b"\xff\xfe",
    ],
)
def test_bookkeeping_and_strangers_are_not_objects(key: bytes) -> None:
    layout = StorageLayout()
    directory, shared = layout.locate(key)
    assert directory.codec is StorageCodec.NOT_AN_OBJECT
    assert shared == key
    where = layout.split(key)
    assert (where.namespace, where.name) == ("", display(key))


def test_compact_rev_key_is_bookkeeping_under_prefix_slash_too() -> None:
    layout = StorageLayout("/")
    assert layout.locate(b"compact_rev_key")[0].codec is StorageCodec.NOT_AN_OBJECT
    assert layout.locate(b"/masterleases/10.0.0.1")[0].codec is StorageCodec.NOT_AN_OBJECT
    assert take_apart(layout, b"/secrets/shop/web")[1:] == ("shop", "web")


@pytest.mark.parametrize(
    ("key", "group", "resource", "namespace", "name", "namespaced"),
    [
        (b"/registry/example.com/widgets/shop/w-0", "example.com", "widgets", "shop", "w-0", True),
        (b"/registry/example.com/widgets/w-0", "example.com", "widgets", "", "w-0", False),
        (b"/registry/example.com/widgets/shop/w-0", "example.com", "widgets", "shop", "w-0", None),
        (b"/registry/example.com/widgets/w-0", "example.com", "widgets", "", "w-0", None),
    ],
)
def test_a_dotted_first_segment_is_an_api_group(
    key: bytes, group: str, resource: str, namespace: str, name: str, namespaced: bool | None
) -> None:
    layout = StorageLayout()
    directory, shared = layout.locate(key)
    assert directory == custom_directory(group, resource)
    assert directory.codec is StorageCodec.CUSTOM_RESOURCE
    assert shared == f"/registry/{group}/{resource}/".encode()
    where = layout.split(key, (replace(directory, namespaced=namespaced), shared))
    assert (where.namespace, where.name, where.well_formed) == (namespace, name, True)


@pytest.mark.parametrize(
    "key",
    [
        b"/registry/unheardof/shop/web",
        b"/registry/services/other/shop/web",
        b"/registry/example.com",
        b"/registry/example.com/widgets",
        b"/registry/",
        b"/registry//secrets/shop/web",
    ],
)
def test_unknown_directories_are_kept_as_such(key: bytes) -> None:
    layout = StorageLayout()
    directory, shared = layout.locate(key)
    assert directory.codec is StorageCodec.UNKNOWN
    assert directory.namespaced is None
    assert shared == key


@pytest.mark.parametrize("path", ["pods", "services", "services/specs", "apiextensions.k8s.io", "ranges"])
def test_a_directory_is_no_object(path: str) -> None:
    key = f"/registry/{path}".encode()
    assert StorageLayout().locate(key) == (NOT_AN_OBJECT, key)


@pytest.mark.parametrize(
    ("key", "namespaced", "namespace", "name"),
    [
        (b"/registry/secrets/web", True, "", "web"),
        (b"/registry/secrets/shop/", True, "shop", ""),
        (b"/registry/secrets//web", True, "", "web"),
        (b"/registry/secrets/shop/web/more", True, "shop", "web/more"),
        (b"/registry/minions/a/b", False, "", "a/b"),
        (b"/registry/example.com/widgets/a/b/c", None, "a", "b/c"),
    ],
)
def test_wrong_number_of_segments_is_a_malformed_key(
    key: bytes, namespaced: bool | None, namespace: str, name: str
) -> None:
    layout = StorageLayout()
    directory, shared = layout.locate(key)
    where = layout.split(key, (replace(directory, namespaced=namespaced), shared))
    assert (where.namespace, where.name, where.well_formed) == (namespace, name, False)


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ("/registry", "/registry/"),
        ("registry", "/registry/"),
        ("/registry/", "/registry/"),
        ("/registry//a/", "/registry/a/"),
        ("/registry/../other", "/other/"),
        ("/", "/"),
        ("", "/"),
    ],
)
def test_prefix_is_cleaned_like_path_join(given: str, cleaned: str) -> None:
    assert clean_prefix(given) == cleaned
    assert StorageLayout(given).path() == cleaned.encode()


@pytest.mark.parametrize(
    "key",
    [
        b"/registry/secrets/sh\xffop/we\xfeb",
        b"/registry/exa\xffmple.com/wid\xfegets/shop/w",
        b"/registry/ranges/\xff",
    ],
)
def test_names_that_are_not_utf8_can_be_written_into_a_report(key: bytes) -> None:
    layout = StorageLayout()
    where = layout.split(key)
    directory = where.directory
    for text in (directory.path, directory.group, directory.resource, where.namespace, where.name):
        text.encode("utf-8")  # a lone surrogate would raise here, and in every JSON encoder


def test_display_spells_out_what_is_not_utf8() -> None:
    assert display(b"/registry/secrets/caf\xc3\xa9/\xff") == "/registry/secrets/café/\\xff"


@pytest.mark.parametrize(
    ("path", "namespace", "name", "expected"),
    [
        ("secrets", "shop", "web", "/api/v1/namespaces/shop/secrets/web"),
        ("ingress", "shop", "web", "/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web"),
        ("clusterroles", "", "system:node", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"),
        (
            "apiextensions.k8s.io/customresourcedefinitions",
            "",
            "w.example.com",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/w.example.com",
        ),
        ("secrets", "a b", "x?y=#z", "/api/v1/namespaces/a%20b/secrets/x%3Fy%3D%23z"),
    ],
)
def test_api_path(path: str, namespace: str, name: str, expected: str) -> None:
    assert EXPECTED[path].api_path(namespace, name) == expected


@pytest.mark.parametrize("part", [".", "..", "a/b", "a%2fb"])
def test_no_api_path_that_would_name_something_else(part: str) -> None:
    assert api_path("example.com", "v1", "widgets", "shop", "w") == (
        "/apis/example.com/v1/namespaces/shop/widgets/w"
    )
    assert api_path("example.com", "v1?x", "wid gets", "", "w") == "/apis/example.com/v1%3Fx/wid%20gets/w"
    good = {"group": "example.com", "version": "v1", "resource": "widgets", "namespace": "shop", "name": "w"}
    for field in good:
        assert api_path(**{**good, field: part}) == ""
    for field in ("version", "resource", "name"):
        assert api_path(**{**good, field: ""}) == ""


@pytest.mark.parametrize(
    ("keys", "prefixes"),
    [
        ([b"compact_rev_key", b"cilium/state"], []),
        ([b"/kubernetes.io/secrets/shop/web"], ["/kubernetes.io"]),
        ([b"/secrets/shop/web", b"/pods/shop/web"], ["/"]),
        (
            [b"/a/b/secrets/x/y", b"/kubernetes.io/pods/x/y", b"/kubernetes.io/minions/n"],
            ["/kubernetes.io", "/a/b"],
        ),
        ([b"/x/services/specs/a/b"], ["/x"]),
        ([b"/\xff/secrets/a/b"], ["/\ufffd"]),
    ],
)
def test_likely_prefixes(keys: list[bytes], prefixes: list[str]) -> None:
    assert likely_prefixes(keys) == prefixes


def test_a_prefix_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--etcd-prefix is not UTF-8"):
        StorageLayout(b"/\xff".decode("utf-8", "surrogateescape"))
