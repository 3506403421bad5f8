"""What ``etcdfix get`` prints is what ``kubectl replace`` takes, and what is masked or broken is what it refuses.

``kubectl replace --dry-run=client`` sends nothing, yet it asks a server which resources there are. A server of the
test answers that, and nothing else: any other request fails, and the test with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.collecting import ALPHA
from tests.support.kubernetes_api import TOKEN, Answer, KubernetesAPI, Request, status_answer

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")

SOURCE = ["--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", str(ALPHA / "config-lost.yaml")]
RESOURCES = {
    "v1": [
        ("pods", "Pod"),
        ("secrets", "Secret"),
        ("configmaps", "ConfigMap"),
        ("serviceaccounts", "ServiceAccount"),
    ],
    "apps/v1": [
        ("statefulsets", "StatefulSet"),
        ("replicasets", "ReplicaSet"),
        ("deployments", "Deployment"),
    ],
}
# What managedFields alone break, of each kind.
HEALED = [
    "/registry/statefulsets/pay/db",
    "/registry/replicasets/shop/dep-0-abc",
    "/registry/pods/infra/dep-1-abc-0",
]


class DiscoveryAPI(KubernetesAPI):
    def answer(self, request: Request) -> Answer:
        if request.authorization != f"Bearer {TOKEN}" or request.method != "GET":
            return status_answer(403)
        path = request.path.partition("?")[0]
        known = {("/api/" if "/" not in version else "/apis/") + version: version for version in RESOURCES}
        body: dict[str, object]
        if path == "/api":
            body = {"kind": "APIVersions", "versions": ["v1"]}
        elif path == "/apis":
            version = {"groupVersion": "apps/v1", "version": "v1"}
            groups = [{"name": "apps", "versions": [version], "preferredVersion": version}]
            body = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        elif path in known:
            resources = [
                {
                    "name": name,
                    "singularName": "",
                    "namespaced": True,
                    "kind": kind,
                    "verbs": ["get", "update"],
                }
                for name, kind in RESOURCES[known[path]]
            ]
            body = {"kind": "APIResourceList", "groupVersion": known[path], "resources": resources}
        else:
            return status_answer(404)
        return Answer(200, json.dumps(body).encode())


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("kubectl")
    with DiscoveryAPI(CertificateAuthority(folder)) as api:
        kubeconfig = api.kubeconfig(folder)
        kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG"}}
        yield {**kept, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}
        assert {request.method for request in api.requests} == {"GET"}


def replace(document: bytes, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    assert KUBECTL is not None
    return subprocess.run(
        [KUBECTL, "replace", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"],
        input=document,
        env=environment,
        capture_output=True,
        check=False,
    )


def shown(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, bytes]:
    code = run(["get", *arguments, *SOURCE])
    return code, capfdbinary.readouterr().out


@pytest.mark.parametrize("key", HEALED)
def test_the_healing_pipe(
    key: str, environment: dict[str, str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, document = shown(capfdbinary, key, "--omit-managed-fields", "-o", "json")
    assert code == 1
    done = replace(document, environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == json.loads(document)


@pytest.mark.parametrize(("resource", "output"), [("deployments", "json"), ("secrets", "yaml")])
def test_lists_are_taken(
    resource: str, output: str, environment: dict[str, str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    reveal = ["--reveal"] if resource == "secrets" else []
    _, document = shown(capfdbinary, resource, "-A", "-o", output, *reveal)
    _, items = shown(capfdbinary, resource, "-A", "-o", "json", *reveal)
    done = replace(document, environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b'\n    "kind": ') == len(json.loads(items)["items"]) > 2


@pytest.mark.parametrize("key", ["/registry/statefulsets/pay/db", "/registry/secrets/infra/queue-plain-5"])
def test_what_is_left_of_a_broken_object_is_refused(
    key: str, environment: dict[str, str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for output in ("yaml", "json"):
        _, document = shown(capfdbinary, key, "-o", output)
        done = replace(document, environment)
        assert done.returncode != 0
        assert b"etcdfix/v1" in done.stderr
