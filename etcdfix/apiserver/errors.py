"""What keeps us from asking an API server."""

from __future__ import annotations

from dataclasses import dataclass

from etcdfix.model.errors import ConfigurationError, RemediationRefused


class KubernetesClientMissing(ConfigurationError):
    """Raised when ``--kubeconfig`` is used and the package that reads it is not installed."""

    code = "kubernetes-client-missing"


class KubeconfigInvalid(ConfigurationError):
    """Raised when the kubeconfig cannot be read, or lacks the context that is asked for."""

    code = "kubeconfig-invalid"


@dataclass(eq=False, repr=False, kw_only=True)
class AuthorizationRefused(RemediationRefused):
    """Raised when the API server did not clearly say yes.

    Attributes:
        reason: Which kind of no or doubt, one of ``remediation.authorization.RefusalReason``.
        detail: Why there was no answer, part of a sentence; "" where there was one.
    """

    code = "authorization-refused"
    reason: str
    detail: str = ""
