"""A registry on which healthy values are to be deleted by mistake, or by force; whatever is tried, nothing may change.

Values are sealed as API servers seal them, under every provider, key name and etcd key that a test wants.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from etcdfix.cli.options import DELETION_RULES
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing import objects as stored_objects
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support import encoders
from tests.support.change_runs import Ran, Registry
from tests.support.objects import IDENTITY, configuration_of_rules, provider

# Test keys: they protect nothing.
TRUE, WRONG, OTHER = bytes(range(32)), bytes(range(100, 132)), bytes(range(200, 232))
LOCAL = ("aesgcm", "aescbc", "secretbox")
UID = b"12345678-90ab-cdef-1234-567890abcdef"


def every_flag_but(*rules: Rule, of: Sequence[Rule] = DELETION_RULES) -> tuple[str, ...]:
    """Return all that a deletion may accept, except these rules and that a key is lost."""
    more = (Rule.NO_API_SERVER, Rule.UNKNOWN_CLUSTER, Rule.UNKNOWN_RELEASE)
    return tuple(word for rule in (*of, *more) if rule not in rules for word in ("--accept", rule.value))


def without(flags: Sequence[str], word: str) -> list[str]:
    """Return flags without the one that accepts a rule."""
    at = flags.index(word)
    return [*flags[: at - 1], *flags[at + 1 :]]


EVERY_FLAG = every_flag_but()


def secret(name: str, *, size: int = 80) -> bytes:
    """Return a v1 Secret of namespace shop as protobuf, its uid as the API server makes them."""
    data = {"password": b"never-to-be-shown" + b"x" * size}
    return stored_objects.secret(name, "shop", data, uid=UID.decode())


def config_map(name: str) -> bytes:
    """Return a v1 ConfigMap of namespace shop as protobuf."""
    return stored_objects.config_map(name, "shop", uid=UID.decode())


def node(name: str, kubelet: str) -> bytes:
    """Return a v1 Node as protobuf that says which kubelet runs on it."""
    info = b"".join(block(number, b"x") for number in range(1, 7)) + block(7, kubelet.encode())
    meta = block(1, object_meta(name.encode(), b"", UID))
    return unknown(b"v1", b"Node", meta + block(2, b"") + block(3, block(7, info)))


def seal(
    kind: str,
    plaintext: bytes,
    etcd_key: bytes | str,
    key: bytes = TRUE,
    name: str = "key1",
    *,
    salt: object = "",
) -> bytes:
    """Return a value as a local provider writes it; equal arguments give equal bytes, other salts other nonces."""
    bound = etcd_key.encode() if isinstance(etcd_key, str) else etcd_key
    # Of the object's own name alone: a nonce that looks like more of a key's name must not come and go with the prefix.
    nonce = hashlib.sha256(b"%s %s" % (bound.rpartition(b"/")[2], str(salt).encode())).digest()
    return f"k8s:enc:{kind}:v1:{name}:".encode() + encoders.local_body(kind, plaintext, key, nonce, bound)


def of_one_name(kind: str, *materials: bytes) -> dict[str, Any]:
    """Return a provider whose keys all have the name key1."""
    return {kind: {"keys": [provider(kind, key1=one)[kind]["keys"][0] for one in materials]}}


class Attacked(Registry):
    """A registry with nothing but a kube-system to begin with, which sees every change in all of etcd."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, furnished=False)

    def rules(self, *rules: tuple[str, tuple[dict[str, Any], ...]]) -> None:
        """Write a configuration: the resource and the providers of each rule."""
        self.config.write_bytes(
            configuration_of_rules(*(((resource,), providers) for resource, providers in rules))
        )

    def keyed(self, kind: str, key: bytes = TRUE, name: str = "key1", *, resource: str = "secrets") -> None:
        """Write a configuration with one key and identity."""
        self.rules((resource, (provider(kind, **{name: key}), IDENTITY)))

    def secrets(
        self, kind: str, names: Iterable[str], key: bytes = TRUE, key_name: str = "key1"
    ) -> list[bytes]:
        """Store healthy Secrets under a local provider; return their etcd keys."""
        keys = {name: self.key(f"shop/{name}") for name in names}
        self.etcd.put_all((at, seal(kind, secret(name), at, key, key_name)) for name, at in keys.items())
        return list(keys.values())

    def keyspace(self) -> tuple[int, list[StoredValue]]:
        """Return etcd's revision, which every write anywhere moves, and all that the registry holds."""
        with LiveSource(EtcdConnection(endpoints=(self.etcd.endpoint,))) as source:
            found = list(source.current(self.prefix.encode()))
            return source.describe().revision, found

    @contextmanager
    def nothing_changes(self) -> Iterator[None]:
        """Assert that the block leaves all of etcd as it was, and makes no backup."""
        before, kept = self.keyspace(), sorted(self.backups.glob("*"))
        yield
        assert self.keyspace() == before
        assert sorted(self.backups.glob("*")) == kept

    def refuses(
        self,
        keys: Iterable[bytes],
        *arguments: str,
        rule: str = "",
        cause: str = "",
        accept: str = "",
        hint: str = "",
        **common: Any,
    ) -> list[Ran]:
        """Assert that none of the keys can be deleted, and that nothing changes.

        Args:
            rule: The rule that refuses it.
            cause: The cause that the refusal names; without a rule, the configuration alone can cure it.
            accept: The rule that refuses it, and that the printed next step accepts.
            hint: Stands in the next step.
        """
        rule = rule or accept or ("curable-by-configuration" if cause else "")
        found = []
        with self.nothing_changes():
            for key in keys:
                ran = self.delete(key, *arguments, "-o", "json", **common)
                document = json.loads(ran.out)
                refusal = document["refusal"]
                assert (ran.code, document["result"]) == (4, "refused"), ran
                assert refusal["rule"] == (rule or refusal["rule"]), refusal
                assert refusal["rule"] or refusal["code"] == "authorization-refused"
                assert cause in refusal["message"], refusal
                assert (f"--accept {accept}" if accept else hint) in ran.err, ran
                assert "never-to-be-shown" not in ran.out + ran.err
                found.append(ran)
        return found

    def verdict(self, key: bytes) -> str:
        """Return what a scan of one key finds, for who wants to know why a test fails."""
        arguments = ["--endpoints", self.endpoints, "--etcd-prefix", self.prefix, "--encryption-config"]
        return self.run("scan", key.decode(), *arguments, str(self.config), "-o", "yaml").out


def declared(name: str) -> tuple[str, ...]:
    """Return the flags that declare a key lost, where no API server is asked."""
    return ("--accept", "no-api-server", "--accept", "ends-cached-reads", "--declare-key-lost", name)
