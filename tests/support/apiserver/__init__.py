"""A stand-in for kube-apiserver 1.36.2, written from recordings of a real one.

It is a real HTTPS server over a real etcd (:class:`EtcdStore`), the database of kine (:class:`KineStore`) or a
dictionary (:class:`MemoryStore`). It answers what etcdfix asks: reads and lists from a watch cache in memory or from
etcd, reviews, merge patches that start from memory; its EncryptionConfiguration can be replaced while it runs. What it
answers is compared with the recordings in ``tests/vectors/test_apiserver_http.py``: where the two differ, the
recordings are right.

Example::

    with StandIn(authority, store=EtcdStore(etcd.endpoint), configuration=yaml_bytes) as server:
        key = server.create("v1", "Secret", "web", "shop", data={"password": "c2VjcmV0"})
        server.reload(other_yaml)            # the key is lost, the cache stays
        kubeconfig = server.kubeconfig(folder)
        ...
        assert {request.method for request in server.requests} == {"GET"}
"""

from __future__ import annotations

from tests.support.apiserver.answers import Answer
from tests.support.apiserver.https import TOKEN
from tests.support.apiserver.process import Behaviour
from tests.support.apiserver.requests import Request
from tests.support.apiserver.standin import StandIn
from tests.support.apiserver.store import EtcdStore, KineStore, MemoryStore

__all__ = ["TOKEN", "Answer", "Behaviour", "EtcdStore", "KineStore", "MemoryStore", "Request", "StandIn"]
