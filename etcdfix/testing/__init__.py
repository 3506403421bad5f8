"""For tests that have to do with Kubernetes' data in etcd: a real etcd, an assertion, and damage to plant.

The extra ``testing`` brings what this needs. It is the only part of etcdfix that writes whatever it is told to, and
nothing else of the package imports it. See ``docs/testing.md``.
"""

from __future__ import annotations

from etcdfix.testing.certificates import CertificateAuthority, CertificateFiles
from etcdfix.testing.damage import Damage, Way
from etcdfix.testing.objects import config_map, json_object, pod, secret
from etcdfix.testing.places import NoEtcdError
from etcdfix.testing.plant import Planted, plant, store
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
