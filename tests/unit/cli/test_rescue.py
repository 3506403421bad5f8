"""What a rescue is told to save, where no etcd is read to find it."""

from __future__ import annotations

import pytest

from etcdfix.cli.rescue import _keys
from etcdfix.errors import ConfigurationError
from etcdfix.storagekey import StorageLayout


def keys(*words: str, namespace: str | None = None, prefix: str = "/registry") -> list[bytes]:
    return list(_keys(words, namespace, StorageLayout(prefix)))


def test_keys_and_objects_of_built_in_resources() -> None:
    assert keys("/registry/secrets/shop/db", "base64:L2E=") == [b"/registry/secrets/shop/db", b"/a"]
    assert keys("secret/db", "cm,svc/web", namespace="shop") == [
        b"/registry/secrets/shop/db",
        b"/registry/configmaps/shop/web",
        b"/registry/services/specs/shop/web",
    ]
    assert keys("no/one") == [b"/registry/minions/one"]
    assert keys("secret/db", namespace="shop", prefix="/kubernetes.io") == [b"/kubernetes.io/secrets/shop/db"]
    assert keys("/registry/pods/a/b", "secret/db", namespace="shop")[1] == b"/registry/secrets/shop/db"


@pytest.mark.parametrize(
    ("words", "namespace", "message"),
    [
        (["secret/db"], None, "secret/db: nobody said of which namespace"),
        (["secret/db"], "", "secret/db: nobody said of which namespace"),
        (["secret/db"], "a/b", "'a/b' is no name of a namespace"),
        (["no/one"], "shop", "nodes are not namespaced"),
        (["wd/one"], "shop", "unknown resource 'wd'"),
        (["secrets"], "shop", "'secrets' names no object"),
        (["registry/secrets/shop/db"], None, "names no object"),
        (["/registry/secrets/shop/db"], "shop", "-n goes with TYPE/NAME"),
        ([], "shop", "-n goes with TYPE/NAME"),
    ],
)
def test_what_is_no_key_is_refused(words: list[str], namespace: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        keys(*words, namespace=namespace)
