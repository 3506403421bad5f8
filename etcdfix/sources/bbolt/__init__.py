"""bbolt, the file format under etcd, read only: layouts, a bounded tree walk, an integrity check."""
