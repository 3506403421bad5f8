"""Pages of documents that no command made: very many rows, and text of somebody who means harm."""

from __future__ import annotations

from etcdfix.report.document import (
    Column,
    Document,
    Facts,
    Kind,
    Node,
    Prose,
    State,
    Status,
    Step,
    Steps,
    Table,
    Tree,
)
from etcdfix.text.commands import Command, Part, RunOptions

LARGE = 2_000
RUN = RunOptions(source=("--endpoints", "https://10.0.0.1:2379"))
HOSTILE = (
    "<img src=x onerror=document.title='x'>",
    "</script><script>document.title='x'</script>",
    "a'b\"c`d --><!--",
    "javascript:alert(1)",
    "{{7*7}}{%x%}",
    "\u202egnp.exe\u200b",
    "\x1b[2J\0",
)
_KEYS = (
    Column("OBJECTS", Kind.NUMBER),
    Column("CAUSE"),
    Column("WHAT TO DO", Kind.COMMAND),
    Column("KEY", Kind.KEY),
)


def _command(*words: str) -> Command:
    return Command(("etcdfix", *words[:1], Part.SOURCE, *words[1:]))


def large() -> Document:
    """Return a document with many keys of several causes."""
    causes = ("key-name-missing", "protobuf-damaged", "value-truncated")
    rows = [
        (at, causes[at % 3], _command("explain", f"/registry/secrets/shop/web-{at:05}"),
         f"/registry/secrets/shop/web-{at:05}")
        for at in range(LARGE)
    ]  # fmt: skip
    return Document(
        status=Status(State.FINDINGS, "10,000 of 49,900 objects cannot be read"),
        about=Facts(facts=[("revision", "revision 589 of https://10.0.0.1:2379")]),
        stakes=["BREAKS NOW: LIST of secrets fails."],
        next=Step("Save what API servers still hold", _command("rescue", "secrets", "--kubeconfig", "FILE")),
        sections=[
            Table(title="Keys", columns=_KEYS, rows=rows, total=LARGE + 5, noun="key"),
            Steps(steps=[Step("Look", _command("doctor"), "It only reads.")]),
            Facts(title="Counts", facts=[("readable", "39,900")], wide=True),
            Prose(title="Bytes", paragraphs=["0000  6b 38 73"], verbatim=True, wide=True),
            Tree(title="Users", nodes=[Node("Secret", [Node("Pod")])], wide=True),
        ],
    )


def hostile() -> Document:
    """Return a document in which every text tries to get out of its place."""
    text = " ".join(HOSTILE)
    rows = [(at, one, Command(text=one), one) for at, one in enumerate(HOSTILE)]
    return Document(
        status=Status(State.FAILED, text),
        about=Facts(facts=[(text, text)]),
        stakes=[text],
        next=Step(text, Command(text=text), text),
        sections=[
            Table(title=text, columns=_KEYS, rows=rows, noun="key"),
            Steps(title=text, steps=[Step(text, Command(text=text), text)]),
            Facts(title=text, facts=[(text, text)]),
            Prose(title=text, paragraphs=[text], verbatim=True),
            Tree(title=text, nodes=[Node(text, [Node(text)])]),
        ],
    )
