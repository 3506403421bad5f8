"""Runs the exam of repairs and writes ``docs/repair.md``: ``python -m tests.exam.write_repair``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from etcdfix import __version__
from tests.exam.repairs import (
    TAGGED,
    TAGLESS,
    Counted,
    Damage,
    count,
    one_bit,
    one_body_bit,
    one_byte,
    seconds,
    two_bits,
)
from tests.exam.test_repair_exam import CASES, PAGE

_SECRETS = 350
_RUNS = 5
_SMALL, _LARGE = 2_000, 1_500_000

_START = """\
# What a repair can and cannot do

`etcdfix repair KEY` writes the stored bytes of one value with one thing undone. It decrypts to look, and encrypts
nothing: what it writes is what an API server once wrote.

| what happened | where | what proves the repair |
|---|---|---|
| one bit flipped in ciphertext, tag or nonce | aesgcm, secretbox, KMS v1 (AES-GCM), KMS v2 | the tag |
| one bit flipped in the info, source type, lengths or key id | KMS v2 | the tag, where another value has the same key |
| the wrapped data key damaged, or cut | KMS v2 | the tag, under the wrapped key of another value |
| the length of the wrapped data key damaged | KMS v1 | the tag |
| one to three bits flipped in `k8s:enc:<provider>:<version>:<name>:` | all | the tag; none under AES-CBC |
| every LF became CR LF | encrypted values, also many, one by one | the tag; none under AES-CBC |
| the first four bytes, CR LF, bytes behind the object | unencrypted values | the whole object decodes |
| one bit flipped anywhere | aescbc, KMS v1 (AES-CBC) | **nothing**: `--accept-risk unproven-repair` |

Whatever was undone, the value is then read as an API server reads it: its encryption key opens it, a whole object
decodes, nothing in it contradicts itself, and kind, namespace and name are those of its etcd key. Every way is
tried. Where two of them lead to different bytes, nothing is repaired.

Under KMS v1 each value has a data key of its own, so nobody else has a wrapped data key that is damaged. A bit of an
unencrypted value is never searched for: nothing would tell whether the right one was found. Bytes that are missing
are not made up.

## Figures

Made by `python -m tests.exam.write_repair` with etcdfix {version}, on two slow cores. Every value is a Secret made
from a seed, its size drawn from 100 bytes to 1.5 MB, most of them small. `pytest -m exam
tests/exam/test_repair_exam.py` checks the same; a sample is part of the other tests.

| what was done | values | read as they are | repaired, byte for byte as written | repaired wrongly | no repair |
|---|---|---|---|---|---|
"""

_CBC = """\

- one flipped bit, anywhere but in a wrapped data key of KMS v1: {found}; in the name of an encryption key it needs
  `--accept-risk unproven-repair`
- two flipped bits, or one bit and a wrong key: {none}

What reads as it is has a flipped bit in its KMS key id, and the plugin that is played here does not look at that.

## Time

The search for one flipped bit in the last byte of the ciphertext, which is found last. Medians of {runs} runs.

| provider | 2 KB | 1.5 MB |
|---|---|---|
{times}
Under AES-CBC each bit is tried by itself, up to {most} KiB: 2 KB take {cbc:.2f} s. Larger values are not searched.

## Without a tag

{secrets} Secrets with a certificate and a password, of 500 to 4,000 bytes, under aescbc and under KMS v1 with AES-CBC.
Most damage there lies in the data, where no decoder sees it: an API server serves the object with wrong bytes, and no
tool can tell. Of the others:

| what was done | values | read as they are | one repair, right | one repair, WRONG | several, so none | no repair |
|---|---|---|---|---|---|---|
{rows}
That is why nothing under AES-CBC is repaired unless you say `--accept-risk unproven-repair`: where more than one bit
was damaged, a value that fails loudly becomes an object that reads, with wrong bytes in it. Look at the object
afterwards (`etcdfix get`), and rather take it from an earlier revision, a snapshot, or an API server's memory.
"""


def main() -> None:
    """Run everything and write the page."""
    PAGE.write_text("".join(_lines()))


def _row(what: str, counted: Counted) -> str:
    repaired = f"{counted.readable} | {counted.found:,} | {counted.wrong}"
    return f"| {what} | {counted.cases:,} | {repaired} | {counted.none:,} |\n"


def _lines() -> Iterator[str]:
    yield _START.format(version=__version__)
    cases = range(CASES)
    single = count(cases, TAGGED, one_bit)
    two = count(cases, TAGGED, two_bits)
    wrong = count(cases, TAGGED, one_bit, wrong_key=True)
    yield _row("one flipped bit", single)
    yield _row("two flipped bits", two)
    yield _row("one flipped bit, and the key configured is another one", wrong)
    none = two.none == CASES and wrong.none == CASES
    yield _CBC.format(
        found="all found, but those that read as they are"
        if single.found + single.readable == CASES
        else f"NOT ALL FOUND: seeds {single.seeds}",
        none="none repaired" if none else f"SOME REPAIRED: seeds {two.seeds} {wrong.seeds}",
        runs=_RUNS,
        times="".join(
            f"| {provider} | {_median(provider, _SMALL) * 1000:.1f} ms | {_median(provider, _LARGE):.2f} s |\n"
            for provider in TAGGED
        ),
        most=32,
        cbc=_median("aescbc", _SMALL),
        secrets=_SECRETS,
        rows="".join(_tagless(what, damage) for what, damage in _TAGLESS.items()),
    )


_TAGLESS: dict[str, Damage] = {
    "one flipped bit": one_body_bit,
    "two flipped bits": two_bits,
    "one damaged byte": one_byte,
}


def _tagless(what: str, damage: Damage) -> str:
    found = count(range(_SECRETS), TAGLESS, damage, size=lambda rng: rng.randrange(500, 4_000))
    return (
        f"| {what} | {found.cases} | {found.readable} | {found.found} | {found.wrong} | {found.several} "
        f"| {found.none} |\n"
    )


def _median(provider: str, size: int) -> float:
    return statistics.median(seconds(provider, size, seed=seed) for seed in range(_RUNS))


if __name__ == "__main__":
    main()
