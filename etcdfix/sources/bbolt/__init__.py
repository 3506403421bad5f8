"""bbolt, the file format under etcd, read only: layouts and a bounded tree walk."""
