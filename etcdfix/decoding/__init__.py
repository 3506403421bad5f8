"""From plaintext to an object, by the rules of the API server."""
