"""etcd's write-ahead log as a source: what was written lately, compacted or not. Only reads; takes no lock."""
