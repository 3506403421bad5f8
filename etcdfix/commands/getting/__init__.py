"""What the command get says and writes."""
