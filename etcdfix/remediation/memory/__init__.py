"""``fix --from memory``: an API server writes an object anew that etcd does not give any more, and it still holds."""
