"""Encryption at rest: the API server's configuration, envelopes and ciphers, read-only.

``config`` reads the EncryptionConfiguration, ``envelope`` a value's prefix, ``transformer`` turns stored
bytes into plaintext. One module per provider (``identity``, ``aescbc``, ``aesgcm``, ``secretbox``, ``kms``).
"""

from __future__ import annotations
