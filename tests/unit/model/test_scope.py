from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from etcdfix.model.errors import ConfigurationError, ObjectNotFound
from etcdfix.model.scope import KeyRange, ResolvedScope, ScopeRequest, resolve_scope, split_words
from etcdfix.model.storagekey import ResourcePrefix, StorageLayout, builtin_directories, custom_directory

LAYOUT = StorageLayout()


def crd_directory(group: str, plural: str, *, namespaced: bool) -> ResourcePrefix:
    kind = plural.removesuffix("s").title()
    return msgspec.structs.replace(custom_directory(group, plural), kind=kind, namespaced=namespaced)


CUSTOM = [
    crd_directory("example.com", "widgets", namespaced=True),
    crd_directory("example.com", "planets", namespaced=False),
    crd_directory("other.example", "planets", namespaced=False),
    crd_directory("serving.knative.dev", "services", namespaced=True),
]


HELD = [
    b"/registry/configmaps/pay/web",
    b"/registry/configmaps/shop/web",
    b"/registry/configmaps/shop/web/web",
    b"/registry/configmaps/web",
    b"/registry/configmaps/web/db",
    b"/registry/example.org/gadgets/shop/web",
    b"/registry/example.org/gadgets/web",
    b"/registry/secrets/shop/db",
]


def keys_below(prefix: bytes) -> list[bytes]:
    return [key for key in HELD if key.startswith(prefix)]


def resolved(
    *arguments: str,
    keys: tuple[bytes, ...] = (),
    namespaces: tuple[str, ...] = (),
    custom: Sequence[ResourcePrefix] = CUSTOM,
) -> ResolvedScope:
    return resolve_scope(ScopeRequest(arguments, keys, namespaces), LAYOUT, custom, keys_below)


def ranges(*arguments: str, keys: tuple[bytes, ...] = (), namespaces: tuple[str, ...] = ()) -> list[KeyRange]:
    return resolved(*arguments, keys=keys, namespaces=namespaces).ranges


def below(*prefixes: str) -> list[KeyRange]:
    return [KeyRange(p.encode()) for p in prefixes]


def test_nothing_named_means_everything_and_not_only_the_storage_prefix() -> None:
    assert ranges() == [KeyRange(b"")]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["secrets"], ["/registry/secrets/"]),
        (["ingresses"], ["/registry/ingress/"]),
        (["services"], ["/registry/services/specs/"]),
        (["services.serving.knative.dev"], ["/registry/serving.knative.dev/services/"]),
        (["widgets"], ["/registry/example.com/widgets/"]),
        (["secrets", "pods", "secrets"], ["/registry/pods/", "/registry/secrets/"]),
        (
            ["po", "Secret", "deploy.v1.apps"],
            ["/registry/deployments/", "/registry/pods/", "/registry/secrets/"],
        ),
        # A prefix with its slash is taken as it is.
        (["/registry/secrets/shop/"], ["/registry/secrets/shop/"]),
        (["/"], ["/"]),
    ],
)
def test_resources(arguments: list[str], expected: list[str]) -> None:
    assert ranges(*arguments) == below(*expected)


def test_a_key_prefix_matches_whole_segments() -> None:
    found = ranges("/registry/secrets/shop")
    assert found == [KeyRange(b"/registry/secrets/shop", exact=True), KeyRange(b"/registry/secrets/shop/")]
    neighbour = b"/registry/secrets/shop2/web"
    assert not any(neighbour.startswith(r.prefix) for r in found if not r.exact)
    not_utf8 = b"/registry/secrets/\xff"
    assert ranges(not_utf8.decode("utf-8", "surrogateescape"))[0] == KeyRange(not_utf8, exact=True)


def test_namespaces_narrow_resources() -> None:
    assert ranges("secrets", "pods", namespaces=("shop", "pay")) == below(
        "/registry/pods/pay/", "/registry/pods/shop/", "/registry/secrets/pay/", "/registry/secrets/shop/"
    )
    assert ranges("widgets", namespaces=("shop",)) == below("/registry/example.com/widgets/shop/")


def test_a_namespace_alone_means_every_namespaced_resource() -> None:
    found = ranges(namespaces=("shop",))
    expected = {
        LAYOUT.directory_prefix(d) + b"shop/" for d in [*builtin_directories(), *CUSTOM] if d.namespaced
    }
    assert {r.prefix for r in found} == expected
    assert b"/registry/minions/shop/" not in expected
    assert b"/registry/example.com/widgets/shop/" in expected


def test_ranges_inside_others_are_read_once() -> None:
    assert ranges("secrets", "/registry/secrets/shop/", "/registry/secrets/shop/web") == below(
        "/registry/secrets/"
    )
    assert ranges("/registry", "pods", keys=(b"/registry/pods/a/b",)) == [
        KeyRange(b"/registry", exact=True),
        KeyRange(b"/registry/"),
    ]


