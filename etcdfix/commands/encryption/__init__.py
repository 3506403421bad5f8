"""What the encryption keys of a cluster are needed for, without a command line: nothing here writes to etcd."""
