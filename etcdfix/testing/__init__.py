"""For tests that have to do with Kubernetes' data in etcd; the extra ``testing`` brings what they need.

The only part of etcdfix that writes whatever it is told to, and nothing else of the package imports it.
"""

from __future__ import annotations
