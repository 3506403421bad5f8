"""Tables of fields, and keys by which an object may be meant without being named in full."""

from __future__ import annotations

import pytest

from etcdfix.graph.uses import SECRETS, Role, Rule, RuleTree, unscoped_keys


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"secrets/shop/db", {b"secrets/*/db", b"secrets/shop/*", b"secrets/*/*"}),
        (
            b"example.com/widgets/shop/w",
            {b"example.com/widgets/*/w", b"example.com/widgets/shop/*", b"example.com/widgets/*/*"},
        ),
        (b"storageclasses/fast", {b"storageclasses/*"}),
        (b"lonely", set()),
        (b"secrets/shop/\xff", {b"secrets/*/\xff", b"secrets/shop/*", b"secrets/*/*"}),
    ],
)
def test_unscoped_keys(key: bytes, expected: set[bytes]) -> None:
    assert set(unscoped_keys(key)) == expected


def test_rules_find_names_where_they_stand_and_nowhere_else() -> None:
    rules = (
        Rule("a[].b", "name", SECRETS, Role.ENV, "optional"),
        Rule("c", "secret", SECRETS, Role.VOLUME, "", "where", "nowhere"),
    )
    tree = RuleTree(rules, "spec")
    plain = {
        "a": [{"b": {"name": "outside"}}],
        "spec": {
            "a": [{"b": {"name": "x", "optional": True}}, {"b": {"name": ""}}, {"b": {"name": 1}}, "text"],
            "c": {"secret": "y"},
        },
    }
    (found,) = tree.find(plain, "shop")
    assert (found.key, found.use.optional) == ("secrets/shop/x", True)
    plain["spec"] = {"c": {"secret": "y", "where": "other"}}
    (found,) = tree.find(plain, "shop")
    assert (found.key, found.use.path) == ("secrets/other/y", "spec.c.secret")
    assert set(tree.paths) == {"spec.a[].b.name", "spec.a[].b.optional", "spec.c.secret", "spec.c.where"}
