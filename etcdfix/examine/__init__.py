"""What etcd stores, decrypted, decoded and judged: one value, or all of them."""
