"""What we ask API servers."""
