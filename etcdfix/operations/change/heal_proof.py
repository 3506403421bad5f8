"""Whether a heal whose outcome nobody recorded was done after all: the value tells, where it opens."""

from __future__ import annotations

from etcdfix.errors import RemediationRefused
from etcdfix.model import StoredValue
from etcdfix.operations.change.heal_sender import was_healed_under
from etcdfix.operations.opening import Inputs, load_encryption, open_examiner, open_source
from etcdfix.remediation.audit.record import Intent
from etcdfix.remediation.reconcile import Carried, WasHealed


def heal_proof(inputs: Inputs) -> WasHealed:
    """Return what tells of a stored value whether it carries what an intent asked for.

    What it returns raises:
        RemediationRefused: Without a configuration nothing opens, and nothing can be told.
        ConfigurationError: Options or the configuration make no sense.
        SourceError: etcd cannot be read.
    """

    def was_healed(intent: Intent, stored: StoredValue) -> Carried:
        configuration = load_encryption(inputs)
        if configuration is None:
            raise RemediationRefused(
                f"intent {intent.link.sequence} is a heal, and the key was written since: only the value tells by whom",
                hint="--encryption-config FILE: the one that the API servers use today",
            )
        with (
            open_source(inputs, say=lambda _said_before: None) as source,  # opened a moment ago
            open_examiner(source, inputs, configuration) as examiner,
        ):
            return was_healed_under(examiner, intent, stored)

    return was_healed