@pytest.mark.parametrize(
    ("arguments", "namespaces", "message", "hint"),
    [
        (["secrts"], [], "unknown resource 'secrts'", "did you mean secrets?"),
        (["planets"], [], "resource 'planets' is ambiguous", "planets.example.com, planets.other.example"),
        (["nodes"], ["shop"], "nodes are not namespaced", "leave it out"),
        (["no/a"], ["shop"], "nodes are not namespaced", "leave it out"),
        (["po/a", "svc"], [], "po/a is one object, and svc all of a resource", "each as TYPE/NAME"),
        (["po/a", "/registry/x"], ["shop"], "goes with resources", "/registry/secrets/shop"),
        (["po/"], [], "'po/' names no object", "deploy/web"),
        (["po/a/b"], [], "'po/a/b' names no object", "deploy/web"),
        (["pox/a"], ["shop"], "unknown resource 'pox'", "did you mean pods"),
        (["po/a"], ["a/b"], "'a/b' is not a namespace name", "write it as -n NAME"),
        (["/registry/secrets"], ["shop"], "goes with resources", "/registry/secrets/shop"),
        (["secrets"], [""], "'' is not a namespace name", "write it as -n NAME"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], namespaces: list[str], message: str, hint: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ranges(*arguments, namespaces=tuple(namespaces))
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


UNREADABLE = custom_directory("example.org", "gadgets")


@pytest.mark.parametrize(
    ("arguments", "namespaces", "expected"),
    [
        (("gadgets",), (), b"/registry/example.org/gadgets/"),
        (("gadgets.example.org",), ("shop",), b"/registry/example.org/gadgets/shop/"),
        ((), ("shop",), b"/registry/example.org/gadgets/shop/"),
    ],
)
def test_a_definition_that_cannot_be_read_still_names_a_directory(
    arguments: tuple[str, ...], namespaces: tuple[str, ...], expected: bytes
) -> None:
    assert KeyRange(expected) in resolved(*arguments, namespaces=namespaces, custom=[UNREADABLE]).ranges


# Objects: nothing else may ever be named


def exactly(*keys: str) -> list[KeyRange]:
    return [KeyRange(key.encode(), exact=True) for key in keys]


@pytest.mark.parametrize(
    ("arguments", "namespaces", "keys"),
    [
        (("cm/web",), ("shop",), ["/registry/configmaps/shop/web"]),
        (("cm/web",), ("nowhere",), ["/registry/configmaps/nowhere/web"]),
        (("cm/web",), ("shop", "pay"), ["/registry/configmaps/pay/web", "/registry/configmaps/shop/web"]),
        (("cm/web",), (), ["/registry/configmaps/pay/web", "/registry/configmaps/shop/web"]),
        (("cm/web", "secret/db"), ("shop",), ["/registry/configmaps/shop/web", "/registry/secrets/shop/db"]),
        (("no/one",), (), ["/registry/minions/one"]),
        (("widget/a",), ("shop",), ["/registry/example.com/widgets/shop/a"]),
    ],
)
def test_an_object_is_its_etcd_key_and_no_other(
    arguments: tuple[str, ...], namespaces: tuple[str, ...], keys: list[str]
) -> None:
    request, found = resolved(*arguments, namespaces=namespaces)
    assert found == exactly(*keys)
    assert not request.everything
    assert not request.namespaces
    # As reports, and the commands in them, say it: read anew it is the same.
    assert sorted(request.words) == keys
    assert resolved(keys=request.keys).ranges == found


def test_an_object_may_stand_beside_a_prefix_of_keys() -> None:
    request, found = resolved("secret/db", "/registry/pods/")
    assert found == [*below("/registry/pods/"), *exactly("/registry/secrets/shop/db")]
    assert request == ScopeRequest(("/registry/pods/",), (b"/registry/secrets/shop/db",))


@pytest.mark.parametrize("word", ["cm/we", "cm/db2", "secret/web", "po/web", "gadget.example.com/web"])
def test_an_object_that_is_nowhere_never_becomes_a_scan_of_everything(word: str) -> None:
    with pytest.raises((ObjectNotFound, ConfigurationError)):
        resolved(word)
    with pytest.raises((ObjectNotFound, ConfigurationError)):
        resolved("secret/db", word)
    with pytest.raises(ObjectNotFound, match="cm/nix: no object of this name") as caught:
        resolved("cm/nix")
    assert (caught.value.exit_code, "-n NAMESPACE" in caught.value.hint) == (5, True)


def test_a_definition_that_cannot_be_read_leaves_open_where_an_object_is() -> None:
    found = resolved("gadgets/web", custom=[UNREADABLE]).ranges
    assert found == exactly("/registry/example.org/gadgets/shop/web", "/registry/example.org/gadgets/web")
    found = resolved("gadgets/web", namespaces=("shop",), custom=[UNREADABLE]).ranges
    assert found == exactly("/registry/example.org/gadgets/shop/web")


def test_a_name_that_is_not_utf8_reaches_etcd_unchanged() -> None:
    name = b"\xff".decode("utf-8", "surrogateescape")
    assert resolved(f"cm/{name}", namespaces=("shop",)).ranges == [
        KeyRange(b"/registry/configmaps/shop/\xff", exact=True)
    ]


def test_a_scope_is_said_in_full_names() -> None:
    request, _ = resolved("po", "deploy", "Pod", namespaces=("shop",))
    assert request == ScopeRequest(("pods", "deployments.apps"), (), ("shop",))
    assert ScopeRequest(("po", "gs", "cm/web", "/registry/x", "pods")).types == ("pods", "gs", "configmaps")


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("po", ["po"]),
        ("po,svc", ["po", "svc"]),
        ("po/web", ["po/web"]),
        ("po,svc/web", ["po/web", "svc/web"]),
    ],
)
def test_comma_lists(word: str, parts: list[str]) -> None:
    assert split_words(word) == parts


@pytest.mark.parametrize(
    "word", ["", ",", "po,", ",po", "po,,svc", "/web", "po,/web", "po/a,svc/b", "po,svc/a,b/c"]
)
def test_a_list_has_no_empty_words_and_no_objects(word: str) -> None:
    with pytest.raises(ConfigurationError, match=r"names no (resource|object)"):
        resolved(*split_words(word), namespaces=("shop",))
