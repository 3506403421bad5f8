"""What depends on an object: computed from everything in etcd that can still be read."""
