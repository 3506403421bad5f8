from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import StoredValue
from etcdfix.sources.base import MAX_PROBLEMS, ProblemList, Segment
from etcdfix.sources.connection import EtcdConnection, connection_from_options, transport_warnings
from etcdfix.sources.pages import values_of
from etcdfix.sources.several import SeveralSources
from tests.support.memory_source import MemorySource, stored

SECRET = "hunter2-of-the-test"

VARIABLES = {
    "ETCDCTL_ENDPOINTS": "https://a:1,b:2",
    "ETCDCTL_CACERT": "/env/ca",
    "ETCDCTL_CERT": "/env/cert",
    "ETCDCTL_KEY": "/env/key",
    "ETCDCTL_USER": "env-user",
    "ETCDCTL_PASSWORD": "env-password",
    "ETCDCTL_INSECURE_SKIP_TLS_VERIFY": "true",
    "ETCDCTL_DIAL_TIMEOUT": "3s",
    "ETCDCTL_COMMAND_TIMEOUT": "1m",
    "ETCDCTL_API": "2",
}


def test_every_variable() -> None:
    assert connection_from_options(environ=VARIABLES) == EtcdConnection(
        endpoints=("https://a:1", "b:2"),
        cacert="/env/ca",
        cert="/env/cert",
        key="/env/key",
        user="env-user",
        password="env-password",
        insecure_skip_tls_verify=True,
        dial_timeout_seconds=3.0,
        command_timeout_seconds=60.0,
    )


def test_flags_win_over_every_variable() -> None:
    flags: dict[str, Any] = {
        "endpoints": "c:3",
        "cacert": "/flag/ca",
        "cert": "/flag/cert",
        "key_file": "/flag/key",
        "user": "flag-user",
        "password": SECRET,
        "insecure_skip_tls_verify": False,
        "dial_timeout": "4s",
        "command_timeout": "5s",
    }
    assert connection_from_options(**flags, environ=VARIABLES) == connection_from_options(**flags, environ={})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ("a:1",)),
        (" a:1 , b:2,", ("a:1", "b:2")),
        ("a:1,a:1,b:2,a:1", ("a:1", "b:2")),
        (["a:1", "b:2,c:3"], ("a:1", "b:2", "c:3")),
    ],
)
def test_endpoints(given: str | list[str], expected: tuple[str, ...]) -> None:
    assert connection_from_options(endpoints=given, environ={}).endpoints == expected


USERS = [
    ({"user": "u:p"}, {}, ("u", "p")),
    ({"user": "u:p:q"}, {}, ("u", "p:q")),
    ({"user": "u:"}, {}, ("u", "")),
    ({"user": "u", "password": "p"}, {}, ("u", "p")),
    ({"user": "u:v", "password": "p"}, {}, ("u:v", "p")),
    ({"user": "u"}, {"ETCDCTL_PASSWORD": "p"}, ("u", "p")),
    ({"user": "u:p"}, {"ETCDCTL_PASSWORD": "other"}, ("u", "p")),
    ({}, {"ETCDCTL_USER": "u:p"}, ("u", "p")),
    ({}, {"ETCDCTL_USER": "u", "ETCDCTL_PASSWORD": "p"}, ("u", "p")),
    ({"password": "p"}, {"ETCDCTL_USER": "u"}, ("u", "p")),
    ({"password": "p"}, {"ETCDCTL_USER": "u", "ETCDCTL_PASSWORD": "other"}, ("u", "p")),
    ({}, {"ETCDCTL_PASSWORD": "p"}, (None, None)),
]


