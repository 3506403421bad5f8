"""The page of a scan, without a browser: what stands in it, and that nothing gets out of its place."""

from __future__ import annotations

import base64
import gc
import hashlib
import io
import re
import tracemalloc
from collections.abc import Iterable

import msgspec
import pytest

from etcdfix.model import Evidence, Outcome
from etcdfix.report.finding import finding_from
from etcdfix.report.formats.html_scan import HTMLReporter
from etcdfix.report.model import Finding, FindingEvidence, LostKey, Remedy, SharedWords, Summary
from etcdfix.text.commands import Command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination, readable
from tests.support.pages import HOSTILE, INVISIBLE, Page
from tests.support.reports import conclusion, header, source, write


def page(found: Iterable[Examination], **settings: object) -> Page:
    return Page(write("html", found, **settings))  # type: ignore[arg-type]


def reported(findings: Iterable[Finding], summary: Summary | None = None, *, most: int = 10_000) -> Page:
    stream = io.BytesIO()
    reporter = HTMLReporter(stream, most=most)
    reporter.begin(header())
    for finding in findings:
        reporter.finding(finding)
    reporter.end(conclusion(summary))
    return Page(stream.getvalue())


def test_nothing_wrong() -> None:
    calm = page([readable("/registry/pods/shop/a", stale=False)])
    assert "nothing wrong NOTHING WRONG FOUND in 1 object" in calm.words
    assert calm.data == {}
    assert "Next" not in calm.words
    assert "Incomplete" not in calm.words


def test_the_worst_and_what_to_do_stand_first() -> None:
    summary = Summary(
        keys=3,
        decrypt_failures=1,
        severity="breaks-now",
        at_stake="BREAKS-NOW: LISTs of secrets fail.",
        do_not_restart="DO NOT RESTART AN API SERVER: memory.",
        next=Remedy(
            "Find the key", Command(text="etcdfix scan --encryption-config FILE secrets"), "In a backup."
        ),
    )
    words = reported([finding_from(examination())], summary).words
    order = [
        "breaks-now", "1 of 3 keys", "LISTs of secrets fail", "DO NOT RESTART", "Find the key", "In a backup",
        "All counts",
    ]  # fmt: skip
    places = [words.index(part) for part in order]
    assert places == sorted(places)


def test_what_is_incomplete_is_prominent() -> None:
    found = page([examination()], complete=False, incomplete_reasons=["etcd went away"], interrupted=True)
    assert "Incomplete: not everything was seen or could be decided It was interrupted" in found.words
    assert found.words.index("etcd went away") < found.words.index("Findings")


def test_a_row_has_all_that_is_known() -> None:
    one = examination(mod_revision=4711, evidence=(Evidence("look", "noise", "7 attempts"),), lease=17)
    (row,) = page([one]).rows()
    assert row.key == "/registry/secrets/shop/web"
    assert row.below == "written under aescbc/v1/key2; no key of that name is configured"
    assert row.cells["Severity"] == "breaks-now"
    assert (row.cells["Outcome"], row.cells["Cause"]) == ("decrypt-failure", "key-name-missing")
    assert (row.cells["Resource"], row.cells["Mod revision"]) == ("secrets", 4711)
    assert row.facts["Encryption key"] == "aescbc/v1/key2"
    assert row.facts["Its words"] == "no matching key was found for the provided AES transformer"
    assert row.facts["Lease"] == "11"
    evidence, ways = row.blocks
    assert evidence == ("evidence", "What was checked", [["look", "noise", "7 attempts"]])
    assert ways[:2] == ("ways", "Ways out")
    finding = finding_from(one)
    assert ways[2] == [[r.action, r.command.text, r.note] for r in finding.remedies]


def test_what_many_have_in_common_stands_there_once() -> None:
    shared = SharedWords(
        "ab",
        "key-name-missing",
        "the key is lost",
        [FindingEvidence("look", "noise", "7 attempts that all failed")],
    )
    remedy = Remedy("Find it", Command(text="etcdfix scan secrets"), "Soon.")
    lost = LostKey("aescbc/v1/key2", "secrets", ["secrets"], None, 50, 50, 7, 9, [remedy], [shared])
    stream = io.BytesIO()
    reporter = HTMLReporter(stream)
    reporter.begin(header())
    for number in range(50):
        short = msgspec.structs.replace(
            finding_from(examination(f"/registry/secrets/shop/{number}")),
            message="",
            remedies=[],
            shared="ab",
        )
        reporter.finding_of_lost_key(short, shared)
    reporter.end(conclusion(Summary(keys=50, decrypt_failures=50, key_loss=[lost])))
    found = Page(stream.getvalue())
    # The first time a row has it nobody knows yet that it will come again.
    assert found.source.count("7 attempts that all failed") == 2
    assert found.source.count("the key is lost") == 3  # once in the sentence above
    assert "50 of 50 values under aescbc/v1/key2, rule secrets, cannot be read: secrets" in found.words
    row = found.rows()[31]
    assert row.below == "the key is lost"
    assert row.blocks[0] == (
        "evidence",
        "What was checked",
        [["look", "noise", "7 attempts that all failed"]],
    )
    assert "the ways out are the same for all" in row.blocks[-1][2][0][0]


