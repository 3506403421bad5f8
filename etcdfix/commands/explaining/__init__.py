"""What ``explain`` says of one etcd key, part by part."""
