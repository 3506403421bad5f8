"""What the index takes out of the plaintext of one value; made where the value is examined, maybe in another process.

What an object says of others is extracted here, and nothing of its data. How that comes together with what else is
there is the business of :mod:`etcdfix.graph.builder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from etcdfix.examine import Examiner
from etcdfix.graph.admission import Webhook, labels_of, ready_service, service_of, webhooks_of
from etcdfix.graph.contents import ContentReader, Contents
from etcdfix.graph.fields import Plain, at, items, mapping, text
from etcdfix.graph.index import NamespaceDetails
from etcdfix.graph.model import Condition, OwnerReference
from etcdfix.graph.recreation import Claim, read_claims
from etcdfix.graph.references import Known, owners_of
from etcdfix.graph.tables import FINISHED, READY
from etcdfix.graph.uses import Reference, Use
from etcdfix.verdicts.examination import Examination

SKIP_PROTECTION: Final = "secret.kubernetes.io/skip-secret-protection"
"""KEP-2639's annotation; ``yes`` opts a Secret out of protection."""

GRAPH_EXTRACTION: Final = f"{__name__}:make"
"""Names :func:`make` for other processes."""

_FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
_LONGEST_TYPE: Final = 200
_LONGEST_MESSAGE: Final = 4096
_MOST_CONDITIONS: Final = 32


class ObjectExtract(msgspec.Struct, array_like=True, gc=False):
    """What matters of one object beside its verdict.

    Attributes:
        owners: Its owner references.
        references: What it uses, each once.
        finalizers: ``metadata.finalizers``.
        terminating_since: ``metadata.deletionTimestamp``, "" for none.
        uid: Where decoding did not tell it, what the object itself says; b"" for nothing.
        flags: Of a Pod that it has finished, of a Node that it is ready.
        type: Of a Secret; cut at 200 characters.
        unprotected: A Secret that opts out of protection.
        namespace: What a Namespace says of its end.
        unavailable: Why an APIService is not available; None where it does not say so.
        service: The Service, ``namespace/name``, that an APIService names, or whose ready endpoints these are.
        webhooks: Of a webhook configuration: those that call a Service, and refuse where it does not answer.
        claims: What its spec makes controllers create.
    """

    owners: list[OwnerReference]
    references: list[Reference]
    finalizers: tuple[str, ...] = ()
    terminating_since: str = ""
    uid: bytes = b""
    flags: int = 0
    type: str = ""
    unprotected: bool = False
    namespace: NamespaceDetails | None = None
    unavailable: str | None = None
    service: str = ""
    webhooks: tuple[Webhook, ...] = ()
    claims: list[Claim] = []


_Packed = list[tuple[str, int, str]]
"""References, each with the number of its use on the page."""


class _Page(msgspec.Struct, array_like=True):
    uses: list[Use]
    objects: list[tuple[ObjectExtract, _Packed] | None]


_encode = msgspec.msgpack.Encoder().encode
_decode_page = msgspec.msgpack.Decoder(_Page).decode
_decode_known = msgspec.msgpack.Decoder(Known).decode


def setup_of(reader: ContentReader) -> bytes:
    """Return what :func:`make` needs in another process."""
    return _encode(reader.known)


def make(examiner: Examiner, setup: bytes) -> GraphExtraction:
    """Return what extracts from values that an examiner examines; for a process of its own."""
    reader = ContentReader(examiner)
    reader.known = _decode_known(setup)
    return GraphExtraction(reader)


