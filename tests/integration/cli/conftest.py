from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.testing.certificates import CertificateAuthority
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import KUBE_SYSTEM_UID


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority, uid=KUBE_SYSTEM_UID) as server:
        yield server
