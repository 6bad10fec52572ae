"""Seeded changes of bytes, texts and JSON: small ones, so that much of a file stays as it was."""

from __future__ import annotations

import copy
import struct
import zlib
from random import Random
from typing import Any

NASTY = (
    "", " ", "\0", "\x1b[2J", "\udce9", "\u202e", "\ufeff", "e\u0301", "東京", "=1+1", "'", '"',
    "`", "{}", "{target}", "{sensitive}", "{", "}", "[T-CLS]", "%s", "\\", "/", "..", "../..", "~",
    "\n", "\r\n", "\t", ",", ";", ":", "+", "=", "#", "|", "<script>", "&amp;", "nan", "inf",
    "-inf", "1e999", "-1", "0", "1", "2.5", "1e38", "1e-30", "9" * 400, "None", "true", "null",
    "[" * 2000, "a" * 5000, "a " * 300,
)  # fmt: skip
NUMBERS = (
    0,
    1,
    -1,
    127,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64,
)
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 10**30, 1e308, -0.0, "", "x", "<script>", "\udce9", [], {}, [[]],
    {"a": 1}, [None, 1], "=1", [1] * 50,
)  # fmt: skip


def mutated(random: Random, data: bytes, donors: list[bytes]) -> bytes:
    """One to eight changes of some bytes; sometimes parts of another input come in."""
    content = bytearray(data)
    for _ in range(random.randint(1, 8)):
        size = len(content)
        offset = (
            random.randrange(size + 1)
            if random.random() < 0.5
            else random.randint(0, min(size, 64))
        )
        length = random.choice((1, 2, 4, 8, 64, 1024))
        mutation = random.randrange(7)
        if mutation == 0 and offset < size:
            content[offset] ^= 1 << random.randrange(8)
        elif mutation == 1:
            number = random.choice(NUMBERS) % 2**32
            content[offset : offset + 4] = struct.pack(
                random.choice("<>") + "I", number
            )
        elif mutation == 2:
            del content[offset : offset + length]
        elif mutation == 3:
            content[offset:offset] = content[offset : offset + length] * random.randint(
                1, 4
            )
        elif mutation == 4:
            content[offset:offset] = random.randbytes(length)
        elif mutation == 5 and random.random() < 0.3:
            del content[offset:]
        elif mutation == 6:
            donor = random.choice(donors)
            begin = random.randrange(len(donor) + 1)
            content[offset : offset + length] = donor[begin : begin + length]
    return bytes(content)


def with_true_checksums(png: bytes) -> bytes:
    """A PNG whose chunks have the checksums of what is in them, so that it is read further."""
    content, offset = bytearray(png), 8
    while offset + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, offset)
        end = offset + 8 + length
        if end + 4 > len(content):
            break
        struct.pack_into(">I", content, end, zlib.crc32(content[offset + 4 : end]))
        offset = end + 4
    return bytes(content)


def mutated_text(random: Random, text: str) -> str:
    """One to three changes, often one: nasty pieces in, parts out, twice or elsewhere."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        begin = random.randrange(len(text) + 1)
        end = min(len(text), begin + random.choice((0, 1, 3, 20)))
        piece = random.choice(
            (random.choice(NASTY), text[begin:end] * 2, "", text[::-1][:5])
        )
        text = text[:begin] + piece + text[end:]
    return text


def mutated_json(random: Random, value: Any) -> Any:
    """The same with one to three values replaced, left out or renamed."""
    value = copy.deepcopy(value)
    for _ in range(random.randint(1, 3)):
        inside = value
        while True:
            keys = (
                list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            )
            if not keys:
                break
            key = random.choice(keys)
            if (
                isinstance(inside[key], dict | list)
                and inside[key]
                and random.random() < 0.8
            ):
                inside = inside[key]
                continue
            mutation = random.randrange(5)
            if mutation == 0:
                del inside[key]
            elif mutation == 1 and isinstance(inside, dict):
                inside[random.choice(NASTY)[:50]] = inside.pop(key)
            elif mutation == 2 and isinstance(inside[key], int | float):
                inside[key] = random.choice((-1, 1, 1e6)) * inside[key]
            elif mutation == 3 and isinstance(inside[key], str):
                inside[key] = mutated_text(random, inside[key])
            else:
                inside[key] = copy.deepcopy(random.choice(VALUES))
            break
    return value
