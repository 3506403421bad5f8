"""Commands to paste."""

from __future__ import annotations

import pytest

from etcdfix.text.commands import RepeatedOptions

ACCESS = ("--cacert", "ca", "--cert", "c", "--key", "k", "--user", "root")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ((), "etcdctl snapshot save FILE"),
        (("--snapshot", "old.db"), "etcdctl snapshot save FILE"),
        (
            ("--endpoints", "one:1,two:2", *ACCESS),
            "etcdctl --endpoints one:1 --cacert ca --cert c --key k --user root snapshot save FILE",
        ),
        (("--endpoints", "one:1", "--revision", "7"), "etcdctl --endpoints one:1 snapshot save FILE"),
        (("--user", "root", "--revision", "7"), "etcdctl --user root snapshot save FILE"),
    ],
)
def test_a_snapshot_is_saved_of_one_endpoint_as_it_stands_now(source: tuple[str, ...], expected: str) -> None:
    assert RepeatedOptions(source=source).save_snapshot() == expected


def test_etcdctl_asks_every_endpoint_and_knows_no_revision() -> None:
    again = RepeatedOptions(source=("--endpoints", "one:1,two:2", "--revision", "7", "--cacert", "my ca"))
    assert again.etcdctl("alarm", "list") == "etcdctl --endpoints one:1,two:2 --cacert 'my ca' alarm list"
    assert RepeatedOptions(source=("--snapshot", "old.db", "--salvage")).etcdctl("alarm", "list") == (
        "etcdctl alarm list"
    )
