"""What API servers did not say, and what would help."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.servers import APIAccess, ServerAnswer, ServerAnswers
from etcdfix.errors import RefusedByRule
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.preflight import api_servers
from etcdfix.remediation.preflight.api_servers import (
    check_api_servers,
    foretold_of,
    require_api,
    require_read_errors,
)
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.verdicts.causes import Cause
from tests.support.examinations import examination


@pytest.mark.parametrize(
    ("answers", "granted"),
    [
        ((Answer.NO_ANSWER,), False),
        ((Answer.DENIED,), True),
        ((Answer.NO_ANSWER, Answer.DENIED), True),
        ((), False),
    ],
)
def test_only_who_was_denied_needs_a_permission(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[Answer, ...], granted: bool
) -> None:
    said = ServerAnswers(answers=tuple(ServerAnswer(server="https://api", answer=word) for word in answers))
    monkeypatch.setattr(api_servers, "ask_servers", lambda *_args, **_named: said)
    with pytest.raises(RefusedByRule) as caught:
        check_api_servers(examination(), ClusterIdentity(), APIAccess(Path("kubeconfig")), Acceptances())
    assert caught.value.rule == "no-api-server"
    assert caught.value.hint.startswith("have the user allowed" if granted else "name another one")


@pytest.mark.parametrize("key_lost", ["", "aescbc/v1/key1"])
@pytest.mark.parametrize("always", ["", "--from-object"])
def test_who_must_be_asked(key_lost: str, always: str) -> None:
    accepted = Acceptances(key_lost=key_lost)
    named = APIAccess(Path("kubeconfig"))
    require_api(named, accepted, always=always)
    require_api(None, Acceptances(key_lost=key_lost, words=("no-api-server",)), always=always)
    if not (key_lost or always):
        require_api(None, accepted, always=always)
        return
    with pytest.raises(RefusedByRule) as caught:
        require_api(None, accepted, always=always)
    assert caught.value.rule == "no-api-server"
    assert caught.value.message.startswith("--declare-key-lost: no" if key_lost else "--from-object: no")


ALL_FAIL = (Answer.READ_ERROR, Answer.READ_ERROR)


@pytest.mark.parametrize(
    ("answers", "all_known", "refused"),
    [
        (ALL_FAIL, True, ""),
        (ALL_FAIL[:1], True, ""),
        (ALL_FAIL, False, "lists no API server"),
        *(
            ((Answer.READ_ERROR, other), True, f"https://api-1: {other}")
            for other in Answer
            if other is not Answer.READ_ERROR
        ),
    ],
)
def test_possible_damage_needs_the_word_of_every_server(
    answers: tuple[Answer, ...], all_known: bool, refused: str
) -> None:
    said = ServerAnswers(
        answers=tuple(ServerAnswer(server=f"https://api-{n}", answer=word) for n, word in enumerate(answers)),
        all_known=all_known,
    )
    if not refused:
        require_read_errors(examination(), APIAccess(Path("kubeconfig")), said)
        return
    with pytest.raises(RefusedByRule) as caught:
        require_read_errors(examination(), APIAccess(Path("kubeconfig")), said)
    assert caught.value.rule == "no-api-server"
    assert refused in caught.value.message


def test_possible_damage_where_nobody_was_to_be_asked() -> None:
    with pytest.raises(RefusedByRule) as caught:
        require_read_errors(examination(), None, ServerAnswers())
    assert caught.value.rule == "no-api-server"
    assert "--kubeconfig FILE" in caught.value.hint


@pytest.mark.parametrize("cause", [Cause.KMS_UNREACHABLE, Cause.KMS_DENIED, Cause.WRONG_KEY])
def test_an_outage_counts_for_nothing_where_the_plugin_is_silent_here(cause: Cause) -> None:
    assert foretold_of(examination(cause=cause)).plugin_silent == (cause is Cause.KMS_UNREACHABLE)
