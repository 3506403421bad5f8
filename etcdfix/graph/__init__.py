"""What hangs on an object: computed from everything in etcd that can still be read."""
