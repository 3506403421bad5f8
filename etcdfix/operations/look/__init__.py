"""What only looks."""
