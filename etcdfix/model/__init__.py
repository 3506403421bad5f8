"""Values, storage keys, errors and rules: what every package knows."""
