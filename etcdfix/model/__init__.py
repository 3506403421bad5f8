"""Values, storage keys, errors and rules: what every room knows."""
