"""Has an API server write one object anew, and finds out from etcd what became of it: its answer is no proof.

It is the only change that goes through the API. A server's own dry run cannot work here: it reads etcd, and fails. So
a dry run is all the checks, and no request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from etcdfix.apiserver.client import AGAIN, NOT_UNDERSTOOD, NoReply, Reply
from etcdfix.apiserver.memory import Holder
from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.reading import read_by_each
from etcdfix.copies.rescued import read_saved
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import ConfigurationError, EtcdfixError, SourceError
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import Record, Result, Verb
from etcdfix.remediation.change import PATCH, Change, ChangeRequest, Confirmer, carry_out
from etcdfix.remediation.checks.memory import SILENT
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.commit import ChangeOutcome, Sent
from etcdfix.remediation.datastore import Expected, describe_move, find_difference, find_elsewhere
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.memory.held import HeldObject
from etcdfix.remediation.patcher import FIXED_AT, now_text, patch_annotation
from etcdfix.remediation.present import Present
from etcdfix.remediation.settle import PatchProof
from etcdfix.report.objects import Form, Viewer
from etcdfix.text.safetext import safe_text

_STOPPED_WAITING: Final = frozenset({408, 502, 503, 504})
"""Statuses of who gave up: a server at its time-out, or a proxy before it. The write may be on its way all the same."""
_FINE: Final = frozenset({Outcome.READABLE, Outcome.INCONSISTENT})
_MAY_COME: Final = "the key stands as it was examined, and the request may still be on its way"


def patch_from_memory(
    cluster: Cluster,
    request: ChangeRequest,
    key: bytes,
    confirmer: Confirmer,
    *,
    preview: Callable[[Change], None],
    step: Step = no_step,
) -> ChangeOutcome:
    """Have an API server write one object anew, or find out whether it could.

    Raises RemediationRefused, AuditError or SourceError.
    """
    present, at = Present(cluster, key, request, alone=True, step=step), now_text()
    with HeldObject(present) as held:
        change = Change(Verb.FIX, present, request, patch=intent_detail(at), held=held)
        return carry_out(PATCH, change, confirmer, preview=preview, sender=PatchSender(held, at))


def intent_detail(at: str) -> str:
    """Return what the intent says; the annotation by which its write is known again ends it."""
    return f"by a merge PATCH that sets {FIXED_AT}={at}"


def was_patched(examiner: Examiner, intent: Record, stored: StoredValue) -> PatchProof:
    """Say whether a value opens, and carries the annotation that an intent asked for."""
    found = examiner.examine(stored)
    at = _annotation(_document(examiner, found)) if found.opened else ""
    if at and intent.detail == intent_detail(at):
        return PatchProof(True)
    if found.verdict.outcome is Outcome.UNDETERMINED:
        return PatchProof(None, found.verdict.message)
    return PatchProof(False)


class PatchSender:
    """Asks an API server once for the PATCH of one object, and finds out what became of it.

    Attributes:
        server: The one that wrote it, "" where none is known to have.
        changed: Names of the fields in which it differs from the saved copy, besides what every such write changes.
    """

    def __init__(self, held: HeldObject, at: str) -> None:
        self._held, self._at, self._cluster = held, at, held.present.cluster
        self._now = self._cluster.now
        self.server = ""
        self.changed: tuple[str, ...] = ()

    def send(self, expected: Expected, *, step: Step) -> Sent:
        """Ask the servers that hold the object, one after the other, until etcd's key moves; raises nothing."""
        held = self._held
        step("patch: compare")
        try:
            difference = find_difference(expected, self._now.sight(expected.key, expected.landmarks))
        except SourceError as exc:
            return Sent(result=Result.NOT_APPLIED, detail=f"no request was sent: {exc.message}", refusal=exc)
        if difference is not None:
            rule, text, hint = difference
            return self._refused(Result.REFUSED, rule, f"{text}; no request was sent", hint)
        refusals = []
        for holder in held.chosen.holders:
            step("patch: request")
            reply = patch_annotation(
                holder.server,
                holder.memory.path,
                uid=held.chosen.uid,
                resource_version=held.mod_revision,
                at=self._at,
            )
            step("patch: answer")
            sent = self._judge(expected, holder, reply)
            if sent is not None:
                return sent
            assert isinstance(reply, Reply)  # silence is judged
            refusals.append((holder.server.address, reply.status))
            if not held.chosen.ended:
                break  # it had the object a moment ago: that it refuses is a surprise
        return self._unmoved(refusals)

    def _unmoved(self, refusals: list[tuple[str, int]]) -> Sent:
        """Return that no server wrote anything; the reasons are in their answers, and those may quote the object."""
        said = ", ".join(f"{address} answered {status}" for address, status in refusals)
        if self._held.chosen.ended:
            text = f"no API server that was asked still holds it ({said}); nothing was changed"
            hint = (
                "a server that has run since before the key was lost may: name each with --server URL; else "
                f"what is left of it: {self._held.what_is_left()}"
            )
        elif refusals[-1][1] == 500:
            text = f"refused, reason not told ({said}); nothing was changed"
            hint = (
                "admission that forbids the update, or another server behind that address, are answered so too: look "
                "at admission policies and webhooks, and name each server with --server URL"
            )
        elif refusals[-1][1] == 429:
            text = f"the API server has too much to do ({said}); nothing was changed"
            hint = AGAIN
        else:
            text = f"refused ({said}); nothing was changed"
            hint = "the answer may quote the object, so it is not shown: see that server's audit log"
        return self._refused(Result.REFUSED, Rule.SERVER_REFUSED, text, hint)

    def _refused(self, result: Result, rule: Rule, text: str, hint: str) -> Sent:
        key = display(self._held.present.key)
        return Sent(result=result, detail=text, refusal=refuse(rule, f"{key}: {text}", hint=hint))

    def _judge(self, expected: Expected, holder: Holder, reply: Reply | NoReply) -> Sent | None:
        """Say what a request came to, by what etcd holds now; None where it was answered and nothing moved."""
        said = _said(holder.server.address, reply)
        try:
            seen = self._now.sight(expected.key, expected.landmarks)
        except SourceError as exc:
            return _unknown(f"{said}; reading the key again failed: {exc.message}")
        elsewhere = find_elsewhere(expected.landmarks, seen)
        if elsewhere is not None:
            return _unknown(f"{said}; {elsewhere.text}")
        present = seen.reading.stored
        if expected.stands(present):
            return self._stayed(said, reply)
        if present is None or present.create_revision != self._held.found.stored.create_revision:
            text = f"{said}; {describe_move(expected, present)}"
            if _came_to_nothing(reply):
                return self._refused(Result.REFUSED, Rule.MOVED, text, "examine it again")
            return Sent(result=Result.APPLIED_OR_GONE, detail=text, revision=seen.reading.revision)
        return self._moved(holder, reply, present)

    def _stayed(self, said: str, reply: Reply | NoReply) -> Sent | None:
        if isinstance(reply, NoReply):
            if reply.sent:
                return _unknown(f"{said}; {_MAY_COME}")
            text = f"{said}: it was not reached; nothing was changed"
            return self._refused(
                Result.NOT_APPLIED, Rule.NO_API_SERVER, text, "let it answer, or name another"
            )
        if reply.status in _STOPPED_WAITING:
            return _unknown(f"{said}, which does not say whether it was done; {_MAY_COME}")
        if reply.status < 300:
            return Sent(
                result=Result.ANOMALY,
                detail=f"{said}, and the key stands as it was examined: that server writes elsewhere",
            )
        return None

    def _moved(self, holder: Holder, reply: Reply | NoReply, present: StoredValue) -> Sent:
        """Judge a request after which the key moved: only what decrypts and decodes counts."""
        examiner = self._cluster.examiner
        found = examiner.examine(present)
        moved = f"{_said(holder.server.address, reply)}; the key moved to mod_revision {present.mod_revision}"
        document = _document(examiner, found) if found.opened else {}
        ours = _annotation(document) == self._at
        if not ours and _came_to_nothing(reply):
            return self._refused(Result.REFUSED, Rule.MOVED, f"{moved}, by somebody else", "examine it again")
        outcome, message = found.verdict.outcome, found.verdict.message
        if not found.opened and outcome is Outcome.UNDETERMINED:
            return _unknown(f"{moved}, and what was written cannot be examined now: {message}")
        wrong = ""
        if not found.opened or outcome not in _FINE:
            wrong = f"today's configuration does not read what was written: {message}"
        elif found.decoded is None or found.decoded.uid != self._held.chosen.uid.encode():
            wrong = "the object there has another uid"
        if wrong:
            return Sent(result=Result.ANOMALY, detail=f"{moved}, and {wrong}", revision=present.mod_revision)
        if not ours:
            return Sent(
                result=Result.APPLIED_OR_GONE,
                detail=f"{moved}, its value opens, and does not carry the annotation of this change: by it, or by "
                "somebody else",
                revision=present.mod_revision,
            )
        return self._written(holder, reply, found, document)

    def _written(
        self, holder: Holder, reply: Reply | NoReply, found: Examination, stored: dict[str, Any]
    ) -> Sent:
        self.server = holder.server.address
        warnings: list[str] = []
        answer: bytes | None = None
        if isinstance(reply, Reply) and reply.status == 200:
            answer = reply.body
        else:
            warnings.append(f"{_said(self.server, reply)}, and etcd shows that it was done")
        written, document = self._as_patched(answer, found, stored)
        if written is not found:
            warnings.append(f"it was written again since, at mod_revision {found.stored.mod_revision}")
        doubts: list[str] = []
        beyond = self._compare(document, doubts, warnings)
        by = f"by {self.server}, with {found.transformer}"
        if beyond:
            return Sent(
                result=Result.ANOMALY,
                detail=f"{by}; what etcd holds now differs from the saved copy: {', '.join(self.changed)}",
                revision=found.stored.mod_revision,
                warnings=tuple(warnings),
            )
        if found.stale:
            doubts.append(
                f"it was written with {found.transformer}, which is not today's write key: that server has another "
                "configuration"
            )
        if found.verdict.outcome is not Outcome.READABLE:
            doubts.append(f"it opens, and is {found.verdict.outcome}: {found.verdict.message}")
        doubts += self._unread_elsewhere()
        return Sent(
            result=Result.FIXED,
            detail="; ".join(
                [by, *([f"changed besides: {', '.join(self.changed)}"] if self.changed else []), *doubts]
            ),
            revision=found.stored.mod_revision,
            warnings=(*doubts, *warnings),
            doubtful=bool(doubts),
        )

    def _unread_elsewhere(self) -> list[str]:
        try:
            answers = read_by_each(self._held.all_servers, self._held.thing)
        except EtcdfixError as exc:
            return [f"whether the other API servers read it is not known: {exc.message}"]
        return [
            f"the API server at {said.server} does not read it ({said.answer}"
            + (f": {said.detail}" if said.detail else "")
            + "): it may lack today's write key"
            for said in answers
            if said.answer is not Answer.READS_IT
            and not (said.answer in SILENT and said.server in self._held.unchecked)
        ]

    def _as_patched(
        self, answer: bytes | None, found: Examination, stored: dict[str, Any]
    ) -> tuple[Examination, dict[str, Any]]:
        """Return what etcd held at the revision of the PATCH, which its answer names; the newest where it is gone.

        A controller may write the object again at once. Only a value that carries the annotation of this change counts.
        """
        told = _metadata(_parsed(answer) or {}).get("resourceVersion")
        newest = found.stored.mod_revision
        revision = int(told) if isinstance(told, str) and told.isdecimal() and len(told) < 20 else newest
        if not self._held.mod_revision < revision < newest:
            return found, stored
        try:
            then = self._now.read_at(found.stored.key, revision)
        except SourceError:
            return found, stored
        if then is None or then.mod_revision != revision:
            return found, stored
        examiner = self._cluster.examiner
        written = examiner.examine(then)
        document = _document(examiner, written)
        ours = _annotation(document) == self._at and _metadata(document).get("uid") == self._held.chosen.uid
        return (written, document) if ours else (found, stored)

    def _compare(self, stored: dict[str, Any], doubts: list[str], notes: list[str]) -> bool:
        """Say whether etcd holds more than labels and annotations otherwise than the saved copy."""
        saved = self._held.exact
        if saved is None:
            notes.append(
                "no saved copy is of this very write, so what admission may have changed is not known"
            )
            return False
        why = "one of the two cannot be read as JSON"
        try:
            before = _parsed(read_saved(self._held.rescued, saved))
            if before is not None and before.get("apiVersion") != stored.get("apiVersion"):
                # Fields of two versions have other names.
                before, why = None, f"etcd holds it as {safe_text(str(stored.get('apiVersion')))}"
            if before is not None:
                self.changed, beyond = differences(before, stored)
                if self.changed and not beyond:
                    notes.append(f"admission changed it: {', '.join(self.changed)}")
                return beyond
        except ConfigurationError as exc:
            why = exc.message
        except RecursionError:
            why = "it is nested too deeply"
        doubts.append(f"it could not be compared with the saved copy: {why}")
        return False


