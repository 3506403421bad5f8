"""How Go reads and writes: JSON, YAML, base64, times."""
