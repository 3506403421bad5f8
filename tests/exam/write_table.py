"""Runs the exam and writes ``docs/exam.md``: ``python -m tests.exam.write_table``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from etcdfix import __version__
from etcdfix.model import Outcome
from tests.exam.cases import BETWEEN, DAMAGES, PROVIDERS, WRONG_KEYS
from tests.exam.causes import LEAST_RIGHT, CauseResults, missed_lines, run_causes
from tests.exam.results import CASES, LEAST_SHARE, Results, run
from tests.support.golden import VARIABLE

OTHER_CAUSES = range(30_000, 30_000 + CASES)
OTHERS = range(10_000, 10_000 + CASES)
PAGE = Path(__file__).parents[2] / "docs" / "exam.md"
_READABLE = frozenset({str(Outcome.READABLE), str(Outcome.INCONSISTENT), "identity-mismatch", "invalid-utf8"})

_START = """\
# The exam

{cases:,} cases, each made from a seed: an object of some kind and encoding, written under some provider,
damaged in some way or not at all, and a configuration that has its key, or another one. Each case is examined
as `delete` examines its object, with everything else that etcd holds, and what is said is compared with what
was done.

<!-- parsed -->
```sh
pytest -m exam tests/exam
```

`ETCDFIX_EXAM_SEED=17 pytest -m exam tests/exam` judges the case of one seed. A sample of 100 is part of the
other tests. This page is written by `python -m tests.exam.write_table`, with etcdfix {version}, seeds 0 to
{last}, {golden}.

## What must hold

- A healthy value under a wrong key, or one that is not damaged at all, can never be deleted without
  `--declare-key-lost`, whatever risks are accepted, and no damage to it is called proven. One row is an
  exception that is made on purpose: *{between}* means that values written before and after it open under other
  bytes of the same name, and that it is the only one of its kind. Nothing tells such a value from one whose nonce
  was overwritten, so it is called `likely` damage and needs `--accept-risk unproven-damage`. Two of them are
  taken for a key that had other bytes for a time.
- What is shorter than any value of its provider, and a KMS envelope that an API server rejects before it asks
  the plugin, is damaged whatever the key is.
- No cause is certain and wrong: nothing is called moved, renamed, cut or damaged with certainty that was not.
- What an API server still reads (AES-CBC has no tag) is readable.
- Nothing of the objects' data and of the keys stands in any verdict, evidence or refusal.

- wrong: {wrong}
- cases: {cases}

Flips in the body and cuts, under the right key, that leave a block of 16 bytes as it was written, and after
which the value does not decode whole; and every single flipped bit under a tag: at least {least:.0%} have to be
called damage.

- counted: {counted}
- called damage: {called} ({proven} proven, {likely} likely)
- share: {share:.2%}

How starts are recognised was improved with these seeds in view. So as many others are judged for this page, seeds
{other_first} to {other_last}, which were not looked at:

- wrong among the others: {other_wrong}
- share among the others: {other_share:.2%} ({other_called} of {other_counted})

## Why not all of them

Damage is called so only where the encryption key is shown to be right, by what stands at the start of the
plaintext; and noise shows that less often than once in 2^60, with all keys, starts and single bits counted that
were tried. Where many bits were flipped in a small value under AES-CBC, each of them makes noise of a whole
block, and no block of the start is left. More than 8 wrong bits in a start, or one in the tag of a CBOR value
of an unknown kind, are not guessed at either. Such a value is called `wrong-key`, and stays. These were not
called damage:

