"""Objects stored as protobuf."""
