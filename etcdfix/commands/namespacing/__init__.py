"""What to do about a namespace that cannot finish deleting."""
