"""Built-ins stored as JSON."""
