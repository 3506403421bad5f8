"""Whose namespace `kubectl etcdfix get` takes: that of the current context, and no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etcdfix.errors import KubeconfigInvalid
from etcdfix.inputs.kubeconfig import ContextNamespace, context_namespace

TWO = """
apiVersion: v1
kind: Config
current-context: night
contexts:
- name: day
  context: {namespace: pay, cluster: c, user: u}
- name: night
  context: {namespace: shop, cluster: c, user: u}
- name: night
  context: {namespace: other}
users:
- name: u
  user: {token: never-to-be-shown}
"""


def found(tmp_path: Path, *texts: str | None) -> ContextNamespace | None:
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"config-{number}")
        if text is not None:
            paths[-1].write_text(text)
    return context_namespace({"KUBECONFIG": os.pathsep.join(map(str, paths)), "HOME": "/nowhere"})


def test_the_namespace_of_the_current_context(tmp_path: Path) -> None:
    assert found(tmp_path, TWO) == ContextNamespace("shop", "night", tmp_path / "config-0")


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [None],
        [""],
        ["{}"],
        ["[]"],
        ["current-context: ''\n"],
        ["current-context: 5\n"],
        ["current-context: a\ncontexts: [{name: a}]\n"],
        ["current-context: a\ncontexts: [{name: a, context: {namespace: ''}}]\n"],
        ["current-context: a\ncontexts: [5, {name: a, context: {namespace: [x]}}]\n"],
    ],
)
def test_where_nobody_says_one_there_is_none(tmp_path: Path, texts: list[str | None]) -> None:
    assert found(tmp_path, *texts) is None


def test_of_several_files_the_first_that_says_something_counts(tmp_path: Path) -> None:
    day = "current-context: day\ncontexts: [{name: extra, context: {namespace: extra}}]\n"
    assert found(tmp_path, None, day, TWO) == ContextNamespace("pay", "day", tmp_path / "config-2")
    again = "contexts: [{name: night, context: {namespace: first}}]\n"
    assert found(tmp_path, again, TWO) == ContextNamespace("first", "night", tmp_path / "config-0")


def test_without_the_variable_it_is_the_file_at_home(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(TWO)
    here = context_namespace({"HOME": str(tmp_path), "KUBECONFIG": ""})
    assert here == ContextNamespace("shop", "night", tmp_path / ".kube" / "config")
    assert context_namespace({"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("current-context: gone\n", "the current context 'gone' does not exist"),
        ("a: [\n", "is not YAML"),
        (
            "current-context: a\ncontexts: [{name: a, context: {namespace: a/b}}]\n",
            "no namespace that could be",
        ),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_way_around(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(KubeconfigInvalid, match=words) as caught:
        found(tmp_path, text)
    assert caught.value.hint.startswith("-n NAMESPACE")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigInvalid) as caught:
        context_namespace({"KUBECONFIG": str(tmp_path)})
    assert str(tmp_path) in caught.value.message


def test_an_error_quotes_nothing_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigInvalid) as caught:
        found(tmp_path, TWO + "\n  - broken: [never-to-be-shown")
    assert "never-to-be-shown" not in str(caught.value.args)
