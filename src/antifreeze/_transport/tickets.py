"""A ticket on its way to a worker. What cannot be read there is still known by its number."""

from __future__ import annotations

import pickle
import struct
from typing import Any

from .._core.tickets import Ticket

HEADER = struct.Struct("<QQ")  # number, position


def encode_ticket(ticket: Ticket) -> bytes:
    return HEADER.pack(ticket.number, ticket.position) + pickle.dumps(ticket.indices, protocol=5)


def decode_ticket(body: memoryview) -> tuple[int, int, Any, Exception | None]:
    """Give number, position, indices; and what reading the indices raised, if it did."""
    number, position = HEADER.unpack_from(body)
    try:
        return number, position, pickle.loads(body[HEADER.size :]), None
    except Exception as error:
        return number, position, None, error
