"""What people type for a resource, and what it must never be taken for."""

from __future__ import annotations

import msgspec
import pytest

from etcdfix.model.errors import ConfigurationError
from etcdfix.model.resource_words import builtin_word, find_resources, require_resource
from etcdfix.model.storagekey import ResourcePrefix, builtin_directories, custom_directory


def custom(
    plural: str, kind: str = "", group: str = "example.com", singular: str = "", short: tuple[str, ...] = ()
) -> ResourcePrefix:
    return msgspec.structs.replace(
        custom_directory(group, plural), kind=kind, singular=singular, short_names=short, namespaced=True
    )


KNOWN = [
    *builtin_directories(),
    custom("widgets", "Widget", "a.example", short=("wd", "w")),
    custom("widgets", "Widget", "b.example", short=("wd",)),
    custom("services", "Service", "serving.knative.dev", short=("ksvc",)),
    custom("geese", "Goose", singular="goose", short=("gs",)),
    custom("people", "Human", singular="person"),
    custom("svc", "Thing", "things.example"),
    custom("policies", "Deploy", "pol.example"),
    custom("mimics", "Mimic", "mimic.example", short=("po", "secret", "pods", "mi")),
    custom("unreadables", group="lost.example"),
]


def named(word: str) -> list[str]:
    return [str(found.group_resource) for found in find_resources(word, KNOWN)]


def test_short_names_in_capitals_too() -> None:
    for directory in builtin_directories():
        for short in directory.short_names:
            if short not in {"po", "svc", "deploy"}:  # which a definition claims, see below
                assert named(short) == named(short.upper()) == [str(directory.group_resource)]


def test_every_built_in_goes_by_its_plural_its_kind_and_both_with_its_group() -> None:
    for directory in builtin_directories():
        group = f".{directory.group}"
        full = [str(directory.group_resource)]
        for word in (directory.resource, directory.kind, directory.kind.lower()):
            alone = [str(d.group_resource) for d in find_resources(word, builtin_directories())]
            assert alone == full, word
            assert named(f"{word}{group}") == full
            assert named(f"{word}.{directory.version}{group}") == full
            assert builtin_word(word) == full[0]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("secrets", ["secrets"]),
        ("deploy.apps", ["deployments.apps"]),
        ("Deployment.apps", ["deployments.apps"]),
        ("deployments.v1beta1.apps", ["deployments.apps"]),
        ("pods.", ["pods"]),
        ("ev.v1.events.k8s.io", ["events"]),
        ("geese", ["geese.example.com"]),
        ("Goose", ["geese.example.com"]),
        ("geese.v1alpha1.example.com", ["geese.example.com"]),
        ("person", ["people.example.com"]),
        ("human", ["people.example.com"]),
        ("unreadables", ["unreadables.lost.example"]),
        ("w", ["widgets.a.example"]),
        ("wd.b.example", ["widgets.b.example"]),
        ("", []),
        (".apps", []),
        ("deployments.extensions", []),
        ("deployments.v1x.apps", []),
        ("unreadable", []),
        ("deployment.v1.v1.apps", []),
    ],
)
def test_words(word: str, found: list[str]) -> None:
    assert named(word) == found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("services", ["services"]),  # a core resource keeps its plural, as at kubectl
        ("service", ["services"]),
        ("Service", ["services"]),
        ("service.serving.knative.dev", ["services.serving.knative.dev"]),
        ("pods", ["pods"]),  # whatever short name somebody gave a definition
        ("deployments", ["deployments.apps"]),
    ],
)
def test_nobody_takes_the_name_of_a_built_in(word: str, found: list[str]) -> None:
    assert named(word) == found


@pytest.mark.parametrize(
    ("word", "choices"),
    [
        ("po", ["pods", "mimics.mimic.example"]),
        ("secret", ["secrets", "mimics.mimic.example"]),
        ("svc", ["svc.things.example", "services"]),
        ("widgets", ["widgets.a.example", "widgets.b.example"]),
    ],
)
def test_what_names_two_resources_is_refused_with_words_that_name_one(word: str, choices: list[str]) -> None:
    assert sorted(named(word)) == sorted(choices)
    with pytest.raises(ConfigurationError, match="ambiguous") as caught:
        require_resource(word, KNOWN)
    assert caught.value.hint == f"name one of: {', '.join(sorted(choices))}"
    for choice in choices:
        assert [str(d.group_resource) for d in require_resource(choice, KNOWN)] == [choice]


def test_a_definition_that_claims_a_built_in_name_makes_nothing_ambiguous() -> None:
    stray = custom_directory("networking.k8s.io", "ingresses")
    for word in ("ingresses", "ingresses.networking.k8s.io", "ing", "Ingress"):
        assert len(require_resource(word, [*builtin_directories(), stray])) == 2


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("secrts", "did you mean secrets?"),
        ("geeze", "did you mean geese.example.com"),
        ("all", "name them: po,svc,deploy"),
        ("zzzzzzzz", "CustomResourceDefinition is in this etcd"),
    ],
)
def test_an_unknown_word_names_the_nearest_resource(word: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown resource") as caught:
        require_resource(word, KNOWN)
    assert hint in caught.value.hint


def test_what_is_no_built_in_stays_as_it_is_where_no_definition_was_read() -> None:
    assert builtin_word("gs.example.com") == "gs.example.com"
    assert builtin_word("po") == "pods"
