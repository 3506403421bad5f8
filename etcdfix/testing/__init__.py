"""For tests that have to do with Kubernetes' data in etcd: a real etcd, an assertion, and damage to plant.

The extra ``testing`` brings what this needs. It is the only part of etcdfix that writes whatever it is told to, and
nothing else of the package imports it. See ``docs/testing.md``.
"""
