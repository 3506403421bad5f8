"""What every command that changes one etcd key does first: options read, the terminal asked for, etcd opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from etcdfix.apiserver.servers import APIAccess
from etcdfix.cli.change_output import Teller
from etcdfix.cli.confirm import Terminal
from etcdfix.cli.options import (
    change_output_option,
    configuration_of,
    gather_inputs,
    live_options,
    main_etcd_options,
    option_group,
    reading_options,
)
from etcdfix.cli.output import require_output, say
from etcdfix.cli.places import api_access, record_paths
from etcdfix.cli.progress import progress_of
from etcdfix.cli.safety import (
    acceptances,
    change_options,
    expectation_options,
    require_reason,
)
from etcdfix.examine_all import Progress
from etcdfix.operations.opening import Candidates, Inputs, open_candidates, open_cluster, without_candidates
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.text.commands import RunOptions

etcd_options = option_group(live_options, main_etcd_options, reading_options)
"""Which etcd, and how its values are read."""

present_value_options = option_group(change_options, change_output_option, expectation_options)
"""Of a change to a value that is there."""


class OpenChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change whose options are read and whose etcd is open."""

    key: bytes
    teller: Teller
    inputs: Inputs
    cluster: Cluster
    candidates: Candidates
    request: dict[str, Any]
    api: APIAccess | None
    confirmer: Terminal
    progress: Progress

    @property
    def run(self) -> RunOptions:
        """What a command must repeat."""
        return self.inputs.run_options(api=self.api, places=self.request["record_paths"])


def request_fields(options: dict[str, Any], inputs: Inputs, api: APIAccess | None) -> dict[str, Any]:
    """Return the fields of every :class:`~etcdfix.remediation.change.ChangeRequest`, and of a run's."""
    return {
        "reason": options["reason"],
        "accepted": acceptances(options),
        "record_paths": record_paths(options),
        "api": api,
        "etcd_user": inputs.etcd_user,
        "dry_run": options["dry_run"],
    }


@contextmanager
def open_change(
    verb: Verb,
    options: dict[str, Any],
    named: Callable[[], bytes],
    *,
    candidates: Sequence[Path] = (),
    through_the_api: bool = False,
) -> Iterator[OpenChange]:
    """Read the options of a change and open etcd; an error is told in the form that was asked for.

    Raises:
        click.UsageError: Options contradict each other, or the reason is empty.
        EtcdfixError: An option makes no sense, or etcd cannot be opened.
    """
    require_reason(options)
    require_output()
    with Teller(verb, options["output"], dry_run=options["dry_run"]) as teller:
        api = api_access(options)
        key = teller.key = named()
        given = gather_inputs(options, key=key)
        inputs = without_candidates(given, candidates)
        with (
            open_cluster(inputs, configuration_of, say=say, through_the_api=through_the_api) as cluster,
            open_candidates(cluster.source, given, candidates) as others,
        ):
            yield OpenChange(
                key=key,
                teller=teller,
                inputs=inputs,
                cluster=cluster,
                candidates=others,
                request=request_fields(options, inputs, api),
                api=api,
                confirmer=Terminal(yes=options["yes"]),
                progress=progress_of(cluster.source),
            )
