"""Frames survive any way a stream may be cut."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze._transport.descriptors import Descriptor
from antifreeze._transport.framing import Frame, FrameReader, Kind, prefix

KINDS = st.sampled_from(list(Kind))


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(KINDS, st.binary(max_size=300)), max_size=8),
    st.lists(st.integers(1, 50), min_size=1, max_size=20),
    st.booleans(),
)
def test_any_cutting_of_the_stream_gives_the_same_frames(
    messages: list[tuple[Kind, bytes]], cuts: list[int], straight_into_the_body: bool
) -> None:
    stream = b"".join(prefix(kind, len(body)) + body for kind, body in messages)
    reader, frames, at, turn = FrameReader(), list[Frame](), 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        turn += 1
        room = reader.receive_into()
        if straight_into_the_body and room is not None and len(room):
            piece = stream[at : at + min(size, len(room))]
            room[: len(piece)] = piece
            frames.extend(reader.advance(len(piece)))
        else:
            piece = stream[at : at + size]
            frames.extend(reader.feed(piece, []))
        at += len(piece)
    assert [(frame.kind, bytes(frame.body)) for frame in frames] == messages


def test_an_empty_body_is_a_frame() -> None:
    frames = list(FrameReader().feed(prefix(Kind.STOP, 0), []))
    assert [(frame.kind, len(frame.body)) for frame in frames] == [(Kind.STOP, 0)]


def test_descriptors_go_to_the_frames_that_announce_them() -> None:
    read, write = os.pipe()
    mine = Descriptor(read)
    stream = prefix(Kind.READY, 1) + b"x" + prefix(Kind.PARCELS, 2, 1) + b"ab"
    frames = list(FrameReader().feed(stream, [mine]))
    assert [frame.descriptor for frame in frames] == [None, mine]
    assert not any(frame.lost for frame in frames)
    mine.close()
    os.close(write)


def test_a_descriptor_that_could_not_be_received_is_told() -> None:
    frames = list(FrameReader().feed(prefix(Kind.PARCELS, 1, 1) + b"a", []))
    assert frames[0].descriptor is None and frames[0].lost


def test_descriptors_nobody_took_are_closed_with_the_reader() -> None:
    read, write = os.pipe()
    reader = FrameReader()
    list(reader.feed(prefix(Kind.PARCELS, 10, 1), [Descriptor(read)]))
    del reader
    with pytest.raises(OSError):
        os.fstat(read)
    os.close(write)


def test_descriptors_are_closed_in_a_forked_child() -> None:
    read, write = os.pipe()
    mine = Descriptor(read)
    child = os.fork()
    if child == 0:
        try:
            os.fstat(read)
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    os.fstat(read)
    mine.close()
    os.close(write)
