"""What is said where torch's behaviour is a trap: on evidence, once, with a remedy."""

from __future__ import annotations

from antifreeze._core.traps import Changed, FirstBatch, StreamEnded, Traps


def said(traps: Traps) -> list[str]:
    texts, traps.due = traps.due, []
    return texts


def test_two_workers_with_the_same_first_batch_load_the_same() -> None:
    traps = Traps(2)
    traps.notice(0, FirstBatch(7))
    assert said(traps) == []
    traps.notice(1, FirstBatch(7))
    (text,) = traps.in_passing
    assert "every sample comes 2 times" in text and "get_worker_info" in text
    traps.begin_epoch()
    traps.notice(0, FirstBatch(7))
    traps.notice(1, FirstBatch(7))
    assert len(traps.in_passing) == 1


def test_different_first_batches_and_a_replaced_worker_say_nothing() -> None:
    traps = Traps(2)
    traps.notice(0, FirstBatch(7))
    traps.notice(0, FirstBatch(7))  # its next life begins where it began
    traps.notice(1, FirstBatch(8))
    traps.begin_epoch()
    traps.notice(1, FirstBatch(7))  # another epoch
    assert traps.in_passing == []


def test_more_dropped_than_given_is_told_when_all_streams_have_ended() -> None:
    traps = Traps(3)
    traps.notice(0, StreamEnded(0, 7))
    traps.notice(1, StreamEnded(8, 6))
    assert said(traps) == []
    traps.notice(2, StreamEnded(8, 5))
    (text,) = said(traps)
    assert "drop_last dropped 18 of 34 samples: each of the 3 workers" in text


def test_a_usual_rest_is_not_worth_a_word() -> None:
    traps = Traps(2)
    traps.notice(0, StreamEnded(80, 7))
    traps.notice(1, StreamEnded(0, 7))
    assert said(traps) == []


def test_a_stream_that_ended_with_its_error() -> None:
    traps = Traps(2)
    traps.notice(1, StreamEnded(12, 0, "ValueError: bad line 13"))
    (text,) = said(traps)
    assert "the stream of worker 1 ended with its error (ValueError: bad line 13)" in text


def test_attributes_are_named_and_counted() -> None:
    traps = Traps(1)
    traps.notice(0, Changed(("dataset.count (0, now 5)",)))
    traps.changed_here(())
    traps.changed_here(("dataset.a", "dataset.b", "dataset.c", "dataset.d"))
    there, here = said(traps)
    assert there.startswith("antifreeze: dataset.count (0, now 5) has changed in a worker")
    assert here.startswith(
        "antifreeze: dataset.a, dataset.b, dataset.c and 1 more have changed in this process"
    )


def test_what_was_said_of_a_loader_is_not_said_again_by_its_next_loop() -> None:
    told: set[str] = set()
    for expected in (1, 0):
        traps = Traps(1, told)
        traps.notice(0, Changed(("dataset.count",)))
        assert len(said(traps)) == expected