def test_the_policy_lets_in_this_style_and_this_script_alone() -> None:
    found = page([examination()])
    (policy,) = (text for text in found.attributes["content"] if text.startswith("default-src"))
    style, script = found.code
    for kind, text in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert found.tags.isdisjoint({"img", "link", "iframe", "object", "base", "form"})
    assert {"src", "style", "onclick", "onerror"}.isdisjoint(found.attributes)
    assert found.attributes["href"] == {"#main"}
    assert not re.search(r"https?://|url\(|@import", found.source)


def hostile() -> Examination:
    return examination(
        f"/registry/secrets/shop/{HOSTILE}{INVISIBLE}".encode(),
        message=f"holds {HOSTILE}{INVISIBLE}",
        upstream_message=HOSTILE,
        evidence=(Evidence(HOSTILE, INVISIBLE, HOSTILE),),
    )


def test_hostile_names_stay_text() -> None:
    found = page(
        [hostile()],
        source=source(path=HOSTILE, kube_system_uid=HOSTILE, etcd_version=HOSTILE),
        complete=False,
        incomplete_reasons=[HOSTILE + INVISIBLE],
    )
    assert "img" not in found.tags
    assert "onerror" not in found.attributes
    assert len(found.code) == 2
    assert set(found.data) == {"findings"}
    assert all(character.isprintable() or character == "\n" for character in found.source)
    (row,) = found.rows()
    assert HOSTILE in row.key
    assert row.key.endswith(r"\u202egnp.exe\u202c\x1b[2J\x00\u2028\u200b")
    assert "&{{7*7}}" not in found.source
    assert "49" not in row.key
    assert "base64:" not in row.key
    assert row.facts["Key, base64"]


def test_more_than_the_page_takes_is_said() -> None:
    found = reported(
        [finding_from(examination(f"/registry/secrets/shop/{n:04}")) for n in range(300)], most=100
    )
    assert len(found.rows()) == 100
    assert "200 of 300 findings are not in this page" in found.words


def test_warnings_count_as_no_damage() -> None:
    found = page([readable("/registry/pods/shop/a", evidence=(Evidence("look", "odd", "x"),))])
    (row,) = found.rows()
    assert row.cells["Outcome"] == "readable"
    assert row.cells["Severity"] == ""


def test_a_key_as_long_as_etcd_allows_makes_no_long_page() -> None:
    key = "/registry/secrets/shop/" + "x" * 1_000_000
    assert len(page([examination(key)]).source) < 200_000


@pytest.mark.parametrize("outcome", [Outcome.UNDETERMINED, Outcome.INCONSISTENT])
def test_other_outcomes(outcome: Outcome) -> None:
    cause = Cause.KMS_UNREACHABLE if outcome is Outcome.UNDETERMINED else Cause.IDENTITY_MISMATCH
    found = page([examination(outcome=outcome, cause=cause)])
    assert found.rows()[0].cells["Outcome"] == outcome
    badge = "not decided" if outcome is Outcome.UNDETERMINED else "breaks-now"
    assert found.words.startswith(f" etcdfix scan: {badge} ")


class _Nowhere(io.BytesIO):
    def writelines(self, lines: Iterable[object]) -> None:
        for _ in lines:
            pass


def test_memory_does_not_grow_with_the_findings() -> None:
    def peak(number: int) -> int:
        finding = finding_from(examination())
        reporter = HTMLReporter(_Nowhere(), most=1_000_000)
        reporter.begin(header())
        gc.collect()
        tracemalloc.start()
        for count in range(number):
            reporter.finding(
                msgspec.structs.replace(
                    finding, key=f"/registry/secrets/shop/{count}", name=str(count), mod_revision=count * 7
                )
            )
        reporter.end(conclusion())
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    few, many = peak(5_000), peak(10_000)
    assert many < few + 300_000
