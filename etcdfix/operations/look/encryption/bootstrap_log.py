"""Bootstrap values of k3s and RKE2 that etcd's write-ahead log still has, those from before a compaction above all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from etcdfix.copies.model import Sameness
from etcdfix.encryption.server_token import BOOTSTRAP_PREFIX, ServerToken
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import Confidence
from etcdfix.operations.judged_log import JudgedLog
from etcdfix.operations.look.encryption.bootstrap_values import LoggedValue
from etcdfix.sources.base import Source


class LoggedValues(msgspec.Struct, frozen=True):
    """What the logs have.

    Attributes:
        values: Of each key from the oldest to the newest.
        problems: Why that is not everything, one sentence each.
        notes: What else to know of the logs, one sentence each: what speaks against their being of this etcd above all.
    """

    values: tuple[LoggedValue, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_logs(
    directories: Sequence[Path],
    source: Source,
    reading: Reading,
    tokens: Sequence[ServerToken],
    *,
    progress: Progress = no_progress,
) -> LoggedValues:
    """Read every write of a bootstrap key out of the logs of the members of one cluster.

    Writes that etcd may have refused are among them, as ``possible``: what opens with a token, a server wrote.

    Raises:
        OtherHistory: A log is of another history than what is stored now.
        SourceError: A log cannot be read.
    """
    if not directories:
        return LoggedValues()
    with JudgedLog(directories, source, Examiner.of_cluster(source, reading), progress=progress) as judged:
        judged.require_same_history()
        keys = dict.fromkeys([*judged.history.keys(BOOTSTRAP_PREFIX), *(token.etcd_key for token in tokens)])
        same = judged.fit is Sameness.SAME
        values = tuple(
            LoggedValue(
                etcd_key=key,
                value=write.value,
                mod_revision=write.mod_revision,
                log_index=write.entry_index,
                confidence=write.confidence if same else Confidence.POSSIBLE,
                doubt=write.doubt if same else judged.why,
            )
            for key in keys
            for write in judged.history.writes(key)
            if write.value is not None
        )
        notes = [f"write-ahead log: {note}" for note in judged.notes]
        if not same:
            notes.append(
                f"Nothing shows that the write-ahead log is of this etcd: {judged.why}. A server that had this token "
                "wrote what the token opens."
            )
        return LoggedValues(values, tuple(judged.problems), tuple(notes))
