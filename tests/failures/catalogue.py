"""The ways in which a loader with workers is known to fail, and what shows that ours does not.

A failure is shown by programs of ours (`programs.py`), by tests elsewhere (node ids), or both.
`cannot`: why it cannot come up, or cannot be shown here. `remains`: what is left of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    words: str
    programs: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    cannot: str = ""
    remains: str = ""


FAILURES = {
    "A1": Failure(
        "a batch that cannot be pickled",
        ("a generator in a batch, spawned workers",),
        (
            "parity/test_unsendable.py::test_a_batch_that_cannot_be_sent_is_an_error_that_says_what_and_where",
        ),
    ),
    "A2": Failure(
        "an exception that cannot be pickled",
        tests=("parity/test_errors.py::test_an_exception_that_cannot_travel_is_told_all_the_same",),
    ),
    "A3": Failure("a tensor with a history", ("a tensor with a history, in a list",)),
    "A5": Failure(
        "no descriptors left in a worker",
        tests=(
            "rogues/test_resources.py::test_sixty_four_descriptors_are_enough_for_large_batches_and_for_many_tensors",
        ),
    ),
    "A6": Failure(
        "a small /dev/shm, and a collate function of one's own",
        tests=(
            "rogues/test_resources.py::test_batches_of_four_megabytes_where_shared_memory_has_one",
        ),
        cannot="batches lie in anonymous memory, whoever collates them",
    ),
    "A7": Failure(
        "a sample that never returns",
        ("a sample that never returns",),
        (
            "rogues/test_hangs.py::test_a_report_names_sample_line_and_what_the_kernel_says",
            "rogues/test_hangs.py::test_an_init_function_that_hangs_is_named",
            "rogues/test_stuck_in_main.py::test_without_workers_it_is_said_what_is_stuck_and_where",
        ),
        remains="without workers it is said, and nobody can be replaced",
    ),
    "A8": Failure(
        "a timeout that does not say of what",
        ("a timeout", "a timeout in the epoch after the one that hung"),
    ),
    "B1": Failure(
        "a lock held at the fork",
        tests=(
            "rogues/test_fork_hazards.py::test_a_lock_that_another_thread_holds_stops_no_worker",
            "rogues/test_fork_hazards.py::test_a_lock_of_the_dataset_that_another_thread_holds_arrives_free",
            "rogues/test_zygotes.py::test_a_logging_lock_held_by_another_thread_stops_nobody",
            "rogues/test_hangs.py::test_a_lock_that_was_held_at_the_fork_does_not_stop_the_epoch",
        ),
    ),
    "B2": Failure(
        "a thread pool or an event loop of the main process",
        (
            "a thread pool of the dataset, used before the fork",
            "a thread pool of the dataset, where workers are to be forked",
        ),
        (
            "rogues/test_fork_hazards.py::test_a_thread_pool_that_is_idle_is_forked_beside",
            "rogues/test_fork_hazards.py::test_an_event_loop_in_another_thread_that_is_idle_is_forked_beside",
        ),
        remains="where workers are to be forked, two deadlocks, nine seconds, precede the error",
    ),
    "B3": Failure(
        "OpenMP before and after the fork",
        tests=("rogues/test_zygotes.py::test_an_openmp_pool_used_before_and_in_workers",),
    ),
    "B4": Failure("OpenCV in workers", ("OpenCV before and in workers, on all processors",)),
    "B5": Failure(
        "all workers on one processor", ("OpenCV before and in workers, on all processors",)
    ),
    "B6": Failure(
        "too many threads in all",
        tests=(
            "rogues/test_zygotes.py::test_pools_are_capped_in_workers_and_an_init_function_wins",
        ),
    ),
    "C1": Failure(
        "one position of a file for all workers",
        (
            "a file that could also be written to",
            "a descriptor by its number, spawned workers",
            "a program that the dataset talks to",
        ),
        (
            "rogues/test_zygotes.py::test_each_worker_has_its_own_position_in_an_inherited_file",
            "rogues/test_sending.py::test_a_file_open_for_reading_is_opened_anew_at_its_position",
        ),
    ),
    "C2": Failure("archives", ("zip and npz archives opened before",)),
    "C3": Failure(
        "HDF5 files",
        tests=(
            "rogues/test_real_handles.py::test_an_hdf5_file_is_named_once_and_read_rightly_by_forked_workers",
            "rogues/test_real_handles.py::test_an_hdf5_file_for_each_worker_gives_right_rows_and_no_word",
            "rogues/test_zygotes.py::test_a_lock_on_a_file_is_free_as_soon_as_the_loop_is_over",
        ),
        remains="the handle stays shared, as it is named in a warning",
    ),
    "C4": Failure(
        "LMDB environments",
        tests=(
            "rogues/test_real_handles.py::test_an_lmdb_environment_is_named_whatever_its_class_says_of_itself",
            "rogues/test_real_handles.py::test_an_lmdb_environment_that_locks_and_is_not_opened_anew_gives_right_rows_or_an_error",
            "rogues/test_real_handles.py::test_an_lmdb_environment_for_each_worker_gives_right_rows_and_no_word",
            "rogues/test_lmdb_environments.py::test_every_worker_reads_by_an_environment_of_its_own",
            "rogues/test_lmdb_environments.py::test_one_that_takes_the_place_of_a_dead_one_has_its_own_as_well",
        ),
        remains="one that writes, or whose transaction or cursor the dataset holds, stays shared,"
        " as it is named in a warning; its table of readers can fill up, which LMDB itself reports",
    ),
    "C5": Failure(
        "sockets and connections",
        ("a socket opened before",),
        (
            "data/test_per_worker.py::test_a_database_that_the_main_process_has_used_before",
            "rogues/test_conversations.py::test_a_pipe_of_multiprocessing_is_taken_from_those_who_would_share_it",
            "rogues/test_conversations.py::test_a_socket_is_taken_wherever_workers_come_from_and_the_error_names_its_holder",
        ),
        remains="handles inside of libraries (databases) are named in a warning, and stay shared",
    ),
    "C6": Failure(
        "memory shared with numpy is taken away",
        (
            "memory shared with numpy, spawned workers",
            "an array and a tensor of it, spawned workers",
        ),
        (
            "rogues/test_sending.py::test_views_of_one_tensor_stay_views_of_one_tensor_and_the_callers_stays_his",
        ),
    ),
    "C7": Failure(
        "a destructor in the wrong process",
        tests=(
            "rogues/test_fork_hazards.py::test_a_garbage_iterator_of_another_loader_at_the_time_of_the_fork",
            "parity/test_workers.py::test_a_forked_child_does_not_disturb_an_iterator_it_inherited",
        ),
    ),
    "D1": Failure(
        "global generators draw the same in all workers",
        tests=("parity/test_randomness.py::test_each_generator_by_itself",),
    ),
    "D2": Failure(
        "a generator of the dataset draws the same in all workers",
        ("a generator that the dataset owns", "a generator that an iterable dataset owns"),
        ("parity/test_randomness.py::test_generators_are_found_where_people_hide_them",),
        remains="a stream's own generator is named, and left as it is: workers may have to agree",
    ),
    "D3": Failure(
        "draws depend on the number of workers",
        tests=("parity/test_randomness.py::test_the_number_of_workers_changes_nothing",),
    ),
    "E1": Failure(
        "every worker gives the whole stream",
        ("a stream that each worker shuffles and none parts",),
        ("parity/test_torch_pitfalls.py::test_workers_that_all_yield_everything",),
    ),
    "E2": Failure(
        "drop_last in every worker",
        tests=("parity/test_torch_pitfalls.py::test_drop_last_that_drops_most_of_an_iterable",),
    ),
    "E3": Failure(
        "a stream after its error",
        tests=("parity/test_torch_pitfalls.py::test_a_stream_that_ended_with_its_error",),
    ),
    "E4": Failure(
        "old copies in persistent workers",
        ("a transform changed under persistent workers",),
        (
            "parity/test_torch_pitfalls.py::test_attributes_changed_in_the_main_process_with_persistent_workers",
        ),
    ),
    "E5": Failure(
        "one iterator for two loops",
        ("two iterators of one loader, by name",),
        (
            "parity/test_torch_pitfalls.py::test_two_loops_at_once_share_the_one_iterator_and_are_told_so",
            "parity/test_torch_pitfalls.py::test_a_loader_zipped_with_itself",
        ),
    ),
    "E6": Failure(
        "state kept in workers is lost",
        ("a list of bad files kept by the dataset, one epoch",),
        ("parity/test_torch_pitfalls.py::test_attributes_changed_in_workers",),
    ),
    "E7": Failure(
        "StopIteration from a sample",
        tests=(
            "parity/test_error_places.py::test_stop_iteration_from_a_sample_is_an_error_and_the_epoch_goes_on",
        ),
    ),
    "F1": Failure(
        "which sample was it",
        tests=(
            "parity/test_errors.py::test_our_notes_name_the_sample_and_the_worker",
            "parity/test_errors.py::test_a_shuffled_epoch_names_the_datasets_own_index",
        ),
    ),
    "F2": Failure(
        "shapes that do not stack",
        tests=("parity/test_collate_mismatch.py::test_the_odd_one_is_named",),
    ),
    "F3": Failure(
        "None from a sample", tests=("parity/test_collate_mismatch.py::test_the_odd_one_is_named",)
    ),
    "F4": Failure(
        "exceptions that cannot be rebuilt",
        tests=("parity/test_errors.py::test_an_exception_keeps_its_type_and_attributes",),
    ),
    "F5": Failure(
        "a worker killed, for want of memory or by hand",
        tests=(
            "rogues/test_killed.py::test_a_worker_that_dies_once_costs_nothing_and_is_reported_once",
            "rogues/test_killed.py::test_a_sample_that_always_kills_is_raised_in_its_turn_and_named",
            "rogues/test_out_of_memory.py::test_the_verdict_names_the_sample_and_the_figures",
        ),
    ),
    "F6": Failure("a crash in native code", ("a segmentation fault",)),
    "F7": Failure(
        "a death whose message depends on luck",
        ("a worker that dies when all is sent, and another in innocent code",),
        ("rogues/test_killed.py::test_workers_killed_at_random_moments_from_outside",),
    ),
    "F8": Failure(
        "an error raised in innocent code",
        ("a worker that dies when all is sent, and another in innocent code",),
        ("rogues/test_worker_watchdog.py::test_a_death_is_noticed_while_the_loop_is_away",),
    ),
    "F9": Failure(
        "what of the dataset cannot be sent",
        tests=(
            "rogues/test_sending.py::test_what_cannot_be_sent_is_named_by_its_path_before_anything_starts",
        ),
    ),
    "F10": Failure(
        "notebooks, no main guard, datasets that do not open",
        (
            "no main guard, classes of a cell, spawned workers",
            "a dataset that does not open in a worker",
            "an init function that ends its worker",
        ),
    ),
    "F13": Failure(
        "no descriptors left in the main process",
        tests=("rogues/test_stuck_workers.py::test_keeping_every_batch_costs_no_descriptors",),
    ),
    "F14": Failure(
        "the temporary folder is gone",
        tests=("rogues/test_resources.py::test_a_temporary_folder_we_could_not_use",),
    ),
    "F15": Failure("a breakpoint in a worker", ("a breakpoint in a worker",)),
    "G1": Failure(
        "memory that is copied because it is looked at",
        tests=(
            "rogues/test_resources.py::test_a_collection_in_a_worker_copies_nothing_of_what_it_inherited",
        ),
        remains="reading a list of Python objects still writes their reference counts",
    ),
    "G2": Failure(
        "a view that brings its whole storage",
        tests=(
            "transport/test_packing.py::test_a_small_view_of_a_huge_storage_brings_only_itself",
        ),
    ),
    "G3": Failure(
        "a small /dev/shm",
        tests=("rogues/test_starved.py::test_a_shared_memory_mount_of_one_megabyte",),
    ),
    "G4": Failure(
        "files left in /dev/shm",
        tests=(
            "rogues/test_leftovers.py::test_no_process_no_memory_and_no_file_outlives_the_program",
        ),
    ),
    "G5": Failure(
        "too many mappings",
        tests=(
            "transport/test_packing.py::test_many_small_tensors_go_to_the_slab_together",
            "rogues/test_resources.py::test_five_hundred_tensors_a_batch_leave_nothing",
        ),
        cannot="a batch is one mapping, and those that are kept in numbers are copied out of it",
    ),
    "G6": Failure(
        "samplers that build lists",
        cannot="it ends in the right data; the sampler is torch's own, and costs what it costs",
        tests=("rogues/test_stuck_in_main.py::test_a_sampler_that_does_not_return_is_named",),
        remains="45 bytes of memory for each index of a shuffled epoch; its time is said",
    ),
    "G7": Failure(
        "growth over epochs",
        tests=(
            "rogues/test_resources.py::test_two_hundred_short_epochs_with_persistent_workers_leave_nothing",
        ),
    ),
    "H1": Failure(
        "leaving a loop takes long",
        tests=("rogues/test_stuck_workers.py::test_leaving_a_loop_does_not_wait_for_busy_workers",),
    ),
    "H2": Failure(
        "a program that does not end",
        ("workers that ignore SIGTERM, at the end of the program",),
        (
            "rogues/test_stuck_workers.py::test_the_program_ends_although_workers_hold_the_gil_for_ever",
        ),
    ),
    "H3": Failure(
        "orphans",
        tests=(
            "rogues/test_killed.py::test_workers_go_with_a_main_process_that_is_killed",
            "rogues/test_leftovers.py::test_workers_of_a_killed_program_are_gone_in_seconds",
        ),
    ),
    "H4": Failure("a worker that dies while it sends", ("a worker killed while it sends",)),
    "H6": Failure(
        "a persistent loader that does not recover",
        tests=(
            "parity/test_endings.py::test_a_persistent_worker_killed_between_epochs_is_replaced",
        ),
    ),
    "H7": Failure(
        "Ctrl-C",
        tests=("parity/test_endings.py::test_ctrl_c_is_one_traceback_and_nothing_left",),
    ),
    "H9": Failure(
        "the thread that pins",
        tests=(
            "contracts/test_pinning.py::test_a_batch_that_cannot_be_pinned_is_an_error_in_its_turn",
            "parity/test_iteration.py::test_pinning_without_an_accelerator_is_torchs_warning_and_plain_batches",
        ),
    ),
    "I1": Failure(
        "a slow sample holds up the line",
        tests=("parity/test_iteration.py::test_a_slow_batch_keeps_its_place",),
        remains="the others stop after `prefetch_factor` batches each, as torch's do",
    ),
    "I2": Failure(
        "the first batch comes from one worker",
        tests=(
            "parity/test_iteration.py::test_workers_begin_at_once_and_run_ahead_as_far_as_prefetch_factor_allows",
        ),
        remains="a batch is still one worker's work",
    ),
    "I3": Failure(
        "every epoch starts slowly",
        tests=(
            "rogues/test_sending.py::test_the_dataset_is_sent_once_and_a_replaced_worker_needs_no_sending",
        ),
        remains="without persistent workers each epoch has new ones",
    ),
    "I4": Failure(
        "nothing is loaded between epochs",
        tests=("parity/test_workers.py::test_persistent_workers_keep_process_and_dataset",),
        remains="the order of the next epoch is not drawn before its loop begins, as in torch",
    ),
    "I6": Failure(
        "a cost for each tensor",
        tests=("transport/test_packing.py::test_many_small_tensors_go_to_the_slab_together",),
        cannot="all tensors of a batch travel in one message or one slab",
    ),
    "I7": Failure(
        "slower than no loader where the data is in memory",
        tests=(
            "transport/test_tiny_batches.py::test_an_epoch_of_tiny_batches_is_bundled_complete_and_in_order",
        ),
        remains="a function call costs less than a message",
    ),
}
