from __future__ import annotations

import pytest

from etcdfix.encryption.config_rules import socket_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("unix:///run/kms.sock", "/run/kms.sock"),
        ("UNIX:///run/kms.sock", "/run/kms.sock"),
        ("unix:/run/kms.sock", "/run/kms.sock"),
        ("unix:///@name", "@name"),
        ("unix:///run/a%20b?x=%zz#y%20", "/run/a b"),
        ("unix:///run/%ff", "/run/\udcff"),
        ("unix:////run//x", "//run//x"),
        ("unix://host/run", "/run"),
        ("unix://u:p@host:80/run", "/run"),
        ("unix://a:b:80/run", "/run"),
        ("unix://[::1]:80/x", "/x"),
        ("unix://host", ""),
        ("unix://", ""),
        ("unix:", ""),
        ("unix:run/kms.sock", ""),
        ("unix:?x", ""),
    ],
)
def test_endpoints(text: str, path: str) -> None:
    assert socket_path(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/run/kms.sock",
        "//host/path",
        "http:///run/kms.sock",
        "://x",
        "1unix:x",
        "unix:///a\x00",
        "unix:///a?\x7f",
        "unix://a b/x",
        "unix://a:b/x",
        "unix://a<@host/x",
        "unix:///%",
        "unix:///%g0",
        "unix:///x#%z",
        "unix://%zz/x",
    ],
)
def test_no_endpoints(text: str) -> None:
    assert socket_path(text) is None
