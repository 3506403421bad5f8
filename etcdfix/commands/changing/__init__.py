"""What commands that change one etcd key tell: before, and after."""
