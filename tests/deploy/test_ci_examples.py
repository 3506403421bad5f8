"""The examples of docs/ci: they keep to the schemas of both CI systems, and their steps do what the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from etcdfix.testing.damage import Damage
from etcdfix.testing.objects import secret
from etcdfix.testing.planting import plant, store
from etcdfix.testing.servers import EtcdServer
from tests.support.encoders import kms_v2_body
from tests.support.objects import IDENTITY, KMS_V2, configuration_of_rules, provider
from tests.support.thorough import some

CI = Path("docs/ci").resolve()
SCHEMAS = {"github-actions.yml": "vendor.github-workflows", "gitlab-ci.yml": "vendor.gitlab-ci"}
KEY, OTHER = b"0123456789abcdef", b"fedcba9876543210"


class Step(NamedTuple):
    """A piece of shell, as a system runs it: each line of a GitLab script, or all of a step of GitHub."""

    script: str
    variables: dict[str, str]


def document(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((CI / name).read_text())
    return {
        ("on" if key is True else key): value for key, value in loaded.items()
    }  # YAML 1.1 reads on as true


def steps(name: str, job: str) -> list[Step]:
    if name == "github-actions.yml":
        found = [
            Step(step["run"], step.get("env", {}))
            for step in document(name)["jobs"][job]["steps"]
            if "run" in step
        ]
    else:
        whole = document(name)
        one = {**whole.get(whole[job].get("extends", ""), {}), **whole[job]}
        lines = [*one.get("before_script", ()), *one["script"], *one.get("after_script", ())]
        found = [Step(line, {}) for line in lines]
    return [
        step
        for step in found
        if "pip install" not in step.script and not step.script.startswith("python3 -m venv")
    ]


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_keeps_to_the_schema(name: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[name], str(CI / name)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


class Runner:
    """A checkout of somebody's project, in which the steps of a job run as the systems run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ci").mkdir(parents=True)
        (folder / ".venv/bin").mkdir(parents=True)
        shutil.copy(CI / "nightly.sh", folder / "ci")
        self.program(".venv/bin/etcdfix", f'exec {shlex.quote(sys.executable)} -m etcdfix "$@"')
        self.program(".venv/bin/python", f'exec {shlex.quote(sys.executable)} "$@"')
        self.variables: dict[str, str] = {}
        self.code, self.said = 0, ""

    def program(self, name: str, line: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def run(self, name: str, job: str) -> int:
        self.code, self.said = 0, ""
        for step in steps(name, job):
            given = {key: self._value(value) for key, value in step.variables.items()}
            surroundings = {
                "HOME": str(self.folder),
                "PATH": f"{self.folder / '.venv/bin'}:{os.environ['PATH']}",
                "PYTHONPATH": str(Path.cwd()),
                **(given or self._files()),
            }
            for variable in ("DOCKER_HOST", "ETCDFIX_TEST_ETCD"):
                if variable in os.environ:
                    surroundings[variable] = os.environ[variable]
            if self.code and "rm -f" not in step.script:
                continue
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.script],
                cwd=self.folder, env=surroundings, capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.said += done.stdout + done.stderr
            self.code = self.code or done.returncode
        return self.code

    def _value(self, expression: str) -> str:
        found = re.fullmatch(r"\$\{\{ secrets\.(\w+) \}\}", expression)
        assert found is not None, expression
        return self.variables[found[1]]

    def _files(self) -> dict[str, str]:
        paths = {}
        for key, text in self.variables.items():
            path = self.folder.with_name(f"{self.folder.name}-{key}")
            path.write_text(text)
            paths[key] = str(path)
        return paths


def configured(*keys: tuple[str, bytes]) -> str:
    return configuration_of_rules(
        (("secrets",), (provider("aesgcm", **dict(keys)), IDENTITY)), (("configmaps",), (KMS_V2, IDENTITY))
    ).decode()


