"""What a server says of one object that it reads from etcd."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.apiserver.client import open_access
from etcdfix.apiserver.objects import Answer, APIObject, Said, look_for
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.kubernetes_api import Answer as Sent
from tests.support.kubernetes_api import KubernetesAPI, object_answer, status_answer

THING = APIObject("", "v1", "secrets", "shop", "db")
PATH = "/api/v1/namespaces/shop/secrets/db"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (object_answer(name="db", uid="u", resourceVersion="17"), Said(Answer.READS_IT, "", "17")),
        (object_answer(), Said(Answer.EMPTY)),
        (status_answer(500), Said(Answer.READ_ERROR)),
        (status_answer(404, name="db"), Said(Answer.NOT_FOUND)),
        (status_answer(404), Said(Answer.NOT_FOUND, "it does not serve secrets")),
        (
            status_answer(403),
            Said(Answer.DENIED, "it does not let the kubeconfig's user get the object (403)"),
        ),
        (status_answer(418), Said(Answer.NO_ANSWER, "it answered 418")),
        (status_answer(503), Said(Answer.NO_ANSWER, "it answered 503", again_after=1)),
        (
            status_answer(429),
            Said(Answer.NO_ANSWER, "it answered 429: it has too much to do", again_after=1),
        ),
    ],
)
def test_what_each_answer_means(
    authority: CertificateAuthority, tmp_path: Path, sent: Sent, said: Said
) -> None:
    with KubernetesAPI(authority) as api:
        api.instead[PATH] = sent
        access = open_access(str(api.kubeconfig(tmp_path)), None, timeout_seconds=30, request_seconds=15)
        assert look_for(access.server(api.url), THING, certain=True) == said
        assert str(THING) == "secrets shop/db"
        access.close()
