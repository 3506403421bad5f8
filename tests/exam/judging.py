"""How a case is judged: by the library, as a deletion would, and then by what really was done to the value."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, NoReturn

import msgspec

from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.all import no_progress
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import FAILED, Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Confidence, Outcome
from etcdfix.model.rules import MEANINGS
from etcdfix.remediation.surroundings import SameKeyEvidence, look_at_all
from tests.exam import corpus
from tests.exam.cases import BETWEEN, CBC_PROVIDERS, UNDAMAGED, WRONG_KEYS, Case
from tests.exam.kinds_of_damage import CauseCase
from tests.support.checked_values import judged
from tests.support.memory_source import MemorySource, stored

LEAST_VISIBLE: Final = 16
_EVERY_RISK: Final = frozenset(MEANINGS)
# What shows whatever the key is: too short for its provider, or an envelope that a server rejects by itself.
_WHATEVER_THE_KEY: Final = frozenset({Cause.VALUE_TRUNCATED, Cause.KMS_ENVELOPE_DAMAGED})
_ON_PURPOSE: Final = frozenset({BETWEEN})

_NEEDS: Final[dict[Cause, frozenset[str]]] = {
    # A flipped bit in a KMS provider's name gives the value another name, and the provider opens it all the same.
    Cause.KEY_RENAMED: frozenset({"renamed", "name"}),
    Cause.VALUE_MOVED: frozenset({"moved"}),
    Cause.STORAGE_PREFIX_CHANGED: frozenset({"prefix"}),
    Cause.VALUE_TRUNCATED: frozenset({"cut"}),
    Cause.TEXT_MODE_DAMAGE: frozenset({"crlf"}),
    Cause.NONCE_DAMAGED: frozenset({"nonce", "info"}),
    Cause.IV_DAMAGED: frozenset({"nonce"}),
    Cause.KMS_ENVELOPE_DAMAGED: frozenset({"envelope", "wrapped", "cut", "appended", "crlf"}),
    Cause.TRAILING_BYTES: frozenset({"appended"}),
}
"""What must have been done where a cause is certain."""


class Judged(NamedTuple):
    """What became of a case.

    Attributes:
        case: What was judged.
        found: What the library says of the target, all other values seen.
        deletable: Every risk accepted and no key declared lost, nothing stands against its deletion.
        refusal: What stands against it.
        counts: It is of the kinds of which 99 % are to be called damage.
        wrong: What must not be.
    """

    case: Case
    found: Examination
    deletable: bool
    refusal: str
    counts: bool
    wrong: tuple[str, ...]

    @property
    def called(self) -> str:
        verdict = self.found.verdict
        if verdict.damage is not Damage.NONE:
            return str(verdict.damage)
        return str(verdict.cause or verdict.outcome)


class NeverWaits:
    """Plugins that answer at once."""

    deferring = False
    final = False
    over = False

    def plugin_for(self, provider: KMSProvider) -> NoReturn:
        raise AssertionError("the plugins of a case are in its transformers")

    def abort(self) -> None:
        raise AssertionError("nobody is to give up")

    def start_over(self) -> None:
        raise AssertionError("one value after the other is for a run over a plan")

    def without_recording(self) -> AbstractContextManager[None]:
        return nullcontext()


def examiner_of(case: Case | CauseCase) -> Examiner:
    """Return an examiner with the configuration and the plugin of a case, which knows its custom resources."""
    minor = case.minor if isinstance(case, CauseCase) else None
    transformers = None
    if case.configuration is not None:
        configuration = parse_configuration(case.configuration, path="exam")
        transformers = Transformers.from_configuration(configuration, lambda _provider: case.plugin)
    decoder = corpus.decoder() if minor is None else Decoder(minor)
    release = f"1.{minor}" if minor is not None else ""
    examiner = Examiner(corpus.LAYOUT, transformers, decoder, assumed_release=release)
    examiner.plugins = NeverWaits() if case.plugin is not None else None
    examiner.learn_custom_resources(MemorySource(case.records))
    return examiner


def _among_all(case: Case | CauseCase) -> tuple[Examination, Examination, SameKeyEvidence]:
    examiner = examiner_of(case)
    first = examiner.examine(case.target)
    source = MemorySource(case.records)
    alike = look_at_all(source, examiner, first, no_progress, see=lambda _found: None)
    assert alike.target is not None
    return alike.target, first, alike


def judge_case(case: Case) -> Judged:
    found, first, alike = _among_all(case)
    refusals = []
    for risks in (_EVERY_RISK, frozenset[str]()):
        refusal = judged(found, alike, risks=risks, release_proven=True).refusal
        refusals.append("" if refusal is None else f"{refusal.message} {refusal.hint}")
    deletable = not refusals[0] and deletability_of(found) is Deletability.DELETABLE
    without = not refusals[1] and deletability_of(found) is Deletability.DELETABLE
    said = (
        msgspec.json.encode((found.verdict, first.verdict)).decode() + "".join(refusals) + repr(case.plugin)
    )
    wrong = [
        *_of_wrong_key_or_undamaged(case, found, deletable=deletable, without=without),
        *_certain_and_wrong(case, found),
        *_not_readable(case, found),
        *(f"shows what is hidden: {index}" for index, hidden in enumerate(case.hidden) if hidden in said),
    ]
    return Judged(case, found, deletable, refusals[0], _is_counted(case), tuple(wrong))


def _of_wrong_key_or_undamaged(
    case: Case, found: Examination, *, deletable: bool, without: bool
) -> list[str]:
    verdict = found.verdict
    damaged = case.damage not in UNDAMAGED and bool(case.marks & _DONE)
    if case.key not in WRONG_KEYS and damaged:
        return []
    if damaged and verdict.cause in _WHATEVER_THE_KEY and verdict.damage is Damage.PROVEN:
        return []
    wrong = []
    if case.key in _ON_PURPOSE:
        if without:
            wrong.append("deletable without a word")
    elif deletable:
        wrong.append("deletable")
    if verdict.damage is Damage.PROVEN:
        wrong.append("damage is called proven")
    elif verdict.damage is Damage.LIKELY and verdict.confidence is Confidence.CERTAIN:
        wrong.append("likely damage is called certain")
    return wrong


_DONE: Final = frozenset({"bits", "run", "cut", "appended", "crlf"})


def _certain_and_wrong(case: Case, found: Examination) -> list[str]:
    verdict = found.verdict
    if verdict.cause is None or verdict.confidence is not Confidence.CERTAIN or verdict.outcome not in FAILED:
        return []
    needed = _NEEDS.get(verdict.cause)
    if needed is not None and not case.marks & needed:
        return [f"{verdict.cause} is certain, and {sorted(case.marks)} was done"]
    return []


def _not_readable(case: Case, found: Examination) -> list[str]:
    outcome = found.verdict.outcome
    if case.key in WRONG_KEYS:
        return []
    if case.provider in CBC_PROVIDERS and case.opens is not None and _decodes(case, case.opens):
        return [] if outcome in {Outcome.READABLE, Outcome.INCONSISTENT} else ["decodes, and is not readable"]
    if case.damage == "no damage" and outcome is not Outcome.READABLE:
        return ["in order, and not readable"]
    return []


def _is_counted(case: Case) -> bool:
    if case.key in WRONG_KEYS or not case.marks & {"bits", "cut"} or case.marks & {"wrapped", "envelope"}:
        return False
    tag = case.provider not in CBC_PROVIDERS
    if tag and "one bit" in case.marks:
        return True
    if case.left is None or case.visible < LEAST_VISIBLE:
        return False
    if tag:
        return not _decodes(case, case.left)
    return case.opens is None or not _decodes(case, case.opens)


def _decodes(case: Case, plaintext: bytes) -> bool:
    record = stored(case.target.key, plaintext)
    return corpus.plain_examiner().examine(record).verdict.outcome in {Outcome.READABLE, Outcome.INCONSISTENT}


# --- the cause --------------------------------------------------------------------------------------------------------


class Named(NamedTuple):
    """What a case was called.

    Attributes:
        case: What was judged.
        found: What the library says of the target, all other values seen.
    """

    case: CauseCase
    found: Examination

    @property
    def said(self) -> str:
        return str(self.found.verdict.cause or self.found.verdict.outcome)

    @property
    def right(self) -> bool:
        return self.found.verdict.cause in self.case.causes

    @property
    def certain_and_wrong(self) -> bool:
        verdict = self.found.verdict
        says_wrong = verdict.outcome in FAILED or verdict.outcome is Outcome.INCONSISTENT
        return says_wrong and not self.right and verdict.confidence is Confidence.CERTAIN


def name_case(case: CauseCase) -> Named:
    return Named(case, _among_all(case)[0])
