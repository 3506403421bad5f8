"""One decoder for each release, shared by all tests: decoders are pure, and what they prepare takes milliseconds."""

from __future__ import annotations

from functools import cache

from etcdfix.decoding.storagecodecs import Decoder


@cache
def shared_decoder(kubernetes_minor: int | None = None) -> Decoder:
    return Decoder(kubernetes_minor)
