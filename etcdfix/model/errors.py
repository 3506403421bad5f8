"""The base of every exception of etcdfix, and those that more than one package raises.

A broken object is data and becomes a finding; an exception means that *we* could not do our part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar


def why(exc: OSError) -> str:
    """Return what the system says of a failed call, without the path that Python adds."""
    return exc.strerror or str(exc)


def aggregate(messages: Iterable[str]) -> str:
    """Join messages as ``k8s.io/apimachinery/pkg/util/errors`` does: each once, brackets around several."""
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


@dataclass(eq=False, repr=False)
class EtcdfixError(Exception):
    """Base of everything raised on purpose; facts are attributes, never only text.

    Attributes:
        code: Stable kebab-case name of the error, unique in the package.
        exit_code: What a command returns when this error ends it.
        hint: The one next step to take, or an empty string.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    message: str
    hint: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        return self.message


class EndedEarly(KeyboardInterrupt):
    """Raised in the main thread where a signal, or ``--timeout``, ends a command before its work is done.

    It is a ``KeyboardInterrupt``: whoever gives a partial result after Ctrl-C gives it after these too.

    Attributes:
        reason: What happened, as a clause: ``ended by SIGTERM``.
        exit_code: What the command returns when it has a partial result.
        bare_exit_code: What it returns when it has none.
        changed: Something was changed before, and told.
    """

    def __init__(
        self, reason: str, exit_code: int, bare_exit_code: int | None = None, *, changed: bool = False
    ) -> None:
        super().__init__(reason)
        self.changed = changed
        self.reason = reason
        self.exit_code = exit_code
        self.bare_exit_code = exit_code if bare_exit_code is None else bare_exit_code

    @property
    def by_clock(self) -> bool:
        """Whether ``--timeout`` was over, and no signal came."""
        return self.exit_code < 128  # which shells add to the number of a signal

    @classmethod
    def of(cls, exc: KeyboardInterrupt) -> EndedEarly:
        """Return an interruption as one of these; Ctrl-C comes as Python's own."""
        return exc if isinstance(exc, cls) else cls("interrupted", 130)


class ConfigurationError(EtcdfixError):
    """Raised when the EncryptionConfiguration or an option is invalid."""

    code = "configuration-invalid"
    exit_code = 2


class ObjectNotFound(EtcdfixError):
    """Raised when no namespace has an object of this name."""

    code = "object-not-found"
    exit_code = 5


class SourceError(EtcdfixError):
    """Raised when the source cannot be read."""

    code = "source-unreadable"
    exit_code = 5


class SourceUnreachable(SourceError):
    """Raised when no endpoint answered: nothing listens, TLS failed, or time ran out."""

    code = "source-unreachable"


@dataclass(eq=False, repr=False, kw_only=True)
class DecodeError(EtcdfixError):
    """Raised when plaintext does not decode to an object.

    ``message`` is the API server's own wording, except for CBOR; data that the server would echo is replaced by
    ``<N bytes withheld>``.

    Attributes:
        offset: Byte in the plaintext where the decoder gave up, or None where that has no meaning.
        field_path: Path of field names down to the damage (``metadata.ownerReferences[2].uid``), or "".
    """

    code = "decode-failed"
    exit_code = 1
    offset: int | None = None
    field_path: str = ""


class RemediationRefused(EtcdfixError):
    """Raised when a change to the cluster is refused; nothing changed."""

    code = "remediation-refused"
    exit_code = 4


@dataclass(eq=False, repr=False, kw_only=True)
class RefusedByRule(RemediationRefused):
    """Raised when safety rules forbid the change.

    Attributes:
        rule: The rule that forbids the change, a word of :mod:`etcdfix.model.rules`; if several do, the first.
        lift: Options that would lift it; empty where nothing does.
        offer: The end of the hint that offers them; "" where it does not.
        also: What else forbids it, where all checks were asked.
        lifted: What to say of the command that no rule would refuse, a sentence; "" where not all checks were asked.
        command: That whole command; "" where there is none.
    """

    code = "refused-by-rule"
    rule: str
    lift: tuple[str, ...] = ()
    offer: str = ""
    also: tuple[RefusedByRule, ...] = ()
    lifted: str = ""
    command: str = ""

    @property
    def rules(self) -> tuple[str, ...]:
        """Every rule that forbids it, the first one first."""
        return tuple(dict.fromkeys(one.rule for one in (self, *self.also)))
