"""The published shape of a cause's page, and of the list of causes (``etcdfix/v1``), with their documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from etcdfix.report.document import Column, Document, Facts, Prose, State, Status, Step, Table
from etcdfix.report.model import PublishedReport
from etcdfix.text.commands import Command

_BRIEF: Final = "How to be sure"
_LINK: Final = re.compile(r"\[([^\]]*)\]\((?:\.\./)*([^)]*)\)")
_STRONG: Final = re.compile(r"(?<![\w*])\*{1,2}([^*]+)\*{1,2}(?![\w*])")
_DELETABLE: Final = {
    "not-broken": "no: correct or delete it through the API",
    "unproven": "no: nothing is proven",
    "curable": "no: change the configuration",
    "declarable": "only with `--declare-key-lost`",
    "moved": "only while the right etcd key holds the object",
    "never": "no",
    "deletable": "yes, as the last resort",
}
_SEVERITIES: Final = {
    "breaks-now": "LIST and WATCH fail",
    "breaks-at-restart": "a restarted API server is not ready",
    "one-object": "only users of this object notice",
}


class CauseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue says of one cause.

    Attributes:
        meaning: What happened, for a person who has never seen it.
        proof: What was checked before it was said.
        severities: How bad a value with it can be; empty where nothing is proven wrong.
        deletability: How a value with it stands towards its deletion, by its cause alone.
        curable_by_configuration: Changing the configuration makes the object readable again.
        server_messages: Parts of lines in an API server's log, to search for.
    """

    cause: str
    title: str
    meaning: str
    proof: str
    outcomes: list[str]
    severities: list[str]
    deletability: str
    curable_by_configuration: bool
    server_messages: list[str]

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what the head of its page says, name and value."""
        yield "Outcome", ", ".join(f"`{outcome}`" for outcome in self.outcomes)
        severity = "; ".join(f"`{severity}` ({_SEVERITIES[severity]})" for severity in self.severities)
        if severity and self.curable_by_configuration and self.cause != "crd-version-missing":
            severity += " under this configuration"
        yield "Severity", severity or "none: nothing is proven wrong"
        yield "May be deleted", _DELETABLE[self.deletability]
        yield "Proof", self.proof


class PageSection(msgspec.Struct, frozen=True):
    """One part of a page.

    Attributes:
        title: ``How to be sure`` or ``What to do``.
    """

    title: str
    text: str


class CausePage(PublishedReport, frozen=True, kw_only=True):
    """The page of one cause.

    Attributes:
        about: What the catalogue says of it.
        sections: What people wrote about it, in the order of the page.
    """

    kind: str = "CausePage"
    about: CauseFacts
    sections: list[PageSection]

    def document(self) -> Document:
        """Return what the catalogue says and how to be sure; the rest of the page is wide."""
        about = self.about
        messages = [
            Prose(title="In the API server's log", paragraphs=about.server_messages, verbatim=True, wide=True)
        ]
        return Document(
            status=Status(State.OK, f"{about.cause}: {about.title}"),
            stakes=[about.meaning],
            next=Step(
                "Read what to do",
                Command(("etcdfix", "explain", about.cause, "-o", "wide")),
            ),
            sections=[
                Facts(facts=[*about.facts()]),
                *(messages if about.server_messages else ()),
                *(
                    Prose(
                        title=section.title,
                        paragraphs=[*_plain_lines(section.text)],
                        verbatim=True,
                        wide=section.title != _BRIEF,
                    )
                    for section in self.sections
                ),
            ],
        )


class CauseList(PublishedReport, frozen=True, kw_only=True):
    """All causes."""

    kind: str = "CauseList"
    causes: list[CauseFacts]

    def document(self) -> Document:
        """Return a line for each cause."""
        rows = [(about.cause, about.title) for about in self.causes]
        return Document(
            status=Status(State.OK, f"{len(rows)} causes are known"),
            next=Step("Read the page of one", Command(("etcdfix", "explain", "CAUSE"))),
            sections=[
                Table(
                    columns=(Column("CAUSE"), Column("WHAT", folds=True)), rows=rows, noun="cause", brief=17
                )
            ],
        )


def _plain_lines(markdown: str) -> Iterator[str]:
    """Yield a page's lines without the marks of Markdown, and with its commands indented."""
    in_block = False
    for line in _LINK.sub(r"\1 (docs/\2)", markdown).split("\n"):
        if line.strip().startswith("```"):
            in_block = not in_block
        elif in_block:
            yield f"    {line.strip()}".rstrip()
        else:
            yield _STRONG.sub(r"\1", line)
