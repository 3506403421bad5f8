"""A thin etcd v3 client that can only read.

``endpoints`` and ``tls`` turn options into addresses and credentials, ``channel`` holds the allow-list,
``failures`` sorts what can go wrong, ``client`` speaks to several members as to one, ``paging`` and ``history``
are the two ways of reading much.
"""

from __future__ import annotations
