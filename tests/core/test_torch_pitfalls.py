"""What is said where torch's behaviour is a trap: on evidence, once, with a remedy."""

from __future__ import annotations

import pytest

from antifreeze._loading.observations import Change, Changed, Opening, StreamEnded
from antifreeze._reporting.torch_pitfalls import AT_THE_END, FEW, PLENTY, TorchPitfalls


def said(traps: TorchPitfalls) -> list[str]:
    texts, traps.due = traps.due, []
    return texts


def test_two_workers_that_begin_with_the_same_samples_load_the_same() -> None:
    traps = TorchPitfalls(3)
    traps.notice(0, Opening(7, FEW))
    assert traps.in_passing == []
    traps.notice(1, Opening(7, FEW))
    (text,) = traps.in_passing
    assert "every sample comes 3 times" in text and "get_worker_info" in text
    traps.begin_epoch()
    traps.notice(0, Opening(7, FEW))
    traps.notice(1, Opening(7, FEW))
    assert len(traps.in_passing) == 1 and traps.due == []


def test_different_samples_and_a_replaced_worker_say_nothing() -> None:
    traps = TorchPitfalls(2)
    traps.notice(0, Opening(7, FEW))
    traps.notice(0, Opening(7, FEW))  # its next life begins where it began
    traps.notice(1, Opening(8, FEW))
    traps.begin_epoch()
    traps.notice(1, Opening(7, FEW))  # another epoch
    assert traps.in_passing == []


def test_where_somebody_asked_plenty_of_samples_must_agree_in_all_workers() -> None:
    traps = TorchPitfalls(3)
    for different in (FEW, PLENTY):
        for seat in (0, 1):
            traps.notice(seat, Opening(different, different, asked=seat == 0))
    traps.notice(2, Opening(FEW, FEW))
    assert traps.in_passing == []
    traps.notice(2, Opening(PLENTY, PLENTY))
    assert len(traps.in_passing) == 1


@pytest.mark.parametrize(
    ("given", "different", "asked", "told"),
    [
        (8, AT_THE_END, False, True),
        (8, AT_THE_END - 1, False, False),
        (8, FEW, True, True),
        (8, FEW - 1, True, False),
        (1000, 10, False, False),  # labels: as many of each in every part
    ],
)
def test_streams_that_gave_the_same_samples_in_another_order(
    given: int, different: int, asked: bool, told: bool
) -> None:
    traps = TorchPitfalls(2)
    for seat in (0, 1):
        traps.notice(seat, StreamEnded(given, 0, "", 77, different, asked))
    assert len(traps.in_passing) == told and traps.due == []


def test_where_somebody_asked_all_streams_must_have_given_the_same() -> None:
    traps = TorchPitfalls(3)
    for seat, tally in enumerate((77, 77, 78)):
        traps.notice(seat, StreamEnded(20, 0, "", tally, 20, asked=True))
    assert traps.in_passing == []


def test_a_batch_more_than_one_process_drops_is_told_when_all_streams_have_ended() -> None:
    traps = TorchPitfalls(3)
    traps.notice(0, StreamEnded(4, 1, batch=4))
    traps.notice(1, StreamEnded(8, 1, batch=4))
    assert said(traps) == []
    traps.notice(2, StreamEnded(0, 3, batch=4))
    (text,) = said(traps)
    assert "drop_last dropped 5 of 17 samples: each of the 3 workers" in text
    assert "One process would have dropped 1." in text


@pytest.mark.parametrize(
    ("one", "two", "told"),
    [
        ((32, 3), (32, 4), False),  # one process would have dropped 7, too
        ((400, 4), (400, 4), False),  # a batch of 8, but 1 % of what was given
        ((392, 4), (392, 5), True),
    ],
)
def test_a_usual_rest_is_not_worth_a_word(
    one: tuple[int, int], two: tuple[int, int], told: bool
) -> None:
    traps = TorchPitfalls(2)
    traps.notice(0, StreamEnded(*one, batch=8))
    traps.notice(1, StreamEnded(*two, batch=8))
    assert len(said(traps)) == told


def test_a_stream_that_ended_with_its_error() -> None:
    traps = TorchPitfalls(2)
    traps.notice(1, StreamEnded(12, 0, "ValueError: bad line 13"))
    traps.raised.add(1)
    traps.went_on()
    (text,) = said(traps)
    assert "the stream of worker 1 ended with its error (ValueError: bad line 13)" in text


def test_attributes_are_named_and_counted() -> None:
    traps = TorchPitfalls(1)
    traps.notice(0, Changed(("dataset.count (0, now 5)",)))
    traps.changed_here(())
    traps.changed_here(tuple(Change(f"dataset.{name}") for name in "abcd"))
    there, here = said(traps)
    assert there.startswith("antifreeze: dataset.count (0, now 5) has changed in a worker")
    assert here.startswith(
        "antifreeze: dataset.a, dataset.b, dataset.c and 1 more have changed in this process"
    )


def test_a_shared_tensor_is_advised_where_a_number_has_changed() -> None:
    for is_number in (True, False):
        traps = TorchPitfalls(1)
        traps.changed_here((Change("dataset.names"), Change("dataset.x", is_number)))
        (text,) = said(traps)
        assert "persistent_workers=False" in text
        assert ("share_memory_" in text) == is_number


def test_what_was_said_of_a_loader_is_not_said_again_by_its_next_loop() -> None:
    told: set[str] = set()
    for expected in (1, 0):
        traps = TorchPitfalls(1, told)
        traps.notice(0, Changed(("dataset.count",)))
        assert len(said(traps)) == expected


def test_runs_of_few_values_show_that_workers_load_the_same_unless_somebody_asked() -> None:
    traps = TorchPitfalls(2)
    traps.notice(0, Opening(7, PLENTY, runs=True))
    traps.notice(1, Opening(7, PLENTY, runs=True))
    assert len(traps.in_passing) == 1
    asking = TorchPitfalls(2)
    asking.notice(0, Opening(7, PLENTY, asked=True, runs=True))
    asking.notice(1, Opening(7, PLENTY, runs=True))
    mixed = TorchPitfalls(2)
    mixed.notice(0, Opening(7, PLENTY, runs=True))
    mixed.notice(1, Opening(7, PLENTY))
    assert asking.in_passing == mixed.in_passing == []


def cut(seat: int = 0) -> tuple[int, StreamEnded]:
    return seat, StreamEnded(3, 0, "ValueError: bad")


def test_a_stream_cut_short_is_told_when_the_loop_goes_on_after_its_error() -> None:
    traps = TorchPitfalls(2)
    traps.notice(*cut())  # prefetched: the loop has yet to receive the error
    assert said(traps) == []
    traps.raised.add(0)
    assert said(traps) == []
    traps.went_on()
    (text,) = said(traps)
    assert "the stream of worker 0 ended with its error" in text


def test_it_is_told_as_well_if_the_end_comes_after_the_loop_went_on() -> None:
    traps = TorchPitfalls(2)
    traps.raised.add(1)
    traps.went_on()
    traps.notice(*cut(0))  # another's, which the loop has not received
    assert said(traps) == []
    traps.notice(*cut(1))
    assert len(said(traps)) == 1


def test_another_epoch_does_not_go_on_after_the_errors_of_the_one_before() -> None:
    traps = TorchPitfalls(1)
    traps.raised.add(0)
    traps.begin_epoch()
    traps.went_on()
    traps.notice(*cut())
    assert said(traps) == []
