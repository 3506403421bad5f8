"""What is saved from the memory of API servers: where it is kept, and how that is recorded."""
