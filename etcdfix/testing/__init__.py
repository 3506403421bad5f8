"""For tests that have to do with Kubernetes' data in etcd: a real etcd, an assertion, and damage to plant.

The extra ``testing`` brings what this needs. It is the only part of etcdfix that writes whatever it is told to, and
nothing else of the package imports it. See ``docs/testing.md``. A name is imported when it is first used: a suite that
only loads the plugin does not wait for ciphers and decoders.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etcdfix.testing.certificates import CertificateAuthority, CertificateFiles
    from etcdfix.testing.damage import Damage, Way
    from etcdfix.testing.objects import config_map, json_object, pod, secret
    from etcdfix.testing.places import NoEtcdError
    from etcdfix.testing.planting import Planted, plant, store
    from etcdfix.testing.readable import NotAllReadable, assert_all_readable
    from etcdfix.testing.sealing import DoesNotFit
    from etcdfix.testing.servers import EtcdServer, EtcdServers
    from etcdfix.testing.writes import ClientFiles

__all__ = [
    "CertificateAuthority",
    "CertificateFiles",
    "ClientFiles",
    "Damage",
    "DoesNotFit",
    "EtcdServer",
    "EtcdServers",
    "NoEtcdError",
    "NotAllReadable",
    "Planted",
    "Way",
    "assert_all_readable",
    "config_map",
    "json_object",
    "plant",
    "pod",
    "secret",
    "store",
]

_MODULES: Final = {
    "certificates": (
        "CertificateAuthority",
        "CertificateFiles",
    ),
    "writes": ("ClientFiles",),
    "damage": (
        "Damage",
        "Way",
    ),
    "sealing": ("DoesNotFit",),
    "servers": (
        "EtcdServer",
        "EtcdServers",
    ),
    "places": ("NoEtcdError",),
    "readable": (
        "NotAllReadable",
        "assert_all_readable",
    ),
    "planting": (
        "Planted",
        "plant",
        "store",
    ),
    "objects": (
        "config_map",
        "json_object",
        "pod",
        "secret",
    ),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
