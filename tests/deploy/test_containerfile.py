"""The Containerfile: what can be told without a registry to take its base from.

Built by hand over a base made of this machine's Python, and run read-only, without network and capabilities.
"""

from __future__ import annotations

import re
import tomllib

from tests.support.kubelet import DEPLOY, REPOSITORY, pods

Instruction = tuple[str, str]
LOCKS = ("docs/release/build-requirements.txt", "docs/release/requirements.txt")


def instructions() -> list[Instruction]:
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r" *\\\n *", " ", "\n".join(lines))
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.split("\n")) if word
    ]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for instruction in instructions():
        if instruction[0] == "FROM":
            found.append([])
        if found:
            found[-1].append(instruction)
    return found


def the_last(name: str) -> str:
    return [rest for word, rest in stages()[-1] if word == name][-1]


def test_it_runs_as_a_number_that_is_not_root_as_the_pods_do() -> None:
    user, group = map(int, the_last("USER").split(":"))
    for where, _, template in pods():
        context = template["spec"]["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (user, group), where
    assert user > 0


def commands() -> list[str]:
    return [
        command.strip()
        for stage in stages()
        for word, rest in stage
        if word == "RUN"
        for command in re.split(r"&&|;|\|", rest)
    ]


def test_all_that_is_installed_is_pinned_by_its_digest() -> None:
    taking = [
        set(command.split()) for command in commands() if re.search(r"\b(install|download|wheel)\b", command)
    ]
    for words in taking:
        if "-r" in words:
            assert "--require-hashes" in words
            assert words & set(LOCKS)
        else:  # from no index: what was copied, or built before
            assert {"--no-deps", "--no-index"} <= words
            assert "." not in words or "--no-build-isolation" in words
    assert sorted(lock for words in taking for lock in words & set(LOCKS)) == sorted(LOCKS)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["build-system"]["requires"] == ["hatchling"]
    assert re.search("^hatchling==", (REPOSITORY / LOCKS[0]).read_text(), re.MULTILINE)
