"""The audit log: written in a chain, searched and verified."""
