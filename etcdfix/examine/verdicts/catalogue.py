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
        "The value is encrypted, and you gave no configuration to decrypt it with. The value may be intact.",
        "The value starts with k8s:enc:, and neither --encryption-config nor --manifest is given. Or another API "
        "server, such as OpenShift's, writes the resource, and the configuration has no entry for it.",
    ),
    CauseInfo(
        Cause.RESOURCE_NOT_CONFIGURED,
        _DECRYPT,
        "resource not in the configuration",
        "The value is encrypted, but the configuration has no entry for its resource. The API server reads the value"
        " as plaintext and refuses it.",
        "No exact entry, group wildcard or *.* of the configuration matches the resource.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.PROVIDER_MISSING,
        _DECRYPT,
        "no such provider in the configuration",
        "The configuration lacks the provider, or the KMS provider name, that wrote the value. The value is probably"
        " intact.",
        "No provider of the resource's entry has the prefix that the value starts with.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.KEY_NAME_MISSING,
        _EITHER,
        "no key of that name in the configuration",
        "The configuration has the right provider, but somebody removed or renamed the key.",
        "The provider's prefix matches, and no key name matches.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.PLAINTEXT_NOT_ALLOWED,
        _DECRYPT,
        "plaintext, but identity is not configured",
        "The value is not encrypted, and the resource's provider list lacks identity, so the API server refuses it. "
        "The object itself is intact.",
        "The value has no k8s:enc: prefix, the list has no identity provider, and the bytes decode to an object.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.UNKNOWN_ENVELOPE,
        _DECRYPT,
        "an envelope that no API server writes",
        "The value starts with k8s:enc:, but its provider, its version or its KMS v2 fields are unknown. It is "
        "damaged, or a proxy, a fork or a newer release wrote it.",
        "The words after k8s:enc: and the fields of a KMS v2 envelope were compared with what known API servers "
        "accept.",
    ),
    CauseInfo(
        Cause.KEY_RENAMED,
        _EITHER,
        "the key has another name or place",
        "The configuration has the encryption key under another name, for another provider, or for other resources. "
        "The value is probably intact.",
        "Only under that key, the value opens or shows the structure of an object.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.WRONG_KEY,
        _EITHER,
        "decrypts to noise under every matching key",
        "The key probably has new bytes. A damaged nonce looks the same.",
        "Decrypted without its tag, the value shows no structure of an object. No other value shows that the key is "
        "right.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.AUTHENTICATION_FAILED,
        _DECRYPT,
        "does not open, for an unclear reason",
        "Too little of the value is visible to tell a wrong key from damage, so etcdfix treats it as wrong-key.",
        "Every matching key was tried, and decrypting without the tag decided nothing.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.STORAGE_PREFIX_CHANGED,
        _DECRYPT,
        "written under another storage prefix",
        "Somebody copied the keys below a new prefix (--etcd-prefix), or a proxy between etcd and the API server "
        "adds one.",
        "The value opens, with its tag, when the same key begins with the other prefix.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.VALUE_MOVED,
        _DECRYPT,
        "belongs to another etcd key",
        "Somebody copied or renamed the value in etcd. Its encryption binds it to another etcd key, so it cannot be "
        "read here.",
        "The value opens, with its tag, under the etcd key that its contents name.",
    ),
    CauseInfo(
        Cause.ASSOCIATED_DATA_UNKNOWN,
        _DECRYPT,
        "whole, but bound to an unknown etcd key",
        "The encryption key is right and the object whole, but the tag does not fit. The etcd key may be one behind "
        "a proxy.",
        "The value decodes without its tag. No single bit, prefix or path makes the tag fit. Nothing shows damage.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.CIPHERTEXT_DAMAGED,
        _EITHER,
        "encrypted data or tag damaged",
        "The encryption key is right. Bytes of the value changed after it was written.",
        "One flipped bit explains it, or the plaintext breaks. It is only likely if other values or revisions prove "
        "it, and only possible for the newest value.",
    ),
    CauseInfo(
        Cause.NONCE_DAMAGED,
        _DECRYPT,
        "nonce damaged",
        "The random number before the encrypted data changed, so the whole value decrypts to noise.",
        "One flipped bit explains it. It is only likely if values written before and after this one open under the "
        "same key, and only possible for the newest value.",
    ),
    CauseInfo(
        Cause.VALUE_TRUNCATED,
        _EITHER,
        "value cut short",
        "Bytes are missing at its end: a full disk, a cut copy, or a script that wrote a part.",
        "The value is shorter than its format allows, the object stops before its end, or a length runs past the "
        "end.",
    ),
    CauseInfo(
        Cause.KMS_UNREACHABLE,
        (Outcome.UNDETERMINED,),
        "KMS plugin not asked or not reachable",
        "The value needs a KMS plugin, and the plugin could not be asked. This says nothing about the value.",
        "A configured KMS provider wrote the value, and its plugin gave no answer.",
    ),
    CauseInfo(
        Cause.KMS_DENIED,
        (Outcome.UNDETERMINED,),
        "KMS plugin may not use the key",
        "The KMS does not let the plugin use the key: a policy, an expired credential or a disabled key. This says "
        "nothing about the value.",
        "The plugin answered PERMISSION_DENIED or UNAUTHENTICATED.",
    ),
    CauseInfo(
        Cause.KMS_KEY_UNKNOWN,
        (Outcome.UNDETERMINED,),
        "KMS does not know the key",
        "The plugin works, but does not know the key id in the value. The key may be disabled, destroyed, or in "
        "another region or account. Nothing is proven.",
        "The plugin answered NOT_FOUND or FAILED_PRECONDITION for this key id, and opened other values in the same "
        "run.",
    ),
    CauseInfo(
        Cause.KMS_UNPROVEN,
        (Outcome.UNDETERMINED,),
        "only the KMS plugin says so",
        "The plugin's answer does not open the value, and nothing shows that the plugin is right. A plugin with the "
        "wrong keyring rejects everything.",
        "No other value that would confirm the plugin's answer opened, or the plugin is unwell or contradicts "
        "itself.",
    ),
    CauseInfo(
        Cause.KMS_ENVELOPE_DAMAGED,
        _EITHER,
        "KMS envelope or wrapped key damaged",
        "The envelope around the encrypted data breaks a rule, or the wrapped data key in it does not unwrap.",
        "The envelope fails the API server's checks, or another value's wrapped key opens the value. It is only "
        "likely if the plugin refuses this key alone.",
    ),
    CauseInfo(
        Cause.IV_DAMAGED,
        _DECODE,
        "initialisation vector damaged",
        "The initialisation vector of AES-CBC is damaged, so the first 16 bytes decrypt to noise. The key is right, "
        "and the rest is there.",
        "The object is whole with the usual first 16 bytes. It is only possible if the magic alone differs.",
    ),
    CauseInfo(
        Cause.DOUBLE_ENCRYPTED,
        _DECODE,
        "encrypted twice",
        "The decrypted value is encrypted again: a second encrypting layer wrote it, or somebody restored it by "
        "hand. The object may be whole inside.",
        "The plaintext starts with k8s:enc:.",
    ),
    CauseInfo(
        Cause.EMPTY_VALUE,
        _DECODE,
        "value of 0 bytes",
        "The key exists and its value is empty. For a built-in type, `kubectl get` shows an object without a name. A"
        " custom resource fails.",
        "The plaintext has 0 bytes.",
    ),
    CauseInfo(
        Cause.EMPTY_OBJECT,
        _DECODE,
        "an object without any field",
        "The value parses, but has no field of the object. For built-in types, `kubectl get` shows an object without"
        " a name.",
        "The value was decoded as the API server decodes it, and every field is empty.",
    ),
    CauseInfo(
        Cause.ZEROED_VALUE,
        _DECODE,
        "nothing but zero bytes",
        "The value has its length, but only zero bytes. A disk or file system that lost blocks does this, often to "
        "several values.",
        "Every byte of the plaintext is zero.",
    ),
    CauseInfo(
        Cause.MAGIC_DAMAGED,
        _DECODE,
        "first bytes damaged",
        "The first four bytes of a protobuf object (k8s and a zero) changed, so no decoder recognises it.",
        "A few bits of these bytes differ, or the value ends like a protobuf envelope. It is certain if the value "
        "decodes with the right bytes.",
    ),
    CauseInfo(
        Cause.ENVELOPE_DAMAGED,
        _EITHER,
        "k8s:enc: damaged",
        "A bit of the prefix k8s:enc: flipped, so the API server takes the value for plaintext. The rest may be "
        "intact.",
        "The first eight bytes differ from k8s:enc: in at most three bits.",
    ),
    CauseInfo(
        Cause.PROTOBUF_DAMAGED,
        _DECODE,
        "protobuf damaged",
        "The value is a protobuf object that breaks the wire format or a typed field.",
        "The bytes were decoded as the API server decodes them. The finding names the byte and the field where "
        "decoding stops.",
    ),
    CauseInfo(
        Cause.JSON_DAMAGED,
        _DECODE,
        "JSON damaged",
        "The value is JSON that does not parse, or a field of it has a wrong type.",
        "The bytes were parsed by the rules of the API server's JSON decoder.",
    ),
    CauseInfo(
        Cause.CBOR_DAMAGED,
        _DECODE,
        "CBOR damaged",
        "The value is CBOR that does not parse or breaks a rule of Kubernetes. API servers store CBOR only with the "
        "feature gate CBORServingAndStorage.",
        "The bytes were parsed by the rules of the API server's CBOR decoder.",
    ),
    CauseInfo(
        Cause.UNKNOWN_ENCODING,
        _DECODE,
        "no known encoding",
        "The value is not protobuf, JSON, YAML or CBOR, and not base64 of these. Something else overwrote it, or a "
        "newer release wrote it.",
        "Every serializer of the API server was tried.",
    ),
    CauseInfo(
        Cause.TEXT_MODE_DAMAGE,
        _DECODE,
        "line feeds rewritten",
        "Something treated the value as text and wrote CR LF for every LF: a terminal, version control, a script on "
        "Windows.",
        "The value decodes once every CR LF is LF again.",
    ),
    CauseInfo(
        Cause.KIND_MISSING,
        (Outcome.DECODE_FAILURE, Outcome.INCONSISTENT),
        "kind or apiVersion missing",
        "The value has no kind or apiVersion. A custom resource cannot be decoded. A protobuf object is served, but "
        "watches on it fail.",
        "The type information was read as the API server reads it.",
    ),
    CauseInfo(
        Cause.KIND_NOT_REGISTERED,
        _DECODE,
        "kind or version unknown",
        "No known release has the kind and version in the value. A letter is damaged, or something newer than this "
        "tool wrote the object.",
        "Kind and version were looked up in every known release, or in the one of --kubernetes-version.",
    ),
    CauseInfo(
        Cause.VERSION_REMOVED,
        _DECODE,
        "version removed from Kubernetes",
        "The value has a version that your Kubernetes release does not read. An older API server still reads it. The"
        " value is whole.",
        "An earlier release knows the kind and version, and --kubernetes-version does not.",
    ),
    CauseInfo(
        Cause.CRD_VERSION_MISSING,
        _DECODE,
        "version missing in the CRD",
        "The custom resource is stored in a version that its CustomResourceDefinition does not list. The object is "
        "whole. Put the version back to read it.",
        "The version in the value was looked up in the readable CRD.",
        curable_by_configuration=True,
    ),
    CauseInfo(
        Cause.WRONG_KIND_FOR_KEY,
        _DECODE,
        "kind does not fit the etcd key",
        "The value is a whole object, but its kind does not belong at this etcd key. Somebody copied it here, or a "
        "restore mixed up keys.",
        "The kind in the value does not convert to the kind of the key.",
    ),
    CauseInfo(
        Cause.TRAILING_BYTES,
        _DECODE,
        "whole object with bytes after it",
        "Two writes ran together, or a value was not cut to its length.",
        "The value decodes without the bytes after the end of its protobuf envelope or JSON document.",
    ),
    CauseInfo(
        Cause.CONVERSION_FAILED,
        _DECODE,
        "does not convert to the current version",
        "The object is whole, but a field does not convert to the API server's internal version, such as a quantity "
        "that is no number.",
        "The API server's conversion rules for this kind were applied to the object.",
    ),
    CauseInfo(
        Cause.ALLOCATOR_DAMAGED,
        (Outcome.DECODE_FAILURE,),
        "allocation bitmap damaged",
        "The record of used ClusterIPs or NodePorts does not decode. An API server needs it to start. etcdfix never "
        "deletes it.",
        "The value under ranges/ was decoded as a RangeAllocation.",
    ),
    CauseInfo(
        Cause.OWNER_UNKNOWN,
        (Outcome.UNDETERMINED, Outcome.READABLE),
        "owner of the type unknown",
        "No readable CustomResourceDefinition has this path. It may belong to an aggregated API server or to another"
        " program, so etcdfix cannot know what a valid value is.",
        "The CRD was looked up in the same etcd, even outside the scope of the scan.",
    ),
    CauseInfo(
        Cause.NOT_AN_OBJECTS_KEY,
        _DECODE,
        "not an object's key",
        "The etcd key has too few parts for its resource, so it holds no object. Web UIs for etcd, such as e3w, "
        "write such keys to mark directories. A LIST reads them and fails.",
        "The etcd key lacks a namespace or name. The value is not encrypted, and is empty or one word of at most 64 "
        "characters.",
    ),
    CauseInfo(
        Cause.IDENTITY_MISMATCH,
        _INCONSISTENT,
        "contradicts its own etcd key",
        "The name, namespace or kind in the object differs from its etcd key. Somebody moved or copied the value, or"
        " the field is damaged. The API server does not compare them.",
        "metadata.name, metadata.namespace and kind were compared with the etcd key.",
    ),
    CauseInfo(
        Cause.INVALID_UTF8,
        _INCONSISTENT,
        "text that is not UTF-8",
        "A text field has bytes that are not UTF-8, often one flipped bit. The API server shows replacement "
        "characters instead.",
        "Every text field was checked.",
    ),
    CauseInfo(
        Cause.RAW_JSON_INVALID,
        _INCONSISTENT,
        "embedded JSON broken",
        "A field that answers copy unchanged is not valid JSON, usually metadata.managedFields. Every JSON answer "
        "with the object fails, whole LISTs too: a 500, or a 200 that breaks off.",
        "Every embedded JSON field was parsed by the rules of the API server's encoder.",
    ),
    CauseInfo(
        Cause.INT_OR_STRING_INVALID,
        _INCONSISTENT,
        "impossible IntOrString",
        "A field such as a port or maxSurge is neither a number nor text. The object decodes, but every JSON answer "
        "with it fails. Protobuf clients work.",
        "The type of every IntOrString was compared with 0 and 1.",
    ),
)

CATALOGUE: dict[Cause, CauseInfo] = {info.cause: info for info in _CATALOGUE}

CURABLE_BY_CONFIGURATION: frozenset[Cause] = frozenset(
    info.cause for info in _CATALOGUE if info.curable_by_configuration
)
"""What a change of the configuration alone may cure; each of them is a failure, and none is damage."""