class GraphExtraction:
    """Extracts from values what the index needs of them.

    Args:
        reader: Looks into them; it must have learned the classes that others refer through.
    """

    def __init__(self, reader: ContentReader) -> None:
        self.reader = reader

    def extract(self, found: Examination) -> ObjectExtract | None:
        """Return what matters of an object; None where it cannot be looked into.

        Raises:
            KMSPending: See :meth:`~etcdfix.graph.contents.ContentReader.read`.
        """
        contents = self.reader.read(found)
        if contents is None:
            return None
        extracted = _extracted(found, contents)
        extracted.claims = read_claims(self.reader, found)
        return extracted

    def pack(self, extracted: Sequence[ObjectExtract | None]) -> bytes:
        """Return what was extracted from a page as bytes; a use that objects share stands there once.

        Raises:
            ValueError: It holds text that is not Unicode.
        """
        uses: dict[Use, int] = {}
        page = _Page([], [])
        for one in extracted:
            if one is None:
                page.objects.append(None)
                continue
            packed = [(key, uses.setdefault(use, len(uses)), uid) for key, use, uid in one.references]
            page.objects.append((msgspec.structs.replace(one, references=[]), packed))
        page.uses = list(uses)
        return _encode(page)

    def unpack(self, packed: bytes) -> list[ObjectExtract | None]:
        """Return what was packed."""
        page = _decode_page(packed)
        for one in filter(None, page.objects):
            one[0].references = [Reference(key, page.uses[number], uid) for key, number, uid in one[1]]
        return [None if one is None else one[0] for one in page.objects]


def _extracted(found: Examination, contents: Contents) -> ObjectExtract:
    plain, references = contents
    metadata = mapping(plain.get("metadata"))
    extracted = ObjectExtract(
        owners_of(plain) if "ownerReferences" in metadata else [],
        list(dict.fromkeys(references)) if len(references) > 1 else references,
        tuple(item for item in items(metadata.get("finalizers")) if type(item) is str),
        text(metadata.get("deletionTimestamp")),
    )
    if found.decoded is None or not found.decoded.uid:
        # No readable CRD claims it: it was decoded without a uid being looked for.
        extracted.uid = text(at(plain, "metadata.uid")).encode("utf-8", "backslashreplace")
    directory = found.directory
    if not directory.group:
        _extract_core(extracted, found, plain)
    elif directory.kind.endswith("WebhookConfiguration"):
        extracted.webhooks = webhooks_of(plain)
    elif directory.kind == "EndpointSlice":
        extracted.service = ready_service(plain, found.namespace, found.name)
    elif directory.kind == "APIService":
        extracted.service = service_of(mapping(plain.get("spec")))
        for condition in _conditions(plain):
            if condition.type == "Available" and condition.status != "True":
                extracted.unavailable = condition.reason or condition.message
    return extracted


def _extract_core(extracted: ObjectExtract, found: Examination, plain: Plain) -> None:
    kind = found.directory.kind
    if kind == "Secret":
        extracted.type = text(plain.get("type"))[:_LONGEST_TYPE]
        extracted.unprotected = mapping(at(plain, "metadata.annotations")).get(SKIP_PROTECTION) == "yes"
    elif kind == "Pod":
        extracted.flags = FINISHED if text(at(plain, "status.phase")) in _FINISHED_PHASES else 0
    elif kind == "Node":
        ready = any((c.type, c.status) == ("Ready", "True") for c in _conditions(plain))
        extracted.flags = READY if ready else 0
    elif kind == "Namespace":
        extracted.namespace = NamespaceDetails(
            text(at(plain, "status.phase")),
            tuple(f for f in items(at(plain, "spec.finalizers")) if type(f) is str),
            _conditions(plain),
            labels_of(at(plain, "metadata.labels")),
        )
    elif kind == "Service" and at(plain, "spec.type") == "ExternalName":
        extracted.service = f"{found.namespace}/{found.name}"  # whoever answers is outside of the cluster
    elif kind == "Endpoints":
        extracted.service = ready_service(plain, found.namespace, found.name)


def _conditions(plain: Plain) -> tuple[Condition, ...]:
    found = []
    for entry in items(at(plain, "status.conditions"))[:_MOST_CONDITIONS]:
        if type(entry) is dict:
            names = ("type", "status", "reason", "message")
            kind, status, reason, message = (text(entry.get(n))[:_LONGEST_MESSAGE] for n in names)
            found.append(Condition(kind, status, reason, message, problem=status == "True"))
    return tuple(found)