@pytest.fixture
def runner(tmp_path: Path, fresh_etcd: EtcdServer) -> Iterator[Runner]:
    runner = Runner(tmp_path / "checkout")
    runner.variables["ENCRYPTION_CONFIG"] = configured(("key1", KEY))
    (tmp_path / "enc.yaml").write_text(runner.variables["ENCRYPTION_CONFIG"])
    for name in ("web", "db"):
        at = f"/registry/secrets/shop/{name}"
        store(fresh_etcd, at, secret(name, "shop", {"a": b"never-to-be-shown"}), config=tmp_path / "enc.yaml")
    yield runner
    assert "never-to-be-shown" not in runner.said
    assert "MDEyMzQ1Njc4OWFiY2RlZg" not in runner.said
    assert not [
        path for path in runner.folder.rglob("*") if path.name in {"snapshot.db", "enc.yaml", "new.yaml"}
    ]


@pytest.fixture
def save(runner: Runner, tmp_path: Path, fresh_etcd: EtcdServer) -> Callable[[], None]:
    def save() -> None:
        # Without users and TLS: etcdctl of any release takes these arguments.
        fresh_etcd.etcdctl("snapshot", "save", tmp_path / "newest.db")
        runner.program("ci/fetch-snapshot", f'cp {shlex.quote(str(tmp_path / "newest.db"))} "$1"')

    save()
    return save


def in_the_report(runner: Runner) -> str:
    return ET.tostring(ET.parse(runner.folder / "etcdfix.xml").getroot(), encoding="unicode")


@pytest.mark.etcd
@pytest.mark.parametrize("name", some([*SCHEMAS], of=2))
def test_nights(
    name: str, runner: Runner, save: Callable[[], None], fresh_etcd: EtcdServer, tmp_path: Path
) -> None:
    assert runner.run(name, "nightly") == 2  # there is no baseline yet
    assert "NOTHING WAS CHECKED" in runner.said
    assert not (runner.folder / "etcdfix.xml").exists()
    subprocess.run(
        [runner.folder / ".venv/bin/etcdfix", "scan", "--snapshot", tmp_path / "newest.db", "--encryption-config",
         tmp_path / "enc.yaml", "-o", "json", "--output-file", runner.folder / "ci/known.json"], check=True,
    )  # fmt: skip
    assert runner.run(name, "nightly") == 0, runner.said
    assert "<failure" not in in_the_report(runner)

    plant(fresh_etcd, "/registry/secrets/shop/web", Damage.CIPHERTEXT_BIT, config=tmp_path / "enc.yaml")
    save()
    assert runner.run(name, "nightly") == 1
    assert "FINDINGS" in runner.said
    assert "<failure" in in_the_report(runner)
    assert "/registry/secrets/shop/web" in in_the_report(runner)
    fresh_etcd.put(b"/registry/configmaps/shop/of-kms", b"k8s:enc:kms:v2:prov:" + kms_v2_body(b"x" * 100))
    save()
    assert runner.run(name, "nightly") == 3
    assert "INCOMPLETE" in runner.said
    assert "could not be written" not in runner.said
    assert "<error" in in_the_report(runner)

    runner.program("ci/fetch-snapshot", "echo the storage is away >&2; exit 7")
    assert runner.run(name, "nightly") == 7


@pytest.mark.etcd
@pytest.mark.parametrize("name", SCHEMAS)
def test_what_a_new_configuration_would_do(name: str, runner: Runner, save: Callable[[], None]) -> None:
    for keys, code in (((("key2", OTHER), ("key1", KEY)), 0), ((("key2", OTHER),), 1)):
        runner.variables["NEW_ENCRYPTION_CONFIG"] = configured(*keys)
        assert runner.run(name, "what-if") == code, runner.said
    assert "/registry/secrets" in runner.said or "secrets" in runner.said
    runner.variables["NEW_ENCRYPTION_CONFIG"] = "kind: SomethingElse\n"
    assert runner.run(name, "what-if") not in {0, 3}
