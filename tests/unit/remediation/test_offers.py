"""Which rule refuses a copy, what has to be accepted, and what is printed: one row a rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.copies.model import Copy, Freshness, Place, Sameness, Wanted, Way
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import ClusterIdentity, Confidence, Outcome, Repair, RepairKind, RepairProof
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.offers import Offer, best_of, offers, remedy_of, shown_of, ways_of
from etcdfix.report.advice.ways import first_way
from etcdfix.report.copies import Grade
from etcdfix.text.commands import RunOptions
from tests.support.examinations import examination

KEY = b"/registry/secrets/shop/web"
PROTECTED = b"/registry/namespaces/kube-system"
LIVE = RunOptions(
    source=("--endpoints", "e:1"), reading=("--encryption-config", "c"), servers=("--kubeconfig", "k")
)
OLD = RunOptions(source=("--snapshot", "s.db"), reading=LIVE.reading)
EARLIER = RunOptions(source=(*LIVE.source, "--revision", "9"), reading=LIVE.reading)
PAST = RunOptions(source=(*OLD.source, "--revision", "9"), reading=LIVE.reading)
KINE = RunOptions(source=("--kine", "state.db"), reading=LIVE.reading)
BIT = Repair(RepairKind.BIT, "one bit turned back", RepairProof.TAG)
UNPROVEN = Repair(RepairKind.BIT, "one bit turned back", RepairProof.NONE)


def present(cause: Cause | None = Cause.VALUE_TRUNCATED, **fields: Any) -> Wanted:
    return Wanted.of(examination(KEY, cause=cause, **fields))


def copy(place: Place = Place.REVISION, **fields: Any) -> Copy:
    how: dict[str, Any] = {
        "key": KEY, "where": f"{place} there", "source": f"{place}:there", "mod_revision": 5,
        "outcome": Outcome.READABLE, "same_object": Sameness.SAME, "freshness": Freshness.OLDER, "later_writes": 2,
        "proof": "it has its uid",
    }  # fmt: skip
    return Copy(place=place, **(how | fields))


def memory(**fields: Any) -> Copy:
    now: dict[str, Any] = {
        "way": Way.PATCH,
        "outcome": None,
        "source": "memory",
        "freshness": Freshness.CURRENT,
    }
    return copy(Place.MEMORY, **(now | fields))


def offered(one: Copy, wanted: Wanted | None = None, run: RunOptions = LIVE) -> Offer:
    (offer,) = offers([one], wanted or present(), run)
    return offer


GONE = Wanted.gone(KEY, StorageLayout())


@pytest.mark.parametrize(
    ("one", "wanted", "run", "rule"),
    [
        (copy(outcome=Outcome.DECRYPT_FAILURE, message="no key"), None, LIVE, Rule.NOT_READABLE),
        (copy(same_object=Sameness.OTHER), None, LIVE, Rule.OTHER_OBJECT),
        (memory(same_object=Sameness.OTHER), present(Cause.WRONG_KEY), LIVE, Rule.OTHER_OBJECT),
        (copy(source=""), None, LIVE, Rule.NOT_ONE_KEY),
        (copy(), None, KINE, Rule.KINE),
        (copy(), None, PAST, Rule.GONE),
        (copy(), None, EARLIER, Rule.GONE),
        (copy(), present(None, outcome=Outcome.READABLE), LIVE, Rule.READABLE),
        (copy(), present(None, outcome=Outcome.INCONSISTENT), LIVE, Rule.INCONSISTENT),
        (copy(), present(Cause.KEY_RENAMED), LIVE, Rule.CURABLE_BY_CONFIGURATION),
        (copy(), present(Cause.NO_CONFIGURATION, outcome=Outcome.UNDETERMINED), LIVE, Rule.UNDETERMINED),
        (
            copy(Place.CANDIDATE, way=Way.SEAL), present(Cause.KMS_UNREACHABLE, outcome=Outcome.UNDETERMINED),
            LIVE, Rule.UNDETERMINED,
        ),
        (copy(), present(Cause.DOUBLE_ENCRYPTED), LIVE, Rule.NEVER_DELETABLE),
        (copy(Place.KEY), None, LIVE, Rule.PRESENT),
        (memory(), None, LIVE, Rule.NOT_FROM_MEMORY),
        (memory(), GONE, LIVE, Rule.NOT_FROM_MEMORY),
        (memory(), present(Cause.WRONG_KEY), OLD, Rule.NOT_FROM_MEMORY),
        (memory(doubt="it is being deleted"), present(Cause.WRONG_KEY), LIVE, Rule.NOT_FROM_MEMORY),
        (memory(freshness=Freshness.OLDER), present(Cause.WRONG_KEY), LIVE, Rule.NOT_FROM_MEMORY),
    ],
)  # fmt: skip
def test_a_rule_that_refuses(one: Copy, wanted: Wanted | None, run: RunOptions, rule: Rule) -> None:
    offer = offered(one, wanted, run)
    assert offer.refusal is not None
    assert (offer.refusal.rule, bool(offer.command), offer.proven) == (rule, False, False)
    assert best_of([offer], list(Rule)) is None
    assert not remedy_of(offer).command.line(run).startswith("etcdfix fix")


@pytest.mark.parametrize(
    ("one", "wanted", "needs"),
    [
        (copy(), None, ()),
        (copy(), GONE, ()),
        (copy(same_object=Sameness.UNKNOWN), None, (Rule.UNKNOWN_UID,)),
        (copy(Place.KEY, same_object=Sameness.UNKNOWN), GONE, (Rule.UNKNOWN_UID,)),
        (copy(Place.LOG, cluster=ClusterIdentity()), GONE, (Rule.UNKNOWN_CLUSTER,)),
        (copy(Place.LOG, cluster=ClusterIdentity.by_uid("u")), GONE, ()),
        (copy(Place.BACKUP, doubt="it may have been edited", listed=False), None, (Rule.UNLISTED_SOURCE,)),
        (copy(Place.BIT, repair=UNPROVEN), None, (Rule.UNPROVEN_REPAIR,)),
        (copy(Place.BIT, repair=BIT), None, ()),
        (copy(Place.CANDIDATE, way=Way.SEAL), present(Cause.KEY_RENAMED), ()),
        (memory(), present(Cause.WRONG_KEY), ()),
        (
            copy(Place.OBJECT, way=Way.SEAL, key=PROTECTED),
            Wanted.gone(PROTECTED, StorageLayout()),
            (Rule.CLUSTER_BREAKING,),
        ),
    ],
)
def test_what_has_to_be_accepted_stands_in_the_command(
    one: Copy, wanted: Wanted | None, needs: tuple[Rule, ...]
) -> None:
    offer = offered(one, wanted)
    assert (offer.refusal, offer.needs) == (None, needs)
    line = offer.command.line(LIVE)
    assert line.startswith("etcdfix fix ")
    assert f" --from {one.source} " in line
    assert "--dry-run" in line
    assert all(f"--accept {rule}" in line for rule in needs)
    assert best_of([offer], needs) == (offer if offer.proven else None)
    assert best_of([offer]) == (offer if offer.proven and not needs else None)


def first(one: Copy, wanted: Wanted | None = None, run: RunOptions = LIVE) -> str:
    """Return the first command of all ways out."""
    wanted = wanted or present()
    way = first_way(ways_of(wanted, offers([one], wanted, run), run))
    assert way is not None
    return way.command.line(run)


def test_what_goes_over_a_value_of_a_lost_key_declares_that_key() -> None:
    offer = offered(copy(), present(Cause.WRONG_KEY))
    assert "--declare-key-lost aescbc/v1/key2" in offer.command.line(LIVE)
    assert best_of([offer]) is None
    assert not first(copy(), present(Cause.WRONG_KEY)).startswith("etcdfix fix")


def test_a_value_that_may_read_again_is_not_written_over_first() -> None:
    assert not first(copy(), present(Cause.KEY_RENAMED)).startswith("etcdfix fix")


def test_a_good_copy_comes_first_and_no_deletion() -> None:
    assert first(copy()).startswith("etcdfix fix")
    assert first(copy(), GONE).startswith("etcdfix fix")
    assert first(copy(outcome=Outcome.DECRYPT_FAILURE)).startswith("etcdfix copies")


@pytest.mark.parametrize(
    ("fields", "grade"),
    [
        ({}, Grade.GOOD),
        ({"doubt": "something"}, Grade.DOUBTFUL),
        ({"sure": Confidence.POSSIBLE}, Grade.DOUBTFUL),
        ({"same_object": Sameness.UNKNOWN}, Grade.DOUBTFUL),
        ({"same_object": Sameness.OTHER}, Grade.UNUSABLE),
        ({"outcome": Outcome.DECODE_FAILURE}, Grade.UNUSABLE),
    ],
)
def test_one_doubt_is_enough(fields: dict[str, Any], grade: Grade) -> None:
    offer = offered(copy(Place.LOG, **fields))
    assert (offer.grade, offer.proven) == (grade, grade is Grade.GOOD)
    assert best_of([offer], list(Rule)) == (offer if grade is Grade.GOOD else None)


def test_what_nothing_shows_to_be_of_the_object_is_saved_first() -> None:
    unknown = copy(Place.SNAPSHOT, source="snapshot:old.db", same_object=Sameness.UNKNOWN, proof="")
    assert first(unknown).startswith("etcdfix get --snapshot old.db --encryption")
    assert first(msgspec.structs.replace(unknown, kept_at=4)).startswith(
        "etcdfix get --snapshot old.db --revision 4"
    )


def test_what_its_revisions_show_to_be_of_the_object_needs_one_word() -> None:
    shown = copy(
        Place.SNAPSHOT, source="snapshot:old.db", same_object=Sameness.UNKNOWN, proof="its revisions"
    )
    command = first(shown)
    assert "--from snapshot:old.db" in command
    assert "--accept unknown-uid" in command
    assert best_of([offered(shown)], [Rule.UNKNOWN_UID]) is None


def test_from_a_snapshot_the_live_etcd_takes_the_newest_value_that_reads() -> None:
    unread, newest, older = copy(mod_revision=7, outcome=Outcome.DECODE_FAILURE), copy(), copy(mod_revision=4)
    _, taken, left = offers([unread, newest, older], present(), OLD)
    shown = shown_of(taken)
    assert (shown.source, shown.refused) == ("snapshot:s.db", "")
    assert remedy_of(taken).action.startswith("On the live etcd, put back")
    line = taken.command.line(OLD)
    assert "--from snapshot:s.db" in line
    assert "--snapshot" not in line
    assert left.refusal is not None
    assert left.refusal.rule == Rule.GONE
