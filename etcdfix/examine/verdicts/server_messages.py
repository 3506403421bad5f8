"""What API servers say of values with each cause: parts of lines in their log, each enough to search for.

The same words come with several causes: that is why there are causes. Each is what ``upstream_message`` of a finding
holds, as an API server writes it.
"""

from __future__ import annotations

from typing import Final

from etcdfix.examine.verdicts.causes import Cause

_TAG: Final = "cipher: message authentication failed"
_SECRETBOX: Final = "output array was not large enough"
_PADDING: Final = "invalid padding on input"
_PKCS7: Final = "invalid PKCS7 data"
_BLOCKS: Final = "not a multiple of the block size"
_SHORT: Final = "shorter than the required size"
_NO_PREFIX: Final = "no matching prefix found"
_NO_KEY: Final = "no matching key was found for the provided"
_IDENTITY: Final = "identity transformer tried to read encrypted data"
_REFUSED: Final = "rpc error: code ="
_WIRE: Final = "cannot parse invalid wire-format data"
_BASE64: Final = "illegal base64 data"
_CHARACTER: Final = "invalid character"
_END: Final = "unexpected EOF"
_YAML: Final = "yaml: "
_SOURCE_TYPE: Final = "unknown encryptedDEKSourceType"
_NO_KIND: Final = "no kind "

_NOISE: Final = (_TAG, _SECRETBOX, _PADDING, _PKCS7, _BLOCKS)

SERVER_MESSAGES: Final[dict[Cause, tuple[str, ...]]] = {
    Cause.NO_CONFIGURATION: (),
    Cause.RESOURCE_NOT_CONFIGURED: (_IDENTITY,),
    Cause.PROVIDER_MISSING: (_NO_PREFIX,),
    Cause.KEY_NAME_MISSING: (_NO_KEY,),
    Cause.PLAINTEXT_NOT_ALLOWED: (_NO_PREFIX,),
    Cause.UNKNOWN_ENVELOPE: (_NO_PREFIX, _SOURCE_TYPE, "failed to validate annotations"),
    Cause.KEY_RENAMED: (_NO_PREFIX, _NO_KEY, *_NOISE),
    Cause.WRONG_KEY: _NOISE,
    Cause.AUTHENTICATION_FAILED: _NOISE,
    Cause.STORAGE_PREFIX_CHANGED: (_TAG,),
    Cause.VALUE_MOVED: (_TAG,),
    Cause.ASSOCIATED_DATA_UNKNOWN: (_TAG,),
    Cause.CIPHERTEXT_DAMAGED: _NOISE,
    Cause.NONCE_DAMAGED: (_TAG, _SECRETBOX),
    Cause.VALUE_TRUNCATED: (_SHORT, *_NOISE, _NO_PREFIX, _END, "unexpected end of JSON input", _CHARACTER),
    Cause.KMS_UNREACHABLE: (_REFUSED,),
    Cause.KMS_DENIED: ("code = PermissionDenied", "code = Unauthenticated"),
    Cause.KMS_KEY_UNKNOWN: ("code = NotFound", "code = FailedPrecondition"),
    Cause.KMS_UNPROVEN: (_REFUSED, _TAG),
    Cause.KMS_ENVELOPE_DAMAGED: (
        _WIRE,
        "failed to read uint16 length prefixed data",
        _SOURCE_TYPE,
        "encrypted DEK source is",
        _REFUSED,
        _TAG,
    ),
    Cause.IV_DAMAGED: (_BASE64, _CHARACTER, _END, _YAML),
    Cause.DOUBLE_ENCRYPTED: (_BASE64, _CHARACTER, _YAML),
    Cause.EMPTY_VALUE: ("unexpected end of JSON input",),
    Cause.EMPTY_OBJECT: (),
    Cause.ZEROED_VALUE: (_BASE64, _CHARACTER, _YAML),
    Cause.MAGIC_DAMAGED: (_BASE64,),
    Cause.ENVELOPE_DAMAGED: (_BASE64, _NO_PREFIX, _CHARACTER, _YAML),
    Cause.PROTOBUF_DAMAGED: ("proto: ", _END, "illegal tag"),
    Cause.JSON_DAMAGED: (_CHARACTER, "cannot unmarshal", _YAML, _END),
    Cause.CBOR_DAMAGED: (),
    Cause.UNKNOWN_ENCODING: (_BASE64, _CHARACTER, _YAML),
    Cause.TEXT_MODE_DAMAGE: (_TAG, _SECRETBOX, _BLOCKS, _WIRE, "proto: ", _REFUSED, _END),
    Cause.KIND_MISSING: ("Object 'Kind' is missing", "Object 'apiVersion' is missing"),
    Cause.KIND_NOT_REGISTERED: (_NO_KIND,),
    Cause.VERSION_REMOVED: (_NO_KIND,),
    Cause.CRD_VERSION_MISSING: ("request to convert CR from an invalid group/version",),
    Cause.WRONG_KIND_FOR_KEY: ("unknown conversion",),
    Cause.CONVERSION_FAILED: (),
    Cause.TRAILING_BYTES: (_END, "proto: ", _CHARACTER),
    Cause.ALLOCATOR_DAMAGED: (),
    Cause.OWNER_UNKNOWN: (),
    Cause.NOT_AN_OBJECTS_KEY: (_BASE64, _CHARACTER, _YAML),
    Cause.IDENTITY_MISMATCH: (),
    Cause.INVALID_UTF8: (),
    Cause.RAW_JSON_INVALID: ("error calling MarshalJSON",),
    Cause.INT_OR_STRING_INVALID: ("impossible IntOrString.Type",),
}
