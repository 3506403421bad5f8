"""The page of a cause, from what is installed: it needs no etcd, no configuration and no network."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

import etcdfix
from etcdfix.examine.verdicts.catalogue import CATALOGUE
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import deletability_of_cause
from etcdfix.examine.verdicts.server_messages import SERVER_MESSAGES
from etcdfix.examine.verdicts.severity import severities_of_cause
from etcdfix.model.errors import ConfigurationError
from etcdfix.report.cause import CauseFacts, CauseList, CausePage, PageSection
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.text.safetext import safe_text

_PACKAGE: Final = Path(etcdfix.__file__).parent
_INSTALLED: Final = _PACKAGE / "cause_pages"
# An editable installation reads them where they are written.
_IN_THE_SOURCES: Final = _PACKAGE.parent / "docs" / "causes"
_SECTION: Final = "\n## "
_LONGEST_WORD: Final = 60


def named_cause(word: str) -> Cause:
    """Return the cause that has this name.

    Raises:
        ConfigurationError: There is none; the nearest names are in the hint.
    """
    try:
        return Cause(word.lower())
    except ValueError as exc:
        close = difflib.get_close_matches(word.lower(), [cause.value for cause in Cause], n=3, cutoff=0.5)
        near = f"did you mean {' or '.join(close)}?" if close else "etcdfix explain lists all causes"
        shown = safe_text(word if len(word) <= _LONGEST_WORD else f"{word[:_LONGEST_WORD]}…")
        raise ConfigurationError(f"no cause is called {shown}", hint=near) from exc


def cause_list() -> CauseList:
    """Return what the catalogue says of every cause."""
    return CauseList(
        tool=TOOL, generated_at=timestamp(), causes=[cause_summary(cause) for cause in CATALOGUE]
    )


def cause_page(cause: Cause) -> CausePage:
    """Return the page of a cause.

    Raises:
        OSError: The installation lacks it.
    """
    folder = _INSTALLED if _INSTALLED.is_dir() else _IN_THE_SOURCES
    _head, *sections = (folder / f"{cause}.md").read_text(encoding="utf-8").split(_SECTION)
    return CausePage(
        tool=TOOL,
        generated_at=timestamp(),
        about=cause_summary(cause),
        sections=[
            PageSection(title, text.strip("\n")) for title, _, text in (s.partition("\n") for s in sections)
        ],
    )


def cause_summary(cause: Cause) -> CauseFacts:
    """Return what the catalogue says of a cause, and what follows from it."""
    info = CATALOGUE[cause]
    return CauseFacts(
        cause=cause.value,
        title=info.title,
        meaning=info.meaning,
        proof=info.proof,
        outcomes=[outcome.value for outcome in info.outcomes],
        severities=[severity.value for severity in severities_of_cause(cause)],
        deletability=deletability_of_cause(cause).value,
        curable_by_configuration=info.curable_by_configuration,
        server_messages=list(SERVER_MESSAGES[cause]),
    )