@pytest.mark.parametrize(("flags", "variables", "expected"), USERS)
def test_users(
    flags: dict[str, Any], variables: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    found = connection_from_options(**flags, environ=variables)
    assert (found.user, found.password) == expected


REFUSED: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"endpoints": ""}, {}, "--endpoints is empty"),
    ({"cert": "c"}, {}, "--cert is given without --key"),
    ({"key_file": "k"}, {}, "--key is given without --cert"),
    ({}, {"ETCDCTL_CERT": "c"}, "--cert is given without --key"),
    ({"password": SECRET}, {}, "--password is given without --user"),
    ({"user": "u"}, {}, "there is no password for etcd user 'u'"),
    ({"user": f":{SECRET}"}, {}, "--user has no name"),
    ({}, {"ETCDCTL_INSECURE_SKIP_TLS_VERIFY": "yes"}, "is 'yes', not true or false"),
    ({"dial_timeout": "5"}, {}, "--dial-timeout '5' is not a duration"),
    ({}, {"ETCDCTL_COMMAND_TIMEOUT": "soon"}, "--command-timeout 'soon' is not a duration"),
    ({"command_timeout": "0"}, {}, "is not between 0 and 24h"),
    ({"dial_timeout": "24h1ns"}, {}, "is not between 0 and 24h"),
]


