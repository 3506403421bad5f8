"""What a server says of one object that it reads from etcd."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.apiserver import client as api_client
from etcdfix.apiserver.kubeconfig import APIAccess, open_access
from etcdfix.apiserver.objects import Answer, APIObject, Foretold, read_object
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.fixtures import Patch
from tests.support.kubernetes_api import Answer as Sent
from tests.support.kubernetes_api import KubernetesAPI, object_answer, read_error, status_answer

THING = APIObject("", "v1", "secrets", "shop", "db")
PATH = "/api/v1/namespaces/shop/secrets/db"


NO_READ_ERROR = "it answered 500, and not that it cannot read this value"


@pytest.mark.parametrize(
    ("sent", "answer", "detail"),
    [
        (object_answer(name="db", uid="u", resourceVersion="17"), Answer.READS_IT, ""),
        (
            object_answer(),
            Answer.NO_ANSWER,
            "it answered with an empty object, and etcd holds more than that",
        ),
        (read_error(), Answer.READ_ERROR, ""),
        (status_answer(500), Answer.NO_ANSWER, NO_READ_ERROR),
        (status_answer(404, name="db"), Answer.NOT_FOUND, ""),
        (status_answer(404), Answer.NO_ANSWER, "it answered 404, and no Status that names the object"),
        (status_answer(403), Answer.DENIED, "it does not let the kubeconfig's user get the object (403)"),
        (status_answer(503), Answer.NO_ANSWER, "it answered 503"),
    ],
)
def test_what_each_answer_means(
    authority: CertificateAuthority,
    tmp_path: Path,
    monkeypatch: Patch,
    sent: Sent,
    answer: Answer,
    detail: str,
) -> None:
    monkeypatch.setattr(api_client, "sleep", lambda _seconds: None)
    with KubernetesAPI(authority) as api:
        api.instead[PATH] = sent
        access = open_access(APIAccess(api.kubeconfig(tmp_path)))
        said = read_object(access.server(api.url), THING, foretold=Foretold(""))
        assert (said.server, said.answer, said.detail) == (api.url, answer, detail)
        assert said.resource_version == ("17" if answer is Answer.READS_IT else "")
        assert said.passing is (sent.status == 503)
        assert str(THING) == "secrets shop/db"
        access.close()


@pytest.mark.parametrize(
    ("foretold", "sent", "is_one"),
    [
        ("invalid padding on input", read_error("invalid padding on input"), True),
        ("unexpected EOF", read_error("unexpected EOF", reason=None), True),
        ("proto: cannot parse", read_error("proto:\u00a0cannot parse"), True),
        ("got <5 bytes withheld>!", read_error("got s3cr\n!"), True),
        ("anything", read_error(), True),
        ("", read_error(), True),
        (
            "",
            read_error('unable to transform key "/registry/secrets/shop/db": no matching prefix found'),
            True,
        ),
        # Said of the value, and not this one's.
        ("invalid padding on input", read_error("no matching prefix found"), False),
        # Nothing is foretold, or nothing but data.
        ("", read_error("no matching prefix found"), False),
        ("<5 bytes withheld>", read_error("hello"), False),
        # Words of a connection that is lost on the way to a webhook.
        ("unexpected EOF", read_error("failed calling webhook: unexpected EOF"), False),
        ("EOF", read_error("conversion webhook for widgets failed: Post: EOF"), False),
        # Not the Status of a read error.
        ("", read_error(reason="Timeout"), False),
        ("", read_error(code=504), False),
        ("", Sent(500, b'{"kind": "Secret", "code": 500, "message": "StorageError: corrupt object"}'), False),
        ("StorageError: corrupt object", Sent(500, b"StorageError: corrupt object"), False),
        ("", Sent(500, b""), False),
    ],
)
def test_what_a_read_error_is(foretold: str, sent: Sent, *, is_one: bool) -> None:
    assert Foretold(foretold).is_read_error(sent.body) == is_one


@pytest.mark.parametrize("code", ["Unavailable", "DeadlineExceeded"])
@pytest.mark.parametrize(
    "words",
    [
        "{}",
        "failed to decrypt DEK, error: {}",
        'unable to transform key "/registry/secrets/shop/db": failed to decrypt DEK, error: {}',
        "StorageError: corrupt object, {}",
    ],
)
def test_an_outage_of_a_plugin_is_no_read_error_where_ours_is_silent_too(words: str, code: str) -> None:
    message = words.format(f"rpc error: code = {code} desc = no plugin")
    sent = read_error(message)
    assert not Foretold(message, plugin_silent=True).is_read_error(sent.body)
    assert Foretold(message).is_read_error(sent.body)  # of a value that is proven damaged here
    known = message.replace(code, "NotFound")
    assert Foretold(known, plugin_silent=True).is_read_error(read_error(known).body)


def test_an_answer_too_long_to_be_read_is_no_read_error() -> None:
    assert not Foretold("unexpected EOF").is_read_error(None)
