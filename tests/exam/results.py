"""What the cases of the exam came to, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from etcdfix.verdicts.damage import Damage
from tests.exam.cases import WRONG_KEYS, make_case
from tests.exam.judging import Judged, judge_case

CASES = 5000
LEAST_SHARE = 0.99
_CALLED_DAMAGE = frozenset({str(Damage.PROVEN), str(Damage.LIKELY)})


class Results:
    """Counts over many cases.

    Attributes:
        cases: How many there were.
        wrong: One line for each case in which something is that must not be.
        right_key: By provider and damage, what was said under the right key.
        wrong_key: By the way in which the configuration is wrong, and the provider, what was said.
        deletable: By the way in which the configuration is wrong, and the provider, how many could be deleted
            with every risk accepted and no key declared lost; those left out that are damaged whatever the key.
        counted: What was said of the flips and cuts of which 99 % are to be called damage.
        missed: Those of them that were not.
    """

    def __init__(self) -> None:
        self.cases = 0
        self.wrong: list[str] = []
        self.right_key: dict[tuple[str, str], Counter[str]] = {}
        self.wrong_key: dict[tuple[str, str], Counter[str]] = {}
        self.deletable: Counter[tuple[str, str]] = Counter()
        self.counted: Counter[str] = Counter()
        self.missed: list[Judged] = []

    def add(self, judged: Judged) -> None:
        """Count one case."""
        case = judged.case
        self.cases += 1
        self.wrong += [f"{case}: {problem}" for problem in judged.wrong]
        if case.key in WRONG_KEYS:
            row = case.key, case.provider
            self.wrong_key.setdefault(row, Counter())[judged.called] += 1
            # Proven under a wrong key is wrong, but for what shows whatever the key is.
            self.deletable[row] += judged.deletable and judged.called != Damage.PROVEN
        else:
            self.right_key.setdefault((case.provider, case.damage), Counter())[judged.called] += 1
        if judged.counts:
            self.counted[judged.called] += 1
            if judged.called not in _CALLED_DAMAGE:
                self.missed.append(judged)

    @property
    def share(self) -> float:
        """How many of the flips and cuts were called damage, of 1."""
        return sum(self.counted[called] for called in _CALLED_DAMAGE) / max(self.counted.total(), 1)


def run(seeds: Iterable[int]) -> Results:
    """Judge the cases of seeds; an exception is wrong, and the run goes on."""
    results = Results()
    for seed in seeds:
        try:
            judged = judge_case(make_case(seed))
        except Exception as problem:  # noqa: BLE001 - whatever it is, the case has to be named
            results.cases += 1
            results.wrong.append(f"seed {seed}: {type(problem).__name__}: {problem}")
        else:
            results.add(judged)
    return results
