"""The second exam: does the cause say what was done? Judged as a scan judges, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config import KMSProvider, parse_configuration
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine import Examiner
from etcdfix.examine_all import no_progress
from etcdfix.model import Confidence, Outcome
from etcdfix.remediation.preflight.similar_values import look_at_all
from etcdfix.verdicts.deletability import FAILED
from etcdfix.verdicts.examination import Examination
from tests.exam import corpus
from tests.exam.ground import Plugin
from tests.exam.judging import NeverWaits
from tests.exam.kinds_of_damage import DAMAGES, CauseCase, make_cause_case
from tests.support.memory_source import MemorySource

CASES = 5000
LEAST_RIGHT = 0.98


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
        """The cause; ``readable`` where there is none."""
        return str(self.found.verdict.cause or self.found.verdict.outcome)

    @property
    def right(self) -> bool:
        """Whether the cause says what was done."""
        return self.found.verdict.cause in self.case.causes

    @property
    def certain_and_wrong(self) -> bool:
        """Whether something else is said to be wrong with the value, and called certain."""
        verdict = self.found.verdict
        says_wrong = verdict.outcome in FAILED or verdict.outcome is Outcome.INCONSISTENT
        return says_wrong and not self.right and verdict.confidence is Confidence.CERTAIN


def name_case(case: CauseCase) -> Named:
    """Have a case examined with everything else that etcd holds."""

    def plugin_for(_: KMSProvider) -> Plugin | None:
        return case.plugin

    decoder = corpus.decoder() if case.minor is None else Decoder(case.minor)
    transformers = None
    if case.configuration is not None:
        configuration = parse_configuration(case.configuration, path="exam")
        transformers = Transformers.from_configuration(configuration, plugin_for)
    release = f"1.{case.minor}" if case.minor is not None else ""
    examiner = Examiner(corpus.LAYOUT, transformers, decoder, assumed_release=release)
    examiner.plugins = NeverWaits() if case.plugin is not None else None
    source = MemorySource(case.records)
    examiner.learn_custom_resources(source)
    first = examiner.examine(case.target)
    found = look_at_all(source, examiner, first, no_progress, see=lambda _found: None).target
    assert found is not None
    return Named(case, found)


class CauseResults:
    """Counts over many cases.

    Attributes:
        cases: How many there were.
        allowed: Those of which the evidence allows to say what was done.
        right: Of these, how many were called so.
        certain_and_wrong: One line for each that was called something else with certainty, whatever the evidence.
        missed: Those of the allowed that were not called right.
        table: By what was done: the causes given, where the evidence allows, and where not.
    """

    def __init__(self) -> None:
        self.cases = self.allowed = self.right = 0
        self.certain_and_wrong: list[str] = []
        self.missed: list[Named] = []
        self.table: dict[str, tuple[Counter[str], Counter[str]]] = {
            name: (Counter(), Counter()) for name in DAMAGES
        }

    def add(self, named: Named) -> None:
        """Count one case."""
        case = named.case
        self.cases += 1
        self.table[case.damage][not case.allowed][named.said] += 1
        if named.certain_and_wrong:
            self.certain_and_wrong.append(f"{case}: {named.said}: {named.found.verdict.message}")
        if case.allowed:
            self.allowed += 1
            self.right += named.right
            if not named.right:
                self.missed.append(named)

    @property
    def share(self) -> float:
        """How many of those that the evidence allows were called right, of 1."""
        return self.right / max(self.allowed, 1)


def run_causes(seeds: Iterable[int]) -> CauseResults:
    """Judge the cases of seeds."""
    results = CauseResults()
    for seed in seeds:
        results.add(name_case(make_cause_case(seed)))
    return results


def missed_lines(results: CauseResults) -> Iterator[str]:
    """Yield a line for each kind of miss, the most frequent first."""
    missed = Counter((named.case.damage, named.case.provider, named.said) for named in results.missed)
    for (damage, provider, said), number in missed.most_common():
        yield f"{damage}, {provider}: `{said}` {number}"
