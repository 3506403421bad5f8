from __future__ import annotations

import pytest

from etcdfix.model import Outcome, ServerBehaviour
from etcdfix.reports.head import found_line, head_lines, stakes_of
from etcdfix.reports.model import CauseSummary, Remedy, Scope, Summary
from etcdfix.reports.next_steps import first_way_out, next_way_out
from etcdfix.reports.remedies import DO_NOT_RESTART
from etcdfix.reports.ways import Way, WayKind
from etcdfix.text.commands import RepeatedOptions
from etcdfix.verdicts.causes import Cause
from tests.support.examinations import examination
from tests.support.reports import header, source

LIVE = header(source=source(type="etcd", path=None, endpoints=["a:2379"]))
NARROW = header(source=LIVE.source, scope=Scope("/registry", [], ["secrets"], [], None))
AGAIN = RepeatedOptions(source=("--endpoints", "a:2379"), reading=("--no-kms",))
CURE, SAVE, DELETE = (
    Remedy("Fix the configuration", "etcdfix scan FILE", ""),
    Remedy(f"{DO_NOT_RESTART}: save it", "kubectl get --raw x", ""),
    Remedy("Last: delete it", "etcdfix delete x", ""),
)
UNDETERMINED = Outcome.UNDETERMINED.value


def line(summary: Summary, *reasons: str, interrupted: bool = False, narrow: bool = False) -> str:
    return found_line(NARROW if narrow else LIVE, summary, reasons, interrupted=interrupted)


def of(cause: Cause, count: int, outcome: str = "decode-failure") -> CauseSummary:
    return CauseSummary(cause.value, outcome, count, "/registry/x")


def test_counts_in_one_line() -> None:
    broken = Summary(keys=9, readable=8, decode_failures=1, by_cause=[of(Cause.VALUE_TRUNCATED, 1)])
    assert line(broken) == "1 of 9 keys cannot be read (value-truncated)."
    mixed = Summary(
        keys=90, readable=80, decode_failures=4, inconsistent=6,
        by_cause=[of(Cause.VALUE_TRUNCATED, 4), of(Cause.IDENTITY_MISMATCH, 6, "inconsistent")],
    )  # fmt: skip
    assert line(mixed) == "10 of 90 keys are unreadable or inconsistent."
    assert line(Summary(keys=2, readable=1, inconsistent=1)).startswith("1 of 2 keys is inconsistent")


def test_nothing_wrong_is_said_of_what_was_seen_alone() -> None:
    healthy = Summary(keys=9, readable=8, not_objects=1)
    assert line(healthy) == "NOTHING WRONG FOUND in 8 objects."
    assert line(healthy, narrow=True).endswith("8 objects in scope; the rest was not looked at.")
    assert line(healthy, "page 7 is lost") == (
        "INCOMPLETE: nothing is wrong with the 8 objects seen; not all were seen."
    )
    assert line(healthy, "interrupted", interrupted=True).startswith(
        "INTERRUPTED: nothing is wrong with the 8"
    )


@pytest.mark.parametrize("summary", [Summary(), Summary(keys=4, not_objects=4)])
def test_no_object_at_all_is_never_well(summary: Summary) -> None:
    assert line(summary) == "NOTHING WAS EXAMINED: no object is in this scope."
    assert line(summary, "no key starts with /x\x1b[2J") == (
        "NOTHING WAS EXAMINED: no key starts with /x\\x1b[2J."
    )


def test_what_could_not_be_judged_is_not_called_broken() -> None:
    waiting = Summary(
        keys=9, readable=6, undetermined=3, by_cause=[of(Cause.KMS_UNREACHABLE, 3, UNDETERMINED)]
    )
    text = line(waiting, "undetermined: 3 keys")
    assert text == "INCOMPLETE: 3 of 9 keys could not be judged (kms-unreachable)."


def test_the_head_is_safe_to_print() -> None:
    lines = list(head_lines("a\x1b[2J", "b\u202e", Remedy("c\n", "d\r", "")))
    assert all(text.isprintable() for text in lines)


def test_a_cure_goes_before_a_copy_and_nothing_is_deleted() -> None:
    rescue, cure, delete = Way(SAVE, WayKind.RESCUE), Way(CURE), Way(DELETE, WayKind.DELETE)
    assert first_way_out([rescue, cure, delete]) is CURE
    assert first_way_out([rescue, delete]) is SAVE
    assert first_way_out([delete]) is None
    advice = Way(Remedy("Ask", "", ""))
    assert first_way_out([advice, rescue]) is SAVE
    assert first_way_out([advice, delete]) is advice.remedy


def test_a_repair_goes_before_an_earlier_revision_that_is_only_saved() -> None:
    earlier, repair = Remedy("Save", "etcdfix get", ""), Remedy("Repair it", "etcdfix repair", "")
    repairs = Way(repair, WayKind.REPAIR)
    assert first_way_out([Way(earlier, WayKind.SAVE), repairs]) is repair
    assert first_way_out([Way(earlier, WayKind.PUT_BACK), repairs]) is earlier
    assert first_way_out([Way(CURE), Way(earlier, WayKind.SAVE), repairs]) is CURE
    assert first_way_out([Way(earlier, WayKind.SAVE), Way(CURE)]) is earlier


def way(
    summary: Summary, first: Remedy | None = None, *, whole: bool = True, words: tuple[str, ...] = ()
) -> str:
    found = next_way_out(summary, first, words, AGAIN, whole=whole)
    return f"{found.action}|{found.command}" if found is not None else ""


def test_values_that_wait_for_kms_are_looked_at_again_and_asked_for() -> None:
    away = Summary(by_cause=[of(Cause.KMS_UNREACHABLE, 3, UNDETERMINED)])
    assert way(away, words=("secrets",)) == (
        "Scan again, and let the KMS plugins be asked|etcdfix scan --endpoints a:2379 secrets"
    )
    assert way(away, CURE).startswith("Fix the configuration|")
    missing = Summary(by_cause=[of(Cause.NO_CONFIGURATION, 3, UNDETERMINED)])
    assert "--encryption-config FILE --no-kms" in way(missing, CURE)


def test_what_was_not_seen_is_looked_at_again() -> None:
    assert way(Summary(keys=1, readable=1)) == ""
    assert way(Summary(keys=1, readable=1), whole=False).startswith("See why not everything was seen")
    assert way(Summary(keys=1, readable=1), words=("secrets",)).startswith("Scan everything")


def test_of_several_values_the_worst_is_said() -> None:
    empty = examination(
        "/registry/pods/a/b", outcome=Outcome.DECODE_FAILURE, apiserver=ServerBehaviour.SERVES_EMPTY
    )
    assert stakes_of([empty]).at_stake.startswith("ONE-OBJECT: ")
    assert stakes_of([empty, examination()]).at_stake.startswith("BREAKS-NOW, if API servers")
    assert not stakes_of([])


def test_a_file_says_what_it_is() -> None:
    whole = Summary(keys=9, readable=9)
    for type_, words in (("snapshot", "in the snapshot"), ("kine", "in the file of kine")):
        of_file = header(source=source(type=type_, path="f", endpoints=None))
        assert words in found_line(of_file, whole, [], interrupted=False)
