"""What a case of the second exam is made of: a value and its neighbours, a configuration, a plugin."""

from __future__ import annotations

import base64
import random
from typing import Any, Final

from etcdfix.encryption.kms.envelopes import Failure
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import StoredValue
from tests.exam import corpus
from tests.exam.cases import PREFIX, Keyring, Part, Sealed, Secrets, _identity, seal
from tests.exam.corpus import Identity, Kind
from tests.support.objects import IDENTITY, configuration_of_rules

PLAIN: Final = "identity"
LOCAL: Final = ("aescbc", "aesgcm", "secretbox")


class Ground:
    """What a case is made of; a kind of damage changes some of it before the values are written, or the value after.

    Attributes:
        home: The etcd key at which the value stands.
        written_at: The one that it was written under.
        held: Names and bytes of keys that the configuration has for the provider.
        elsewhere: The same, for other resources.
        covered: The configuration has the resource.
        own: It has the provider for it.
        with_identity: It has identity.
        given: There is a configuration at all.
        refusal: What the plugin says of what it does not know.
        knows: It knows anything.
        known: What it knows; None for what the value was written with.
        around: Values of the resource that are in order were written before and after.
        visible: There is a start of the plaintext by which the encryption key is known.
        allowed: The evidence allows to say what was done, else.
        also: Causes that say so too.
        crd: The definition of the custom resources is there.
        more: Other values in etcd.
    """

    def __init__(self, rng: random.Random, provider: str, kind: Kind) -> None:
        self.rng, self.provider, self.kind = rng, provider, kind
        self.identity = _identity(rng, kind)
        size = 32 if provider == "secretbox" or provider.startswith("kms") else rng.choice((16, 32))
        self.mine = Secrets(rng.randbytes(size), rng.randbytes(48))
        self.other = Secrets(rng.randbytes(size), rng.randbytes(48))
        self.name = "prov" if provider.startswith("kms") else "key1"
        self.home = self.written_at = kind.etcd_key(PREFIX, self.identity)
        self.held = [(self.name, self.mine.key)]
        self.elsewhere = [("key1", rng.randbytes(32))]
        self.covered = self.own = self.with_identity = self.given = True
        self.refusal = Failure("INVALID_ARGUMENT", "rpc error: code = InvalidArgument")
        self.knows = True
        self.known: Secrets | None = None
        self.around = rng.random() < 0.6
        self.visible = True
        self.crd = True
        self.text = corpus.filler(rng, rng.choice((200, 600, 3000)))
        self.more: list[StoredValue] = []
        self.allowed = True
        self.also: frozenset[Cause] = frozenset()

    def plaintext(self, identity: Identity) -> bytes:
        return self.kind.build(identity, self.text)

    def seal(self, plaintext: bytes, at: bytes) -> Sealed:
        if self.provider == PLAIN:
            return Sealed(plaintext, {"ciphertext": Part(0, len(plaintext))})
        return seal(self.rng, self.provider, self.name, plaintext, self.mine, at)

    def neighbours(self) -> list[StoredValue]:
        found = []
        for revision in (40, 60, 140, 160) if self.around else ():
            identity = self.identity._replace(name=f"n{revision}-{self.identity.name[:20]}")
            at = self.kind.etcd_key(PREFIX, identity)
            value = self.seal(self.kind.build(identity, self.text[:60]), at).value
            found.append(StoredValue(at, value, revision, revision, 1, 0))
        return found

    def configuration(self) -> bytes | None:
        if not self.given:
            return None
        providers: list[dict[str, Any]] = [self._provider(self.held)] if self.own else []
        if not self.own:
            providers.append(
                {"secretbox" if self.provider != "secretbox" else "aesgcm": self._keys([("key1", bytes(32))])}
            )
        providers += [IDENTITY] if self.with_identity else []
        other = "leases.coordination.k8s.io"
        rules: list[tuple[tuple[str, ...], tuple[dict[str, Any], ...]]] = [
            ((other,), (self._provider(self.elsewhere) if self.provider in LOCAL else IDENTITY,))
        ]
        if self.covered:
            rules.append(((self.kind.resource,), tuple(providers)))
        return configuration_of_rules(*rules)

    def _provider(self, held: list[tuple[str, bytes]]) -> dict[str, Any]:
        if self.provider.startswith("kms"):
            version = self.provider[4:6]
            return {"kms": {"apiVersion": version, "name": held[0][0], "endpoint": "unix:///run/kms.sock"}}
        return {self.provider if self.provider != PLAIN else "aesgcm": self._keys(held)}

    def _keys(self, held: list[tuple[str, bytes]]) -> dict[str, Any]:
        return {"keys": [{"name": name, "secret": base64.b64encode(key).decode()} for name, key in held]}

    def plugin(self) -> Keyring | None:
        if not self.provider.startswith("kms"):
            return None
        known = self.known or self.mine
        return Keyring({known.wrapped: known.key} if self.knows else {}, refusal=self.refusal)
