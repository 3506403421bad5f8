"""The manifests of ``docs/deploy``, and their containers' commands as a kubelet would start them.

What a Pod mounts are directories of the test; what its image is made of is this source tree.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "docs" / "deploy"
MANIFESTS = sorted(DEPLOY.glob("*.yaml"))

Manifest = dict[str, Any]
_JOBS = ("Job", "CronJob")


def documents(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(path.read_text()))


def the_only(path: Path, kind: str) -> Manifest:
    (found,) = (document for document in documents(path) if document["kind"] == kind)
    return found


def job_spec(document: Manifest) -> Manifest:
    spec: Manifest = document["spec"]
    return spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec


def pod_template(document: Manifest) -> Manifest | None:
    """The metadata and spec of the Pods that a manifest makes; None where it makes none."""
    if document["kind"] == "Pod":
        return document
    template: Manifest | None = job_spec(document)["template"] if document["kind"] in _JOBS else None
    return template


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Put variables in place of ``$(NAME)``.

    Kubernetes ``third_party/forked/golang/expansion/expand.go``: ``$$`` is a dollar, an unknown name stays.
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


class PlayedPod:
    """A container of a Pod: its command, its environment, and where what it mounts is found here.

    Args:
        mounts: Names of volumes to directories of the test.
        index: Completion index of its Job, None for a Job without.
    """

    def __init__(
        self,
        document: Manifest,
        mounts: Mapping[str, Path],
        *,
        index: int | None = None,
    ) -> None:
        template = pod_template(document)
        assert template is not None
        (self.container,) = template["spec"]["containers"]
        self._mounts = {mount["mountPath"]: mounts[mount["name"]] for mount in self.container["volumeMounts"]}
        own = {
            variable["name"]: variable.get("value", "played") for variable in self.container.get("env", ())
        }
        if index is not None:  # as pkg/controller/job/indexed_job_utils.go adds it
            own["JOB_COMPLETION_INDEX"] = str(index)
        self._environment = {name: self.here(value) for name, value in own.items()}

    @property
    def arguments(self) -> list[str]:
        return [self.here(expand(word, self._environment)) for word in self.container["args"]]

    def here(self, text: str) -> str:
        """Put the test's directories in place of what is mounted."""
        mounted = "|".join(map(re.escape, self._mounts))
        return re.sub(rf"(?<![\w./-])({mounted})(?=/|\s|$)", lambda at: str(self._mounts[at[1]]), text)

    def run(self) -> tuple[int, str]:
        """Run it with no variable but its own and those of its image; return its exit code and its log."""
        image = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(REPOSITORY)}
        ended = subprocess.run(
            [sys.executable, "-m", "etcdfix", *self.arguments],
            env=image | self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return ended.returncode, (ended.stdout + ended.stderr).decode()


def pods() -> Iterator[tuple[str, Manifest, Manifest]]:
    """Every manifest that makes Pods: its name, itself, and the template of the Pods."""
    for path in MANIFESTS:
        for document in documents(path):
            template = pod_template(document)
            if template is not None:
                yield path.name, document, template
