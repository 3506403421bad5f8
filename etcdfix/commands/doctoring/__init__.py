"""The checks of ``etcdfix doctor`` that need more than a few lines: etcd itself, encryption keys, places, the API."""
