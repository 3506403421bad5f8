from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.clusterlist import ListedCluster, load_cluster_list

LINE = "alpha\tsnapshots/alpha.db\tconfigs/alpha.yaml\tbaselines/alpha.json\n"


def load(tmp_path: Path, text: str | bytes) -> tuple[ListedCluster, ...]:
    path = tmp_path / "clusters.tsv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_cluster_list(path)


def test_a_line_is_a_cluster_and_its_number_its_index(tmp_path: Path) -> None:
    found = load(tmp_path, LINE + "b2-c\t/mnt/ein schnappschuss.db\t-\t-\n")
    assert found == (
        ListedCluster(
            0, "alpha", Path("snapshots/alpha.db"), Path("configs/alpha.yaml"), Path("baselines/alpha.json")
        ),
        ListedCluster(1, "b2-c", Path("/mnt/ein schnappschuss.db"), None, None),
    )
    assert [cluster.report_name for cluster in found] == ["alpha.json", "b2-c.json"]


def test_the_last_line_needs_no_line_feed(tmp_path: Path) -> None:
    assert len(load(tmp_path, LINE + "beta\tb.db\t-\t-")) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it names no cluster"),
        (LINE + "\n" + "beta\tb.db\t-\t-\n", "line 2: it is empty"),
        (LINE + "\n", "line 2: it is empty"),
        ("\n", "line 1: it is empty"),
        (" \t \t \t \n", "line 1: it is empty"),
        ("# clusters\n" + LINE, "line 1: it is a comment"),
        (LINE + "  # beta\tb.db\t-\t-\n", "line 2: it is a comment"),
        (LINE.replace("\n", "\r\n"), "line 1: it ends with a carriage return"),
        ("alpha a.db - -\n", "line 1: it has 1 field, expected 4"),
        ("alpha\ta.db\t-\n", "line 1: it has 3 fields, expected 4"),
        ("alpha\ta.db\t-\t-\t-\n", "line 1: it has 5 fields, expected 4"),
        ("alpha\ta.db\t\t-\n", "line 1: the configuration is empty"),
        ("alpha\t a.db\t-\t-\n", "line 1: the snapshot is empty, or has a space"),
        ("alpha\ta\x1b[2J.db\t-\t-\n", r"line 1: the snapshot has a character that cannot be seen: 'a\x1b[2J.db'"),
        ("alpha\ta\rb.db\t-\t-\n", "line 1: the snapshot has a character that cannot be seen"),
        ("alpha\ta\u2028b.db\t-\t-\n", "line 1: the snapshot has a character that cannot be seen"),
        ("\ufeff" + LINE, "line 1: the name has a character that cannot be seen"),
        ("alpha\t-\t-\t-\n", "line 1: it names no snapshot"),
        (LINE + LINE, "line 2: the name alpha stands in line 1 already"),
        ("Alpha\ta.db\t-\t-\n", "line 1: the name 'Alpha' is none for a report's file"),
        ("../alpha\ta.db\t-\t-\n", "line 1: the name '../alpha' is none"),
        ("-\ta.db\t-\t-\n", "line 1: the name '-' is none"),
        ("-o\ta.db\t-\t-\n", "line 1: the name '-o' is none"),
        ("a.b\ta.db\t-\t-\n", "line 1: the name 'a.b' is none"),
        ("a" * 64 + "\ta.db\t-\t-\n", "line 1: the name"),
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, text)
    assert said in refused.value.message
    assert refused.value.message.isprintable()
    assert "BASELINE" in refused.value.hint


def test_what_is_no_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"line 2 is not UTF-8 \(byte"):
        load(tmp_path, LINE.encode() + b"b\xff\tb.db\t-\t-\n")


def test_a_list_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--clusters .*nothing: No such file"):
        load_cluster_list(tmp_path / "nothing")
