"""etcdfix: find, explain and safely remove Kubernetes objects in etcd that cannot be read."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
