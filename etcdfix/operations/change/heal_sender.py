"""Asks an API server for one heal, and finds out from etcd what became of it: what the server says is no proof."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

import msgspec

from etcdfix.apiserver.client import NoReply, Reply
from etcdfix.apiserver.holders import Holder, read_by_each
from etcdfix.apiserver.objects import NOT_UNDERSTOOD, Answer
from etcdfix.apiserver.patience import AGAIN
from etcdfix.errors import ConfigurationError, EtcdfixError, SourceError
from etcdfix.examine import Examiner
from etcdfix.model import Outcome, StoredValue
from etcdfix.operations.change.field_changes import field_changes
from etcdfix.operations.change.heal_look import SILENT, Ground, Healable
from etcdfix.remediation.audit.record import Intent, Result
from etcdfix.remediation.durable import Step
from etcdfix.remediation.landmarks import Sighting, find_elsewhere
from etcdfix.remediation.patcher import HEALED_AT, LONGEST_ANSWER, patch_annotation
from etcdfix.remediation.reconcile import Carried
from etcdfix.remediation.sending import Sent
from etcdfix.remediation.writer import Expected, KeyState, describe_move, evaluate_compare
from etcdfix.report.objects import Form, Viewer
from etcdfix.rescued import read_saved
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.text.safetext import safe_text
from etcdfix.verdicts.examination import Examination

_MOST_CHANGES: Final = 20
_LABELS: Final = re.compile(r"metadata\.(?:labels|annotations)(?:[.\[]|$)")
_STOPPED_WAITING: Final = frozenset({408, 502, 503, 504})
"""Statuses of who gave up: a server at its time-out, or a proxy before it. The write may be on its way all the same."""
_FINE: Final = frozenset({Outcome.READABLE, Outcome.INCONSISTENT})


def intent_detail(at: str) -> str:
    """Return what the intent of a heal says; the annotation by which its write is known again ends it."""
    return f"by a merge PATCH that sets {HEALED_AT}={at}"


def was_healed_under(examiner: Examiner, intent: Intent, stored: StoredValue) -> Carried:
    """Say whether a value opens, and carries the annotation that an intent asked for."""
    found = examiner.examine(stored)
    at = _annotation(_document(examiner, found)) if found.opened else ""
    if at and intent.detail == intent_detail(at):
        return Carried(True)
    if found.verdict.outcome is Outcome.UNDETERMINED:
        return Carried(None, found.verdict.message)
    return Carried(False)


class HealSender:
    """Sends the PATCH of one object; implements :class:`~etcdfix.remediation.sending.Sender`.

    Attributes:
        server: The one that wrote it, "" where none is known to have.
        changed: Paths of the fields in which it differs from the saved copy, besides what every heal changes.
        differs: Among them is one that admission does not simply add.
        answer: The object as that server answered; None where it did not. Never shown.
    """

    def __init__(self, ground: Ground, healable: Healable, at: str) -> None:
        self._ground = ground
        self._healable = healable
        self._at = at
        self._now = ground.cluster.now
        self.server = ""
        self.changed: tuple[str, ...] = ()
        self.differs = False
        self.answer: bytes | None = None

    def send(self, expected: Expected, *, step: Step) -> Sent:
        """Ask the servers that hold the object, one after the other, until etcd's key moves."""
        step("heal: compare")
        try:
            difference = evaluate_compare(self._now, expected).difference
        except SourceError as exc:
            return Sent(result=Result.NOT_APPLIED, detail=f"no request was sent: {exc.message}", refusal=exc)
        if difference is not None:
            rule, text, hint = difference
            return self._refused(Result.REFUSED, rule, f"{text}; no request was sent", hint)
        refusals = []
        for holder in self._healable.holders:
            step("heal: request")
            reply = patch_annotation(
                holder.server,
                holder.path,
                uid=self._healable.uid,
                resource_version=self._healable.mod_revision,
                at=self._at,
            )
            step("heal: answer")
            sent = self._judge(expected, holder, reply)
            if sent is not None:
                return sent
            assert isinstance(reply, Reply)  # silence is judged
            refusals.append((holder.server.address, reply.status))
            if not self._healable.ended:
                break  # it had the object a moment ago: that it refuses is a surprise
        return self._unmoved(refusals)

    def _unmoved(self, refusals: list[tuple[str, int]]) -> Sent:
        """Return that no server wrote anything; the reasons are in their answers, and those may quote the object."""
        said = ", ".join(f"{address} answered {status}" for address, status in refusals)
        if self._healable.ended:
            text = f"no API server that was asked still holds it ({said}); nothing was changed"
            hint = (
                "a server that has run since before the key was lost may: name each with --server URL; else "
                f"what is left of it: {self._ground.what_is_left(self._healable.key)}"
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
        key = display(self._healable.key)
        return Sent(result=result, detail=text, refusal=refuse(rule, f"{key}: {text}", hint=hint))

    def _judge(self, expected: Expected, holder: Holder, reply: Reply | NoReply) -> Sent | None:
        """Say what a request came to, by what etcd holds now; None where it was answered and nothing moved."""
        address = holder.server.address
        try:
            seen = self._now.sight(expected.key, expected.landmarks)
        except SourceError as exc:
            return Sent(
                result=Result.UNKNOWN,
                detail=f"{_said(address, reply)}; reading the key again failed: {exc.message}",
            )
        elsewhere = find_elsewhere(expected.landmarks, seen.revisions, seen.reading.revision)
        if elsewhere is not None:
            return Sent(result=Result.UNKNOWN, detail=f"{_said(address, reply)}; {elsewhere.text}")
        present = seen.reading.stored
        if KeyState.of(present) == expected.state:
            return self._stayed(address, reply)
        if present is None or present.create_revision != self._healable.found.stored.create_revision:
            return self._gone(address, reply, expected, seen)
        return self._moved(holder, reply, present)

    def _stayed(self, address: str, reply: Reply | NoReply) -> Sent | None:
        if isinstance(reply, NoReply):
            if not reply.sent:
                text = f"{address} was not reached: {reply.text}; nothing was changed"
                return self._refused(
                    Result.NOT_APPLIED, Rule.NO_API_SERVER, text, "let it answer, or name another"
                )
            return Sent(
                result=Result.UNKNOWN,
                detail=f"{_said(address, reply)}; the key stands as it was examined, and the request may still be on "
                "its way",
            )
        if reply.status in _STOPPED_WAITING:
            return Sent(
                result=Result.UNKNOWN,
                detail=f"{_said(address, reply)}, which does not say whether it was done; the key stands as it was "
                "examined, and the request may still be on its way",
            )
        if reply.status < 300:
            return Sent(
                result=Result.ANOMALY,
                detail=f"{_said(address, reply)}, and the key stands as it was examined: that server writes elsewhere",
            )
        return None

    def _gone(self, address: str, reply: Reply | NoReply, expected: Expected, seen: Sighting) -> Sent:
        text = f"{_said(address, reply)}; {describe_move(expected.state, seen.reading.stored)}"
        if _came_to_nothing(reply):
            return self._refused(Result.REFUSED, Rule.MOVED, text, "examine it again")
        return Sent(result=Result.APPLIED_OR_GONE, detail=text, revision=seen.reading.revision)

    def _moved(self, holder: Holder, reply: Reply | NoReply, present: StoredValue) -> Sent:
        """Judge a request after which the key moved: only what decrypts and decodes is healed."""
        address, examiner = holder.server.address, self._ground.cluster.examiner
        found = examiner.examine(present)
        moved = f"{_said(address, reply)}; the key moved to mod_revision {present.mod_revision}"
        document = _document(examiner, found) if found.opened else {}
        ours = _annotation(document) == self._at
        if not ours and _came_to_nothing(reply):
            return self._refused(Result.REFUSED, Rule.MOVED, f"{moved}, by somebody else", "examine it again")
        if not found.opened and found.verdict.outcome is Outcome.UNDETERMINED:
            return Sent(
                result=Result.UNKNOWN,
                detail=f"{moved}, and what was written cannot be examined now: {found.verdict.message}",
            )
        if not found.opened or found.verdict.outcome not in _FINE:
            return Sent(
                result=Result.ANOMALY,
                detail=f"{moved}, and today's configuration does not read what was written: {found.verdict.message}",
                revision=present.mod_revision,
            )
        uid = found.decoded.uid if found.decoded is not None else None
        if uid != self._healable.uid.encode():
            return Sent(
                result=Result.ANOMALY,
                detail=f"{moved}, and the object there has another uid",
                revision=present.mod_revision,
            )
        if not ours:
            return Sent(
                result=Result.APPLIED_OR_GONE,
                detail=f"{moved}, its value opens, and does not carry the annotation of this heal: by it, or by "
                "somebody else",
                revision=present.mod_revision,
            )
        return self._healed(holder, reply, found, document)

    def _healed(
        self, holder: Holder, reply: Reply | NoReply, found: Examination, stored: dict[str, Any]
    ) -> Sent:
        self.server = holder.server.address
        warnings = []
        if not isinstance(reply, Reply) or reply.status != 200:
            warnings.append(f"{_said(self.server, reply)}, and etcd shows that it was done")
        else:
            self.answer = reply.body
        doubts: list[str] = []
        written, document = self._as_patched(found, stored)
        if written is not found:
            warnings.append(f"it was written again since, at mod_revision {found.stored.mod_revision}")
        warnings += self._compare(holder, written, document, doubts)
        if self.differs:
            return Sent(
                result=Result.ANOMALY,
                detail=f"by {self.server}, with {found.transformer}; what etcd holds now differs from the saved copy: "
                f"{', '.join(self.changed)}",
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
        detail = f"by {self.server}, with {found.transformer}"
        if self.changed:
            detail += f"; changed besides: {', '.join(self.changed)}"
        return Sent(
            result=Result.HEALED,
            detail="; ".join([detail, *doubts]),
            revision=found.stored.mod_revision,
            warnings=(*doubts, *warnings),
            doubtful=bool(doubts),
        )

    def _unread_elsewhere(self) -> list[str]:
        try:
            answers = read_by_each(self._ground.all_servers, self._healable.thing)
        except EtcdfixError as exc:
            return [f"whether the other API servers read it is not known: {exc.message}"]
        return [
            f"the API server at {said.server} does not read it ({said.answer}"
            + (f": {said.detail}" if said.detail else "")
            + "): it may lack today's write key"
            for said in answers
            if said.answer is not Answer.READS_IT
            and not (said.answer in SILENT and said.server in self._ground.unchecked_servers)
        ]

    def _as_patched(self, found: Examination, stored: dict[str, Any]) -> tuple[Examination, dict[str, Any]]:
        """Return what etcd held at the revision of the PATCH, which its answer names; the newest where it is gone.

        A controller may write the object again at once. Only a value that carries the annotation of this heal counts.
        """
        told = _metadata(_parsed(self.answer) or {}).get("resourceVersion")
        newest = found.stored.mod_revision
        revision = int(told) if isinstance(told, str) and told.isdecimal() and len(told) < 20 else newest
        if not self._healable.mod_revision < revision < newest:
            return found, stored
        try:
            then = self._now.read_at(found.stored.key, revision)
        except SourceError:
            return found, stored
        if then is None or then.mod_revision != revision:
            return found, stored
        examiner = self._ground.cluster.examiner
        written = examiner.examine(then)
        document = _document(examiner, written)
        ours = _annotation(document) == self._at and _metadata(document).get("uid") == self._healable.uid
        return (written, document) if ours else (found, stored)

    def _compare(
        self, holder: Holder, found: Examination, stored: dict[str, Any], doubts: list[str]
    ) -> list[str]:
        """Note what etcd holds otherwise than the saved copy; return what a person should know of it."""
        saved = self._healable.saved
        if saved is None:
            return ["no saved copy is of this very write, so what admission may have changed is not known"]
        before: dict[str, Any] | None = None
        after: dict[str, Any] | None = stored
        why = "one of the two cannot be read as JSON"
        notes: list[str] = []
        try:
            before = _parsed(read_saved(self._ground.saved, saved))
        except ConfigurationError as exc:
            why = exc.message
        if before is not None and before.get("apiVersion") != stored.get("apiVersion"):
            # Fields of two versions have other names: the rest is only as that server converts it.
            shown = self._read_back(holder)
            after = None if shown is None else {**shown, "metadata": _metadata(stored)}
            why = f"{holder.server.address} does not give what it wrote"
            if shown and _metadata(shown).get("resourceVersion") != str(found.stored.mod_revision):
                after, why = None, f"{holder.server.address} gives another write of it"
            version = safe_text(str(stored.get("apiVersion")))
            notes.append(
                f"etcd holds it as {version}: only its metadata were compared there, the rest as the server reads it"
            )
        if before is None or after is None:
            doubts.append(f"it could not be compared with the saved copy: {why}")
            return notes
        masked = Viewer(self._ground.cluster.examiner).show(found).document
        changes, more = field_changes(_comparable(before), _comparable(after), masked, most=_MOST_CHANGES)
        self.changed = tuple(f"{each.path} ({each.change})" for each in changes) + (
            (f"{more} more",) if more else ()
        )
        self.differs = bool(more) or not all(
            each.change == "added" and _LABELS.match(each.path) for each in changes
        )
        if changes and not self.differs:
            notes.append(f"admission changed it: {', '.join(self.changed)}")
        return notes

    def _read_back(self, holder: Holder) -> dict[str, Any] | None:
        reply = self._ground.all_servers.within(
            partial(holder.server.send, "GET", holder.path, longest=LONGEST_ANSWER)
        )
        return _parsed(reply.body) if isinstance(reply, Reply) and reply.status == 200 else None


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
    return str(annotations.get(HEALED_AT, "")) if isinstance(annotations, dict) else ""


def _parsed(raw: bytes | None) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(raw or b"")
    except NOT_UNDERSTOOD:
        return None
    return found if isinstance(found, dict) else None


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what every write changes, what servers before 1.20 only add to an answer, and nulls.

    A change of an annotation counts as a new generation with some kinds. Nulls say nothing; older servers write them.
    """
    left_out = {"managedFields", "resourceVersion", "selfLink", "generation"}
    metadata = {name: value for name, value in _metadata(document).items() if name not in left_out}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != HEALED_AT}
        if not metadata["annotations"]:
            del metadata["annotations"]
    return _without_nulls({**document, "metadata": metadata})


def _without_nulls(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy without members that are null; not by recursion, since strangers decide how deep it is."""
    whole: dict[str, Any] = dict(document)
    waiting: list[Any] = [whole]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for name in [name for name, value in item.items() if value is None]:
                del item[name]
        for at, value in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(value, dict | list):
                item[at] = value.copy()
                waiting.append(item[at])
    return whole
