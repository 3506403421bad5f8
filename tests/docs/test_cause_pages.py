"""Every cause has its page, and what stands there is true: its head and its commands.

The heads are made from the catalogue::

    ETCDFIX_UPDATE_SNAPSHOTS=1 pytest -n0 tests/docs/test_cause_pages.py
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from textwrap import wrap

import pytest

from etcdfix.cli.root import run
from etcdfix.commands.explaining.cause import cause_summary
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.server_messages import SERVER_MESSAGES

REPOSITORY = Path(__file__).parents[2]
PAGES = REPOSITORY / "docs" / "causes"
UPDATE = os.environ.get("ETCDFIX_UPDATE_SNAPSHOTS") == "1"
WIDTH = 80
SHOWN = 2


def head(cause: Cause) -> str:
    about = cause_summary(cause)
    lines = [
        f"# {cause}",
        "",
        *wrap(f"*{about.title[:1].upper()}{about.title[1:]}.* {about.meaning}", WIDTH - 1),
        "",
    ]
    first, others = about.server_messages[:SHOWN], about.server_messages[SHOWN:]
    log = ", ".join(f"`{text}`" for text in first) or "nothing specific"
    log += f" and {len(others)} more" if others else ""
    for name, text in (*about.facts(), ("API server log", log)):
        lines.append("\n  ".join(wrap(f"- **{name}:** {text}", WIDTH - 3, break_on_hyphens=False)))
    return "\n".join([*lines, ""])


def page(cause: Cause) -> str:
    return (PAGES / f"{cause}.md").read_text()


@pytest.mark.parametrize("cause", Cause)
def test_the_head_says_what_the_catalogue_says(cause: Cause) -> None:
    _, found, rest = page(cause).partition("\n## ") if (PAGES / f"{cause}.md").exists() else ("", "", "")
    if UPDATE:
        (PAGES / f"{cause}.md").write_text(head(cause) + found + rest)
    assert page(cause).partition("\n## ")[0] == head(cause)


def test_there_is_a_page_for_every_cause_and_no_other() -> None:
    assert {path.name for path in PAGES.iterdir()} == {f"{cause}.md" for cause in Cause}
    assert set(SERVER_MESSAGES) == set(Cause)


@pytest.mark.parametrize("cause", Cause)
def test_a_page_has_at_most_200_words(cause: Cause) -> None:
    assert len(page(cause).split()) <= 200


def commands(text: str) -> list[list[str]]:
    found = []
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            words = shlex.split(line.split("|")[0].split(" > ")[0])
            if words and words[0] == "etcdfix":
                found.append(words[1:])
    return found


READERS = frozenset({"copies", "explain", "get", "scan"})


@pytest.mark.parametrize("cause", Cause)
def test_what_reads_runs_on_a_snapshot(
    cause: Cause, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The keys of a page are not there: that is said, and nothing is wrong with the command itself."""
    alpha = REPOSITORY / "fixtures" / "snapshots" / "alpha"
    for name in ("enc.yaml", "copy.yaml"):
        (tmp_path / name).write_bytes((alpha / "config-lost.yaml").read_bytes())
    small = REPOSITORY / "fixtures" / "snapshots" / "small" / "history.db.gz"
    (tmp_path / "FILE").symlink_to(small)
    (tmp_path / "fixtures").symlink_to(REPOSITORY / "fixtures")
    monkeypatch.chdir(tmp_path)
    found = commands(page(cause))
    assert found
    for words in found:
        if words[0] not in READERS or "--manifest" in words or "--kms-endpoint" in words:
            continue
        options = [] if "--snapshot" in words else ["--snapshot", "FILE"]
        if "--endpoints" in words:
            at = words.index("--endpoints")
            words = words[:at] + words[at + 2 :]
        plugins = [] if "--no-kms" in words else ["--no-kms"]
        code = run([*words, *options, *plugins])
        told = capfd.readouterr().err
        assert code in {0, 1, 3, 5}, f"{words}: {told}"
        assert "internal error" not in told
