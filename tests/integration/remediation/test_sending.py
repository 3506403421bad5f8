"""A sender in the place of the transaction: the same backup and records, and every outcome that it can tell."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix.errors import EtcdfixError, RefusedByRule, SourceUnreachable
from etcdfix.operations.change import delete as delete_module
from etcdfix.operations.change.delete import DeleteRequest, run_delete
from etcdfix.remediation.audit.record import Result
from etcdfix.remediation.audit.verify import verify
from etcdfix.remediation.change import carry_out
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step
from etcdfix.remediation.sending import Sent
from etcdfix.remediation.writer import Expected
from etcdfix.rules import Rule, refuse
from tests.support.change_runs import BROKEN, Agreeing, Registry

pytestmark = pytest.mark.etcd


class Told:
    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.expected: list[Expected] = []

    def send(self, expected: Expected, *, step: Step) -> Sent:
        step("told")
        self.expected.append(expected)
        return self.sent


def _run(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, sender: Told, *, dry_run: bool = False
) -> ChangeOutcome:
    def with_sender(*arguments: Any, **named: Any) -> ChangeOutcome:
        return carry_out(*arguments, **named, sender=sender)

    monkeypatch.setattr(delete_module, "carry_out", with_sender)
    with registry.cluster() as cluster:
        return run_delete(
            cluster,
            DeleteRequest(
                key=registry.key("shop/broken"), reason="r", record_paths=registry.places, dry_run=dry_run
            ),
            Agreeing(),
            preview=lambda _found: None,
        )


def test_what_it_says_is_recorded_after_backup_and_intent(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Told(
        Sent(result=Result.FIXED, detail="by a server", revision=77, warnings=("odd",), doubtful=True)
    )
    outcome = _run(registry, monkeypatch, sender)
    assert (outcome.result, outcome.detail, outcome.revision) == (Result.FIXED, "by a server", 77)
    assert outcome.doubtful
    assert outcome.warnings[0] == "odd"
    (expected,) = sender.expected
    assert expected.stored is not None
    assert expected.stored.value == BROKEN
    assert registry.stored(registry.key("shop/broken")) == BROKEN
    (backup,) = registry.kept()
    assert backup.content.stored.value == BROKEN
    assert [event.annotations.outcome for event in registry.events()] == ["", "fixed"]
    assert not verify(registry.log).open_intents


@pytest.mark.parametrize("error", [refuse(Rule.SERVER_REFUSED, "no"), SourceUnreachable("nobody is there")])
def test_its_refusal_is_recorded_and_raised(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, error: EtcdfixError
) -> None:
    result = Result.REFUSED if isinstance(error, RefusedByRule) else Result.NOT_APPLIED
    with pytest.raises(type(error)) as caught:
        _run(registry, monkeypatch, Told(Sent(result=result, detail="why", refusal=error)))
    assert caught.value is error
    assert registry.events()[-1].annotations.outcome == result.value
    assert registry.events()[-1].annotations.detail == "why"
    assert not verify(registry.log).open_intents


def test_what_nobody_knows_stays_open(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = _run(registry, monkeypatch, Told(Sent(result=Result.UNKNOWN, detail="silence")))
    assert (outcome.result, outcome.doubtful) == (Result.UNKNOWN, False)
    assert len(verify(registry.log).open_intents) == 1


def test_a_dry_run_asks_it_nothing(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Told(Sent(result=Result.FIXED, detail=""))
    outcome = _run(registry, monkeypatch, sender, dry_run=True)
    assert (outcome.result, sender.expected) == (None, [])
