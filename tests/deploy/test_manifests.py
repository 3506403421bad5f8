"""The manifests and the Containerfile of docs/deploy: they keep to the schemas, and do no more than they must."""

from __future__ import annotations

import re
import tomllib

import click
import kubernetes_validate
import pytest

from etcdfix.cli.root import cli
from etcdfix.sources.connection import parse_timeout
from tests.support.kubelet import DEPLOY, MANIFESTS, REPOSITORY, Manifest, documents, job_spec, pods, the_only

OLDEST, NEWEST = "1.29", "1.37"  # 1.29 is the first with backoffLimitPerIndex without a feature gate
PODS = [pytest.param(document, template, id=name) for name, document, template in pods()]


def every_document() -> list[tuple[str, Manifest]]:
    return [
        (f"{path.name}:{document['kind']}/{document['metadata']['name']}", document)
        for path in MANIFESTS
        for document in documents(path)
    ]


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
@pytest.mark.parametrize(("name", "document"), every_document())
def test_it_keeps_to_the_published_schema(name: str, document: Manifest, release: str) -> None:
    assert kubernetes_validate.validate(document, release, strict=True) == release


@pytest.mark.parametrize(("document", "template"), PODS)
def test_a_pod_may_do_no_more_than_it_must(document: Manifest, template: Manifest) -> None:
    spec = template["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "initContainers" not in spec
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory", "ephemeral-storage"} == set(container["resources"]["requests"])
        assert {"cpu", "memory", "ephemeral-storage"} == set(container["resources"]["limits"])


def test_no_key_is_in_a_manifest_or_in_an_environment() -> None:
    for where, document in every_document():
        assert document["kind"] != "Secret", where
    for where, _, template in pods():
        for container in template["spec"]["containers"]:
            assert "envFrom" not in container, where
            for variable in container.get("env", ()):
                assert variable.get("valueFrom") in (None, {"fieldRef": {"fieldPath": "metadata.name"}}), (
                    where
                )
            words = container.get("args", ())
            assert not any(word.startswith(("--user", "--password")) for word in words), where


COMMANDS = [
    pytest.param(container, id=f"{name}-{container['name']}")
    for name, _, template in pods()
    for container in template["spec"]["containers"]
    if "command" not in container  # that of reader.yaml is none of ours
]


@pytest.mark.parametrize("container", COMMANDS)
def test_its_arguments_are_those_of_the_command(container: Manifest) -> None:
    words = list(container["args"])
    command: click.Command | None = cli
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(cli), words.pop(0))
    assert command is not None
    known = {name for option in command.params for name in option.opts}
    assert all(word.partition("=")[0] in known for word in words)


@pytest.mark.parametrize("name", ["nightly.yaml", "clusters.yaml"])
def test_a_scan_ends_by_itself_before_its_job_is_ended(name: str) -> None:
    (document,) = documents(DEPLOY / name)
    spec = job_spec(document)
    (text,) = (
        word.removeprefix("--timeout=")
        for word in spec["template"]["spec"]["containers"][0]["args"]
        if word.startswith("--timeout=")
    )
    (again,) = (spec[name] for name in ("backoffLimit", "backoffLimitPerIndex") if name in spec)
    seconds = parse_timeout(text, "--timeout")
    assert seconds is not None
    assert (1 + again) * seconds < spec["activeDeadlineSeconds"]


def of_network(name: str) -> Manifest:
    (found,) = (p for p in documents(DEPLOY / "network-policy.yaml") if p["metadata"]["name"] == name)
    spec: Manifest = found["spec"]
    return spec


def test_nothing_is_reached_but_etcd_and_that_by_the_nightly_scan_alone() -> None:
    assert of_network("nothing") == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    allowed = of_network("nightly-to-etcd")
    assert len(documents(DEPLOY / "network-policy.yaml")) == 2
    assert allowed["policyTypes"] == ["Egress"]
    wanted = allowed["podSelector"]["matchLabels"]
    matching = {name for name, _, pod in pods() if wanted.items() <= pod["metadata"]["labels"].items()}
    assert matching == {"nightly.yaml"}
    (rule,) = allowed["egress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 2379}]
    (block,) = rule["to"]
    address = block["ipBlock"]["cidr"].removesuffix("/32")
    nightly = the_only(DEPLOY / "nightly.yaml", "CronJob")
    arguments = job_spec(nightly)["template"]["spec"]["containers"][0]["args"]
    assert f"--endpoints=https://{address}:2379" in arguments


LOCKS = {"docs/release/build-requirements.txt", "docs/release/requirements.txt"}


def test_all_that_is_installed_is_pinned_by_its_digest() -> None:
    lines = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if not line.startswith("#")]
    commands = re.split(r"&&|;|\||\n", re.sub(r" *\\\n *", " ", "\n".join(lines)))
    taking = [
        set(command.split()) for command in commands if re.search(r"\b(install|download|wheel)\b", command)
    ]
    for words in taking:
        if "-r" in words:
            assert "--require-hashes" in words
            assert words & LOCKS
        else:  # from no index: what was copied, or built before
            assert {"--no-deps", "--no-index"} <= words
            assert "." not in words or "--no-build-isolation" in words
    assert set().union(*taking) >= LOCKS
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["build-system"]["requires"] == ["hatchling"]
    locked = (REPOSITORY / "docs/release/build-requirements.txt").read_text()
    assert re.search("^hatchling==", locked, re.MULTILINE)


def test_the_lock_has_every_library_that_etcdfix_needs() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {*project["dependencies"], *project["optional-dependencies"]["kubernetes"]}
    locked = (REPOSITORY / "docs/release/requirements.txt").read_text().lower()
    names = {re.split(r"[\[>=]", name)[0].lower() for name in needed}
    assert {name for name in names if f"\n{name}==" not in locked} == set()