def differences(before: dict[str, Any], after: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Return the fields in which an object differs from its saved copy, and whether more than labels were added.

    What every write changes does not count, nor what servers before 1.20 only add to an answer; a change of an
    annotation counts as a new generation with some kinds. Nothing below a field is named: it may be a secret.
    Raises RecursionError.
    """
    old, new = _comparable(before), _comparable(after)
    changed = [safe_text(name) for name in sorted({*old, *new} - {"metadata"}) if _differ(old, new, name)]
    beyond = bool(changed)
    metadata, written = old["metadata"], new["metadata"]
    for name in sorted({*metadata, *written}):
        if _differ(metadata, written, name):
            changed.append(safe_text(f"metadata.{name}"))
            there, kept = written.get(name), metadata.get(name, {})
            added = isinstance(there, dict) and isinstance(kept, dict) and kept.items() <= there.items()
            beyond |= name not in {"labels", "annotations"} or not added
    return tuple(changed), beyond


_WRITTEN_EACH_TIME: Final = frozenset({"managedFields", "resourceVersion", "selfLink", "generation"})


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in _metadata(document).items() if name not in _WRITTEN_EACH_TIME}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != FIXED_AT}
    bare = {**_without_nulls(document), "metadata": _without_nulls(metadata)}
    for name in ("labels", "annotations"):
        if bare["metadata"].get(name) == {}:
            del bare["metadata"][name]
    return bare


def _without_nulls(value: Any) -> Any:
    """Return a copy without members that are null: they say nothing, and older servers write them."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [*map(_without_nulls, value)] if isinstance(value, list) else value


def _differ(old: dict[str, Any], new: dict[str, Any], name: str) -> bool:
    """Say whether a member is another one: unlike for Python, 1 is neither 1.0 nor true."""
    one, other = (msgspec.json.encode(each.get(name), order="deterministic") for each in (old, new))
    return one != other or (name in old) is not (name in new)


def _unknown(detail: str) -> Sent:
    return Sent(result=Result.UNKNOWN, detail=detail)


def _came_to_nothing(reply: Reply | NoReply) -> bool:
    if isinstance(reply, NoReply):
        return not reply.sent
    return reply.status >= 300 and reply.status not in _STOPPED_WAITING


def _said(address: str, reply: Reply | NoReply) -> str:
    if isinstance(reply, NoReply):
        return f"{address} gave no answer ({reply.text})"
    return f"{address} answered {reply.status}"


def _document(examiner: Examiner, found: Examination) -> dict[str, Any]:
    shown = Viewer(examiner, reveal=True).show(found)
    return shown.document if shown.form is Form.OBJECT else {}


def _metadata(document: dict[str, Any]) -> dict[str, Any]:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _annotation(document: dict[str, Any]) -> str:
    annotations = _metadata(document).get("annotations")
    return str(annotations.get(FIXED_AT, "")) if isinstance(annotations, dict) else ""


def _parsed(raw: bytes | None) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(raw or b"")
    except NOT_UNDERSTOOD:
        return None
    return found if isinstance(found, dict) else None
