"""Where a KMS plugin listens: a URL as Go's ``net/url.Parse`` takes it, of which only the path of a socket counts.

Source: ``validation_encryption.go`` (the scheme must be unix) and ``ParseEndpoint`` of ``k8s.io/kms/pkg/util``.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

_ESCAPE = "%[0-9A-Fa-f]{2}"
_HOST = rf"""(?:[^\x00-\x20\x7f<>"\\^`{{}}|@%/?#]|{_ESCAPE})*"""
_PLAIN_HOST = _HOST.replace("@", "@:")
_USER = r"[A-Za-z0-9._~:!$&'()*+,;=%@-]*@"
_ENDPOINT = re.compile(
    rf"""(?i:unix):
    (?: (?:// (?:{_USER})? (?: \[{_HOST} | {_PLAIN_HOST} | {_HOST}:[0-9]* ) | (?!//) )
        (?P<path> (?: / (?:[^?\#%]|{_ESCAPE})* )? )
      | (?!/) [^?\#]* )
    (?: \?[^\#]* )? (?: \# (?:[^%]|{_ESCAPE})* )?""",
    re.VERBOSE | re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def socket_path(endpoint: str) -> str | None:
    """Return the path of the socket, ``@name`` for a Linux abstract one; "" for a URL without, None for no such URL."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or _CONTROL.search(endpoint):
        return None
    path = unquote_to_bytes(match["path"] or "").decode("utf-8", "surrogateescape")
    return path[1:] if path.startswith("/@") else path
