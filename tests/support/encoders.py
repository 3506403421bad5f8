"""Writes encrypted values the way an API server does, without using the code that reads them.

Everything here goes another way than ``etcdfix.encryption``: CBC is chained by hand over ECB, GCM uses the
streaming interface instead of the AEAD object, secretbox is spelled out from the Salsa20 core (PyNaCl does
the reading), the KMS v2 envelope is serialised by the protobuf runtime (a hand-written parser does the
reading), and the KMS v2 key derivation uses the library's HKDF. What both sides agree on is therefore the
format.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import hashes, padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.poly1305 import Poly1305
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

BYTES, STRING = (
    descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
)
NONCE_SIZES = {"aescbc": 16, "aesgcm": 12, "secretbox": 24}


def local_body(kind: str, plaintext: bytes, key: bytes, nonce: bytes, etcd_key: bytes) -> bytes:
    """Encrypt as a local provider does; a nonce that is too long is cut."""
    nonce = nonce[: NONCE_SIZES[kind]]
    if kind == "aesgcm":
        return aesgcm_body(plaintext, key, nonce, etcd_key)
    return {"aescbc": aescbc_body, "secretbox": secretbox_body}[kind](plaintext, key, nonce)


def aescbc_body(plaintext: bytes, key: bytes, iv: bytes) -> bytes:
    padder = padding.PKCS7(128).padder()
    return iv + cbc_blocks(padder.update(plaintext) + padder.finalize(), key, iv)


def cbc_blocks(padded: bytes, key: bytes, iv: bytes) -> bytes:
    """Encrypt whole blocks, whatever their end looks like."""
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    previous, blocks = iv, []
    for start in range(0, len(padded), 16):
        block = bytes(a ^ b for a, b in zip(padded[start : start + 16], previous, strict=True))
        previous = encrypt.update(block)
        blocks.append(previous)
    return b"".join(blocks)


def aesgcm_body(plaintext: bytes, key: bytes, nonce: bytes, etcd_key: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(etcd_key)
    ciphertext = encryptor.update(plaintext) + encryptor.finalize()
    return nonce + ciphertext + encryptor.tag


def secretbox_body(plaintext: bytes, key: bytes, nonce: bytes) -> bytes:
    """XSalsa20-Poly1305 as in the NaCl paper: HSalsa20 makes the key, its first 32 bytes of stream the tag key."""
    subkey = _hsalsa20(key, nonce[:16])
    stream = b""
    counter = 0
    while len(stream) < 32 + len(plaintext):
        stream += _salsa20_block(subkey, nonce[16:], counter)
        counter += 1
    ciphertext = bytes(a ^ b for a, b in zip(plaintext, stream[32:], strict=False))
    return nonce + Poly1305.generate_tag(stream[:32], ciphertext) + ciphertext


_SIGMA = struct.unpack("<4I", b"expand 32-byte k")
_MASK = 0xFFFFFFFF


def _rounds(state: list[int]) -> list[int]:
    x = list(state)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for target, one, other, shift in ((b, a, d, 7), (c, b, a, 9), (d, c, b, 13), (a, d, c, 18)):
            total = (x[one] + x[other]) & _MASK
            x[target] ^= ((total << shift) | (total >> (32 - shift))) & _MASK

    columns = ((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11))
    rows = ((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14))
    for _ in range(10):
        for places in columns + rows:
            quarter(*places)
    return x


def _salsa_state(key: bytes, middle: bytes) -> list[int]:
    k = struct.unpack("<8I", key)
    n = struct.unpack("<4I", middle)
    return [_SIGMA[0], *k[:4], _SIGMA[1], *n, _SIGMA[2], *k[4:], _SIGMA[3]]


def _hsalsa20(key: bytes, nonce: bytes) -> bytes:
    x = _rounds(_salsa_state(key, nonce))
    return struct.pack("<8I", *(x[i] for i in (0, 5, 10, 15, 6, 7, 8, 9)))


def _salsa20_block(key: bytes, nonce: bytes, counter: int) -> bytes:
    state = _salsa_state(key, nonce + struct.pack("<Q", counter))
    return struct.pack("<16I", *((a + b) & _MASK for a, b in zip(_rounds(state), state, strict=True)))


def kms_v1_body(wrapped_dek: bytes, data: bytes) -> bytes:
    """``data`` is an aesgcm or aescbc body under the DEK."""
    return len(wrapped_dek).to_bytes(2, "big") + wrapped_dek + data


def kms_v2_seeded_data(plaintext: bytes, seed: bytes, info: bytes, nonce: bytes, etcd_key: bytes) -> bytes:
    key = HKDFExpand(algorithm=hashes.SHA256(), length=32, info=info).derive(seed)
    return info + aesgcm_body(plaintext, key, nonce, etcd_key)


def kms_v2_body(
    data: bytes,
    *,
    key_id: str = "key-id-1",
    dek_source: bytes = b"encrypted-dek-1",
    annotations: Mapping[str, bytes] | None = None,
    source_type: int = 0,
) -> bytes:
    message = _ENCRYPTED_OBJECT()
    message.encryptedData = data
    message.keyID = key_id
    message.encryptedDEKSource = dek_source
    message.encryptedDEKSourceType = source_type
    for name, value in (annotations or {}).items():
        message.annotations[name] = value
    return bytes(message.SerializeToString(deterministic=True))


def message_classes(package: str, messages: Mapping[str, tuple[tuple[str, int], ...]]) -> dict[str, Any]:
    """Make proto3 messages; fields are numbered as they stand, and type 0 is a map of string to bytes."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            if kind:
                message.field.add(name=field, number=number, type=kind, label=1)
                continue
            entry = message.nested_type.add(name="AnnotationsEntry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=STRING, label=1)
            entry.field.add(name="value", number=2, type=BYTES, label=1)
            type_name = f".{package}.{name}.AnnotationsEntry"
            message.field.add(name=field, number=number, type=11, type_name=type_name, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


_ENCRYPTED_OBJECT = message_classes(
    "v2",
    {
        "EncryptedObject": (
            ("encryptedData", BYTES),
            ("keyID", STRING),
            ("encryptedDEKSource", BYTES),
            ("annotations", 0),
            ("encryptedDEKSourceType", descriptor_pb2.FieldDescriptorProto.TYPE_INT32),
        )
    },
)["EncryptedObject"]