@pytest.mark.parametrize(("flags", "variables", "expected"), REFUSED)
def test_options_that_make_no_sense(flags: dict[str, Any], variables: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        connection_from_options(**flags, environ=variables)
    assert expected in caught.value.message
    assert SECRET not in f"{caught.value!r} {caught.value.message} {caught.value.hint}"


def test_the_password_is_not_in_the_repr() -> None:
    connection = connection_from_options(user=f"u:{SECRET}", environ={})
    assert connection.password == SECRET
    assert SECRET not in repr(connection)
    assert "'u'" in repr(connection)


UNCHECKED = "TLS certificates are not checked"
IN_THE_CLEAR = "the password of etcd user 'u' is sent without TLS to "


@pytest.mark.parametrize(
    ("endpoints", "options", "expected"),
    [
        ("a:1", {}, []),
        ("http://a:1", {"user": None}, []),
        ("https://a:1", {"user": "u", "password": SECRET}, []),
        ("a:1", {"user": "u", "password": SECRET, "cacert": "ca"}, []),
        ("unix:///run/etcd.sock", {"user": "u", "password": SECRET}, []),
        ("a:1", {"user": "u", "password": SECRET}, [IN_THE_CLEAR + "a:1:"]),
        ("http://a:1", {"user": "u", "password": SECRET, "cacert": "ca"}, [IN_THE_CLEAR + "http://a:1:"]),
        ("https://a:1,http://b:2,http://c:3", {"user": "u", "password": ""}, [IN_THE_CLEAR + "http://b:2, http://c:3:"]),
        ("127.0.0.1:2379", {"user": "u", "password": SECRET}, [IN_THE_CLEAR + "127.0.0.1:2379:"]),
        ("https://a:1", {"insecure_skip_tls_verify": True}, [UNCHECKED]),
        ("a:1", {"insecure_skip_tls_verify": True, "cacert": "ca"}, [UNCHECKED]),
        ("http://a:1", {"insecure_skip_tls_verify": True}, []),
        (
            "https://a:1,http://b:2",
            {"insecure_skip_tls_verify": True, "user": "u", "password": SECRET},
            [UNCHECKED, IN_THE_CLEAR + "http://b:2:"],
        ),
    ],
)  # fmt: skip
def test_what_is_less_than_safe(endpoints: str, options: dict[str, Any], expected: list[str]) -> None:
    warnings = transport_warnings(EtcdConnection(endpoints=tuple(endpoints.split(",")), **options))
    assert len(warnings) == len(expected)
    assert all(found.startswith(start) for found, start in zip(warnings, expected, strict=True))
    assert SECRET not in "".join(warnings)


def test_a_command_of_etcdctl_repeats_how_one_connects_and_no_password() -> None:
    found = connection_from_options(environ=VARIABLES | {"ETCDCTL_USER": f"root:{SECRET}"})
    files = ("--cacert", "/env/ca", "--cert", "/env/cert", "--key", "/env/key")
    assert found.access_options == (*files, "--user", "root", "--insecure-skip-tls-verify")
    assert EtcdConnection(user=f"root:{SECRET}", password=SECRET).access_options == ("--user", "root")
    assert EtcdConnection().access_options == ()


EVENTS, LEASES = b"/registry/events/", b"/registry/leases/"


def values(*keys: str, revision: int) -> list[StoredValue]:
    return [stored(key, mod_revision=revision) for key in keys]


def several(said: list[str] | None = None) -> SeveralSources:
    main = MemorySource(
        values(
            "/a", "/registry/configmaps/x/a", "/registry/events/x/old", "/registry/pods/x/a", "/z", revision=5
        )
    )
    other = MemorySource(
        values(
            "compact_rev_key",
            "/registry/events/x/new",
            "/registry/leases/x/l",
            "/registry/pods/x/b",
            revision=70,
        )
    )
    return SeveralSources(
        main, {LEASES: other, EVENTS: other}, on_notice=(said if said is not None else []).append
    )


def keys(source: SeveralSources, prefix: bytes) -> list[tuple[str, int]]:
    return [(one.key.decode(), one.mod_revision) for one in source.current(prefix)]


def test_each_key_comes_from_its_own_etcd_in_the_order_of_all() -> None:
    said: list[str] = []
    source = several(said)
    assert keys(source, b"") == [
        ("/a", 5), ("/registry/configmaps/x/a", 5), ("/registry/events/x/new", 70),
        ("/registry/leases/x/l", 70), ("/registry/pods/x/a", 5), ("/z", 5),
    ]  # fmt: skip
    assert [one.key for one in values_of(source.pages(b""))] == [one.key for one in source.current(b"")]
    assert said[0].startswith("left out: 1 key of the main etcd")


def test_a_part_is_read_from_where_it_is() -> None:
    source = several()
    assert keys(source, EVENTS + b"x/") == [("/registry/events/x/new", 70)]
    assert keys(source, b"/registry/pods/") == [("/registry/pods/x/a", 5)]
    assert source.get(b"/registry/events/x/old") is None
    assert source.get(b"/registry/pods/x/b") is None
    assert source.get(b"/registry/leases/x/l") is not None


def test_what_was_overwritten_is_told_of_its_own_etcd_alone() -> None:
    assert {one.key for one in several().superseded()} <= {b"/registry/events/x/new", b"/registry/pods/x/a"}


def test_segments_tell_at_which_revision_of_its_own_each_was_read() -> None:
    source = several()
    list(source.current(b""))
    described = source.describe()
    assert not described.single_revision
    main = described.revision
    other = MemorySource(values("/registry/events/x/new", revision=70)).describe().revision
    at = {segment.from_key: segment.revision for segment in described.segments}
    assert (at["/registry/events/"], at["/registry/leases/"]) == (other, other)
    assert at["/registry/leases0"] == main
    assert list(described.segments) == sorted(described.segments, key=lambda segment: segment.from_key)


def test_a_segment_of_the_main_etcd_inside_another_ones_keys_counts_behind_them() -> None:
    class Compacted(MemorySource):
        def describe(self):  # type: ignore[no-untyped-def]
            moved = (Segment("", 5), Segment("/registry/events/x/m", 9))
            return msgspec.structs.replace(super().describe(), segments=moved)

    other = MemorySource(values("/registry/events/x/new", revision=70))
    source = SeveralSources(Compacted([]), {EVENTS: other}, on_notice=lambda _said: None)
    assert [(one.from_key, one.revision) for one in source.describe().segments] == [
        ("", 5),
        ("/registry/events/", other.describe().revision),
        ("/registry/events0", 9),
    ]


def test_distinct_problems_are_told_and_the_rest_counted() -> None:
    problems = ProblemList()
    for number in range(150):
        for _ in range(2):  # several walks meet the same damage
            problems.add(f"problem {number}")
    told = problems.sentences()
    assert told[:MAX_PROBLEMS] == [f"problem {number}" for number in range(MAX_PROBLEMS)]
    assert told[MAX_PROBLEMS:] == ["50 more problems like these were found"]