"""


def main() -> None:
    """Run all cases and write the page."""
    if VARIABLE not in os.environ:
        sys.exit(f"{VARIABLE} is not set: the page is made with the API server's own samples")
    results = run(range(CASES))
    others = run(OTHERS)
    causes, other_causes = run_causes(range(CASES)), run_causes(OTHER_CAUSES)
    PAGE.write_text("".join((*_lines(results, others), *_cause_lines(causes, other_causes))))
    for found in (results, others):
        print(f"{PAGE}: {found.cases} cases, {len(found.wrong)} wrong, {found.share:.2%}")
    for named in (causes, other_causes):
        print(
            f"{PAGE}: {named.cases} cases, {len(named.certain_and_wrong)} certain and wrong, {named.share:.2%}"
        )


def _lines(results: Results, others: Results) -> Iterator[str]:
    proven, likely = results.counted["proven"], results.counted["likely"]
    yield _START.format(
        cases=results.cases,
        version=__version__,
        last=results.cases - 1,
        golden="with the API server's own samples",
        between=BETWEEN,
        wrong=len(results.wrong),
        least=LEAST_SHARE,
        counted=results.counted.total(),
        called=proven + likely,
        proven=proven,
        likely=likely,
        share=results.share,
        other_first=OTHERS.start,
        other_last=OTHERS.stop - 1,
        other_wrong=len(others.wrong),
        other_share=others.share,
        other_called=others.counted.total() - len(others.missed),
        other_counted=others.counted.total(),
    )
    yield from (f"- {judged.case}: `{judged.called}`\n" for judged in results.missed)
    yield "\n## Under the right key\n\n"
    yield "| provider | what was done | cases | proven | likely | readable | not called damage, by cause |\n"
    yield "|---|---|---|---|---|---|---|\n"
    for provider in PROVIDERS:
        for damage in DAMAGES:
            said = results.right_key.get((provider, damage))
            if said is not None:
                yield f"| {provider} | {damage} | {said.total()} | {_cells(said)} |\n"
    yield "\n## Under a wrong key\n\n"
    yield "Deletable: with every risk accepted, and no key declared lost. Some values were cut below the least size\n"
    yield "of their provider, or their KMS envelope was broken: that is damage whatever the key, and counted apart.\n\n"
    yield "| the key | provider | cases | deletable | whatever the key | likely | readable | called otherwise |\n"
    yield "|---|---|---|---|---|---|---|---|\n"
    for key in sorted(WRONG_KEYS):
        for provider in PROVIDERS:
            said = results.wrong_key.get((key, provider))
            if said is not None:
                deletable = results.deletable[key, provider]
                yield f"| {key} | {provider} | {said.total()} | {deletable} | {_cells(said)} |\n"


_CAUSES = """
## The cause

{cases:,} more cases, each with one of {kinds} things done to it: to the value, to the object before it was
encrypted, to the configuration, or to the KMS plugin. The objects are of five resources (Secrets, ConfigMaps,
Pods, CustomResourceDefinitions, custom resources in JSON and CBOR), under every provider and under none. Here
the question is whether the cause says what was done.

The evidence allows that, but for these. They are set apart by how a case is made, whatever is then said of it:

- Nothing was changed after all: there was no LF to become CR LF. Or bytes like CR LF stood there before, and
  nobody can undo it.
- A value behind a KMS plugin under AES-CBC, with nothing around it that opens: nothing shows that the plugin's
  answer is right, and there is neither tag nor start. (`0 bytes`, `IV overwritten`.)
- `nothing but zeros` under AES-CBC: there is no start by which a key is known, and no tag.

Where two causes are true of what was done, both count: CR LF for LF, and a cut, leave the framing of a KMS v2
value broken.

- allowed: {allowed}
- right: {right}
- share of right causes: {share:.2%}
- certain and wrong causes: {wrong}

At least {least:.0%} have to be right, and none certain and wrong. An `undetermined` value does not count as
certain: it says that nothing is proven. What was missed was looked at and corrected with these seeds in view. So
others are judged too, seeds {other_first} to {other_last}, which
were run once meanwhile, and for which nothing was changed:

- share of right causes among the others: {other_share:.2%} ({other_right} of {other_allowed})
- certain and wrong causes among the others: {other_wrong}

"""


def _cause_lines(results: CauseResults, others: CauseResults) -> Iterator[str]:
    yield _CAUSES.format(
        cases=results.cases,
        kinds=len(results.table),
        allowed=results.allowed,
        right=results.right,
        share=results.share,
        wrong=len(results.certain_and_wrong),
        least=LEAST_RIGHT,
        other_first=OTHER_CAUSES.start,
        other_last=OTHER_CAUSES.stop - 1,
        other_share=others.share,
        other_right=others.right,
        other_allowed=others.allowed,
        other_wrong=len(others.certain_and_wrong),
    )
    missed = [*missed_lines(results), *missed_lines(others)]
    if missed:
        yield "Not called right, among both: what was done, the provider, what it was called, how often.\n\n"
        yield from (f"- {line}\n" for line in missed)
    yield "\n## Which cause for what\n\n"
    yield f"Seeds 0 to {results.cases - 1}. The last column: where the evidence does not allow it.\n\n"
    yield "| what was done | cases | cause | not allowed |\n|---|---|---|---|\n"
    for damage, (allowed, not_allowed) in results.table.items():
        cells = (_listed(allowed), _listed(not_allowed))
        yield f"| {damage} | {allowed.total() + not_allowed.total()} | {cells[0]} | {cells[1]} |\n"


def _listed(said: Counter[str]) -> str:
    return ", ".join(f"`{cause}` {number}" for cause, number in said.most_common())


def _cells(said: Counter[str]) -> str:
    readable = sum(number for called, number in said.items() if called in _READABLE)
    others = {
        called: number
        for called, number in said.most_common()
        if called not in _READABLE and called not in {"proven", "likely"}
    }
    listed = ", ".join(f"`{called}` {number}" for called, number in others.items())
    return f"{said['proven']} | {said['likely']} | {readable} | {listed}"


if __name__ == "__main__":
    main()
