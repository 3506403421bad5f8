"""The published shape of a cause's page, and of the list of causes (``etcdfix/v1``)."""

from __future__ import annotations

import msgspec

from etcdfix.report.model import API_VERSION


class CauseSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue says of one cause.

    Attributes:
        cause: Its code.
        title: A few words.
        meaning: What happened, for a person who has never seen it.
        proof: What was checked before it was said.
        outcomes: Outcomes that it can come with.
        severities: How bad a value with it can be; empty where nothing is proven wrong.
        deletability: How a value with it stands towards its deletion, by its cause alone.
        accept: The rules that may have to be accepted before such a value can be deleted.
        curable_by_configuration: Changing the configuration makes the object readable again.
        server_messages: Words of an API server, to be searched for in its log; empty where it has none of its own.
    """

    cause: str
    title: str
    meaning: str
    proof: str
    outcomes: list[str]
    severities: list[str]
    deletability: str
    accept: list[str]
    curable_by_configuration: bool
    server_messages: list[str]


class PageSection(msgspec.Struct, frozen=True):
    """One part of a page.

    Attributes:
        title: Of ``What you see``, ``What it means``, ``How to be sure``, ``What to do``, ``How to undo``, ``Fixture``
            and ``Test``.
        text: Markdown.
    """

    title: str
    text: str


class CausePage(msgspec.Struct, frozen=True, kw_only=True):
    """The page of one cause.

    Attributes:
        about: What the catalogue says of it.
        sections: What people wrote about it, in the order of the page.
    """

    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "CausePage"
    about: CauseSummary
    sections: list[PageSection]


class CauseList(msgspec.Struct, frozen=True, kw_only=True):
    """All causes.

    Attributes:
        causes: In the order of the catalogue.
    """

    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "CauseList"
    causes: list[CauseSummary]
