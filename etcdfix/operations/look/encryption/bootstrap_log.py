"""Bootstrap values of k3s and RKE2 that etcd's write-ahead log still has, those from before a compaction above all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import msgspec

from etcdfix.encryption.server_token import BOOTSTRAP_PREFIX, ServerToken
from etcdfix.errors import SourceError
from etcdfix.operations.look.encryption.bootstrap_values import LoggedValue
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.wal.log import LogHistory, WriteAheadLog, database_beside
from etcdfix.sources.wal.model import Kinship


class LoggedValues(msgspec.Struct, frozen=True):
    """What the logs have.

    Attributes:
        values: Of each key from the oldest to the newest.
        problems: Why that is not everything, one sentence each.
        doubt: What speaks against their being of this etcd, one sentence; "" for nothing.
    """

    values: tuple[LoggedValue, ...] = ()
    problems: tuple[str, ...] = ()
    doubt: str = ""


def read_logs(directories: Sequence[Path], source: Source, tokens: Sequence[ServerToken]) -> LoggedValues:
    """Read every write of a bootstrap key out of the logs of the members of one cluster.

    Writes that etcd may have refused are among them: what opens with a token, a server wrote.

    Args:
        directories: ``member/wal`` of each member; none for no log.
        source: What is stored now, with which the logs are compared.
        tokens: Whose keys are looked for.

    Raises:
        SourceError: A log cannot be read, or is of another history.
    """
    if not directories:
        return LoggedValues()
    with ExitStack() as stack:
        log = stack.enter_context(WriteAheadLog.open(*directories))
        others: list[Source] = []
        for database in filter(None, map(database_beside, directories)):
            with suppress(SourceError):  # a running etcd holds it
                others.append(stack.enter_context(SnapshotSource(database)))
        history = stack.enter_context(closing(log.history(source, others=others)))
        log.require_same_history(history)
        keys = dict.fromkeys([*history.keys(BOOTSTRAP_PREFIX), *(token.etcd_key for token in tokens)])
        values = tuple(one for key in keys for one in _of_key(history, key))
        doubt = ""
        if history.agreement.kinship is not Kinship.SAME_HISTORY:
            doubt = (
                f"nothing shows that the write-ahead log is of this etcd: {history.agreement.sentence}; what a token "
                "opens was written by a server that had this token"
            )
        return LoggedValues(values, (*log.problems, *history.problems), doubt)


def _of_key(history: LogHistory, key: bytes) -> Iterator[LoggedValue]:
    for write in history.writes(key):
        if write.value is not None:
            yield LoggedValue(
                etcd_key=key,
                value=write.value,
                mod_revision=write.mod_revision,
                log_index=write.entry_index,
                confidence=write.confidence,
            )
