"""The closed catalogue of causes: what each means, and what proves it.

The reference page of causes is generated from here, and a test fails when a code is used twice or a cause
lacks its text.
"""

from __future__ import annotations

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Outcome


class CauseInfo(msgspec.Struct, frozen=True):
    """What the catalogue says of one cause.

    Attributes:
        meaning: What happened, for a person who has never seen it.
        proof: What the tool checked before it said so.
        curable_by_configuration: Changing the configuration makes the object readable again; deletion of
            such an object is refused.
    """

    cause: Cause
    outcomes: tuple[Outcome, ...]
    title: str
    meaning: str
    proof: str
    curable_by_configuration: bool = False


_DECRYPT = (Outcome.DECRYPT_FAILURE,)
# The padding of AES-CBC fits now and then under a wrong key, or over damage: then it is the decoder that fails.
_EITHER = (Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE)
# An unencrypted value that its resource's providers refuse is a decrypt failure, whatever else is wrong with it.
_DECODE = (Outcome.DECODE_FAILURE, Outcome.DECRYPT_FAILURE)
_INCONSISTENT = (Outcome.INCONSISTENT,)

_CATALOGUE = (
    CauseInfo(
        Cause.NO_CONFIGURATION,
        (Outcome.UNDETERMINED,),
        "no encryption configuration given",
        "The value is encrypted, and nothing was given to decrypt it with. It may be in perfect order.",
        "The value starts with k8s:enc:, and neither --encryption-config nor --manifest was given; or another API "
        "server writes it, as OpenShift's do, and the configuration has no entry for its resource.",
    ),
    CauseInfo(
        Cause.RESOURCE_NOT_CONFIGURED,
        _DECRYPT,
        "resource not in the configuration",
        "The value is encrypted, but the configuration has no entry for its resource: the API server reads "
        "it as plaintext and refuses.",
        "No exact entry, group wildcard or *.* of the configuration matches the resource.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.PROVIDER_MISSING,
        _DECRYPT,
        "no such provider in the configuration",
        "The resource is configured, but not with the provider (or the KMS provider name) that wrote the "
        "value.",
        "No provider of the resource's entry has the prefix that the value starts with.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.KEY_NAME_MISSING,
        _EITHER,
        "no key of that name",
        "The right kind of provider is configured, but the key name that the value was written under is not "
        "in its list: the key was removed or renamed.",
        "The provider's prefix matches; no key name does.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.PLAINTEXT_NOT_ALLOWED,
        _DECRYPT,
        "plaintext, but identity is not configured",
        "The value is not encrypted, and the resource's provider list lacks identity, so the API server "
        "refuses to read it. The object itself is in order.",
        "The value has no k8s:enc: prefix, the list has no identity provider, and the bytes decode to an object.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.UNKNOWN_ENVELOPE,
        _DECRYPT,
        "an envelope that no API server writes",
        "The value starts with k8s:enc: and goes on with a provider, a version or, under KMS v2, a kind of data key or "
        "annotations that no known release writes: the envelope was damaged, something else wrote it, or a newer "
        "release did.",
        "The words after k8s:enc: were compared with all known providers and versions, and the numbers and annotations "
        "of a KMS v2 envelope with what known API servers accept.",
    ),
    CauseInfo(
        Cause.KEY_RENAMED,
        _EITHER,
        "the key has another name or place",
        "An encryption key that the configuration has elsewhere wrote this value: under another name, for another "
        "provider, or for other resources. The value itself may be in perfect order.",
        "Under that key the structure of an object stands where it belongs, or the value opens; under the keys that "
        "the value names it does not.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.WRONG_KEY,
        _EITHER,
        "noise under every key of that name",
        "A key of the right name is configured, and what it makes of the value is noise: most likely the key has other "
        "bytes now. A damaged nonce or a wholly overwritten value looks the same.",
        "The value was decrypted without checking its tag or padding, with every key of that name: nowhere does the "
        "structure of an object stand where it belongs. Nothing shows that values around it open under that key.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.AUTHENTICATION_FAILED,
        _DECRYPT,
        "does not open, and too little can be seen",
        "A key of the right name is configured, and the value does not open under it. Too little of it can be seen "
        "without its tag to tell a wrong key from a damaged value, so it is treated as under a wrong key.",
        "Decryption was tried with every configured key that matches; a look without the tag decided nothing.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.STORAGE_PREFIX_CHANGED,
        _DECRYPT,
        "written under another storage prefix",
        "The value opens as if its etcd key began with another storage prefix: the keys were copied below a new prefix "
        "(--etcd-prefix), or etcd is read past a proxy that adds one.",
        "The value opens, tag and all, with the associated data of the same key under the other prefix.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.VALUE_MOVED,
        _DECRYPT,
        "belongs to another etcd key",
        "The value was written under another etcd key and copied here. Encryption binds it to that key, so it cannot "
        "be read here.",
        "The value opens, tag and all, with the associated data of the etcd key that its contents name.",
    ),
    CauseInfo(
        Cause.ASSOCIATED_DATA_UNKNOWN,
        _DECRYPT,
        "whole, but bound to something unknown",
        "Under the right encryption key a whole object comes out, and the tag does not fit. The value may be in "
        "perfect order and bound to an etcd key that cannot be guessed: an etcd proxy with a namespace, a prefix that "
        "was never named. Nothing shows damage.",
        "The value was decrypted without its tag and decodes whole; no single changed bit, no other prefix and no "
        "other path makes the tag fit; neither its own bytes nor an earlier revision nor other values show that its "
        "etcd key is the associated data.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.CIPHERTEXT_DAMAGED,
        _EITHER,
        "encrypted data or tag damaged",
        "The encryption key is right, and bytes of the value were changed after it was written.",
        "Under the right key: one changed bit was found whose undoing makes the tag fit; or the plaintext itself "
        "breaks; or the cipher has no associated data that could be wrong; or 16 equal bytes stand in a row, or no API "
        "server can have written the object. Only likely where it rests on an earlier revision that opens, or on "
        "other values that open under the same key; only possible for the newest value, where no other one fails.",
    ),
    CauseInfo(
        Cause.NONCE_DAMAGED,
        _DECRYPT,
        "nonce damaged",
        "The random number in front of the encrypted data was changed, so that everything decrypts to noise.",
        "One changed bit was found whose undoing makes the value open. Only likely where it rests on values written "
        "before and after it that open under the same key; only possible for the newest value, where no other one "
        "fails.",
    ),
    CauseInfo(
        Cause.VALUE_TRUNCATED,
        _EITHER,
        "value cut short",
        "Bytes are missing at the end of the value.",
        "The value is shorter than its format allows whatever the key; or, under the right encryption key, the object "
        "stops before its end; or a length in an object that is not encrypted runs past the end of the value.",
    ),
    CauseInfo(
        Cause.KMS_UNREACHABLE,
        (Outcome.UNDETERMINED,),
        "KMS plugin not asked or not reachable",
        "The value needs a KMS plugin for its data key, and the plugin could not be asked. This says "
        "nothing about the value.",
        "The value's envelope belongs to a configured KMS provider, and no answer came from its plugin.",
    ),
    CauseInfo(
        Cause.KMS_DENIED,
        (Outcome.UNDETERMINED,),
        "KMS plugin may not use the key",
        "The plugin answers, and the KMS behind it does not let it unwrap the data key: a policy, an expired "
        "credential, a disabled key. This says nothing about the value.",
        "The plugin answered PERMISSION_DENIED or UNAUTHENTICATED.",
    ),
    CauseInfo(
        Cause.KMS_KEY_UNKNOWN,
        (Outcome.UNDETERMINED,),
        "KMS does not know the key",
        "The plugin works, and knows no key of the key id that the value was written under. The key may be "
        "disabled, in another region or account, or destroyed; no tool can tell, so nothing is proven.",
        "The plugin answered NOT_FOUND or FAILED_PRECONDITION for this key id, and opened other values in the "
        "same run.",
    ),
    CauseInfo(
        Cause.KMS_UNPROVEN,
        (Outcome.UNDETERMINED,),
        "a KMS plugin's word alone",
        "The plugin rejects the value, or what it answers does not open it; but the plugin does not call itself well, "
        "or no other value under the same key id opened in this run, or it knows no key of a key id whose other "
        "values it opened, or it refuses a value without others before and after it that open. A plugin that points "
        "at the wrong keyring answers like that for everything.",
        "There was no positive control that fits: under this key id (KMS v1: under this provider) nothing opened, or "
        "for a refusal not what was written before and after it; or the plugin was unwell or contradicted itself. "
        "And the value does not show the plugin's answer to be right.",
    ),
    CauseInfo(
        Cause.KMS_ENVELOPE_DAMAGED,
        _EITHER,
        "KMS envelope or wrapped key damaged",
        "What surrounds the encrypted data is broken: the envelope does not parse or breaks a rule, or the "
        "wrapped data key in it does not unwrap.",
        "The API server's own checks of the envelope failed while the plugin was well; or the value opens with a "
        "neighbour's wrapped key. Only likely where the plugin refuses this wrapped key, or what it unwraps opens "
        "nothing, while values written before and after it open under the same key id.",
    ),
    CauseInfo(
        Cause.IV_DAMAGED,
        _DECODE,
        "initialisation vector damaged",
        "Only the first 16 bytes of the plaintext are garbled, which is what a damaged initialisation "
        "vector does to AES-CBC. The key is right; the rest of the object is there.",
        "A whole object comes out once its first 16 bytes are those with which objects of its etcd key begin, and "
        "perhaps one bit of the next 16 is turned. Only possible where its magic alone differs: a newer release may "
        "write another one.",
    ),
    CauseInfo(
        Cause.DOUBLE_ENCRYPTED,
        _DECODE,
        "encrypted twice",
        "What came out of decryption is encrypted again: an encrypted value was written through another "
        "encrypting layer, or restored by hand.",
        "The plaintext starts with k8s:enc:.",
    ),
    CauseInfo(
        Cause.EMPTY_VALUE,
        _DECODE,
        "value of 0 bytes",
        "The key exists and holds nothing. For built-in types the API server shows an empty object without "
        "a name instead of an error.",
        "The plaintext has 0 bytes.",
    ),
    CauseInfo(
        Cause.EMPTY_OBJECT,
        _DECODE,
        "nothing of an object in it",
        "The value parses, but no field of the object comes out of it. For built-in types the API server "
        "shows an empty object without a name instead of an error.",
        "The value was decoded as the API server decodes it, and every field was empty.",
    ),
    CauseInfo(
        Cause.ZEROED_VALUE,
        _DECODE,
        "nothing but zero bytes",
        "The length is there, the contents were replaced by zeros: typical of a disk or file system that "
        "lost blocks.",
        "Every byte of the plaintext is zero.",
    ),
    CauseInfo(
        Cause.MAGIC_DAMAGED,
        _DECODE,
        "first bytes damaged",
        "The value looks like a protobuf object whose first four bytes were changed, so that no decoder "
        "recognises it.",
        "The first four bytes differ in a few bits from the magic, or the value ends as a protobuf "
        "envelope ends.",
    ),
    CauseInfo(
        Cause.ENVELOPE_DAMAGED,
        _EITHER,
        "k8s:enc: damaged",
        "The value begins almost like an encrypted one: a bit of the prefix k8s:enc: was flipped, so the API "
        "server takes it for plaintext. What follows may be in perfect order.",
        "The first eight bytes differ from k8s:enc: in a few bits.",
    ),
    CauseInfo(
        Cause.PROTOBUF_DAMAGED,
        _DECODE,
        "protobuf damaged",
        "The value is a protobuf object whose inside breaks the wire format or a typed field.",
        "The bytes were walked as the API server's generated decoders walk them; they stop at the byte and "
        "field path given.",
    ),
    CauseInfo(
        Cause.JSON_DAMAGED,
        _DECODE,
        "JSON damaged",
        "The value is JSON that does not parse, or in which a field has a type that it must not have.",
        "The bytes were parsed by the rules of the API server's JSON decoder.",
    ),
    CauseInfo(
        Cause.CBOR_DAMAGED,
        _DECODE,
        "CBOR damaged",
        "The value is CBOR that does not parse, or breaks the rules that Kubernetes adds.",
        "The bytes were parsed by the rules of the API server's CBOR decoder.",
    ),
    CauseInfo(
        Cause.UNKNOWN_ENCODING,
        _DECODE,
        "no known encoding",
        "The value is neither protobuf nor JSON, YAML, CBOR or base64 of any of these.",
        "Every serializer that the API server would try was tried.",
    ),
    CauseInfo(
        Cause.TEXT_MODE_DAMAGE,
        _DECODE,
        "line feeds rewritten",
        "The value went through something that treats bytes as text and wrote CR LF for every LF.",
        "The value decodes once every CR LF is turned back into LF.",
    ),
    CauseInfo(
        Cause.KIND_MISSING,
        (Outcome.DECODE_FAILURE, Outcome.INCONSISTENT),
        "kind or apiVersion missing",
        "The value does not say what it is. A protobuf value without kind is still served on GET and LIST, "
        "while every watch on it fails.",
        "The type information of the value was read as the API server reads it.",
    ),
    CauseInfo(
        Cause.KIND_NOT_REGISTERED,
        _DECODE,
        "kind or version unknown",
        "The value says that it is of a kind and version that no known release has: the words were "
        "damaged, or the object was written by something newer than this tool.",
        "Kind and version were looked up among all known releases, or in that of --kubernetes-version.",
    ),
    CauseInfo(
        Cause.VERSION_REMOVED,
        _DECODE,
        "written in a version that was removed",
        "The value is of a kind and version that the assumed release no longer reads. An older API server "
        "still does.",
        "Kind and version are known in an earlier release and not in --kubernetes-version.",
    ),
    CauseInfo(
        Cause.CRD_VERSION_MISSING,
        _DECODE,
        "version no longer in the CRD",
        "The custom resource is stored in a version that its CustomResourceDefinition does not list any more. "
        "With the version back in the list (it need not be served), it is readable again.",
        "The version in the value was looked up in the readable CRD.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.WRONG_KIND_FOR_KEY,
        _DECODE,
        "another kind than the key says",
        "The value is a whole object, but of a kind that does not belong under this key.",
        "The kind in the value does not convert to the kind that the path promises.",
    ),
    CauseInfo(
        Cause.TRAILING_BYTES,
        _DECODE,
        "whole object with bytes after it",
        "The object is complete, and something follows it that does not belong there: two writes that ran "
        "into each other, or a value that was not cut to its length.",
        "The value decodes once everything after the end of the object is left out: of its protobuf envelope, or of "
        "the JSON document.",
    ),
    CauseInfo(
        Cause.CONVERSION_FAILED,
        _DECODE,
        "does not convert to the current version",
        "The object is whole, but a field of an old version does not translate into the form that the API "
        "server works with.",
        "The rules by which the API server converts this kind were applied to it.",
    ),
    CauseInfo(
        Cause.ALLOCATOR_DAMAGED,
        (Outcome.DECODE_FAILURE,),
        "allocation bitmap damaged",
        "The record of used ClusterIPs or NodePorts does not decode. API servers need it at start-up; it "
        "is never to be deleted with this tool.",
        "The value under ranges/ was decoded as a RangeAllocation.",
    ),
    CauseInfo(
        Cause.OWNER_UNKNOWN,
        (Outcome.UNDETERMINED, Outcome.READABLE),
        "type's owner unknown",
        "No readable CustomResourceDefinition claims this path: it may belong to an aggregated API server, to "
        "OpenShift's own or to another program, so nobody here can say what a valid value looks like.",
        "The CRD was looked up in the same etcd, even where it was not in scope.",
    ),
    CauseInfo(
        Cause.NOT_AN_OBJECTS_KEY,
        _DECODE,
        "not an object's key",
        "The etcd key has too few parts for its resource, so no object can have it. Web UIs for etcd write such keys "
        "to mark directories. A LIST of the resource reads them too, and fails.",
        "Namespace or name is missing in the etcd key. The value is not encrypted, and is empty or one word of at most "
        "64 characters.",
    ),
    CauseInfo(
        Cause.IDENTITY_MISMATCH,
        _INCONSISTENT,
        "contradicts its own key",
        "Name, namespace or kind inside the object differ from the key it is stored under: the value was "
        "moved or copied, or the field was damaged. The API server does not compare them when reading.",
        "metadata.name, metadata.namespace and kind were compared with the key.",
    ),
    CauseInfo(
        Cause.INVALID_UTF8,
        _INCONSISTENT,
        "text that is not UTF-8",
        "A text field holds bytes that are not UTF-8; the API server shows replacement characters.",
        "Every text field was checked.",
    ),
    CauseInfo(
        Cause.RAW_JSON_INVALID,
        _INCONSISTENT,
        "embedded JSON broken",
        "A field that is copied verbatim into answers (managedFields, an embedded object) is not valid "
        "JSON. No JSON answer that contains the object can be made, whole LISTs too: it is a 500, or, with "
        "many objects, a 200 that breaks off.",
        "Every embedded JSON field was parsed by the rules of the API server's encoder.",
    ),
    CauseInfo(
        Cause.INT_OR_STRING_INVALID,
        _INCONSISTENT,
        "impossible IntOrString",
        "A field that is either a number or a text says that it is neither. The object decodes, and every "
        "answer that contains it fails.",
        "The type of every IntOrString was compared with 0 and 1.",
    ),
)

CATALOGUE: dict[Cause, CauseInfo] = {info.cause: info for info in _CATALOGUE}

CURABLE_BY_CONFIGURATION: frozenset[Cause] = frozenset(
    info.cause for info in _CATALOGUE if info.curable_by_configuration
)
"""What a change of the configuration alone may cure; each of them is a failure, and none is damage."""
