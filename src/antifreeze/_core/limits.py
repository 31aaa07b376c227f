"""Every bound that antifreeze keeps: its unit, its default, and the reason for it.

1. One table. `Limits` holds what the supervisor keeps itself, and one group for each concern.
2. A loader hands its `Limits` to everything that works for it (`DataLoader._limits`, a seam that
   tests use). What works for no loader in particular takes `LIMITS`, the defaults.
3. Code that runs for every batch or sample reads a bound once, when it is made.
4. Not here: sizes of a format, what a message shows, and where one way of working becomes cheaper
   than another. These stay beside the code that they describe.
"""

from __future__ import annotations

from .frozen_values import frozen


@frozen
class StallLimits:
    """When a call that lasts is looked at, reported and ended (`_core/health`)."""

    # A call that lasts longer is looked at closely.
    examined_s: float = 1.0
    # A worker that somebody has stopped (SIGSTOP) is told to go on.
    resumed_s: float = 3.0
    # When a stall is reported. The first comes early enough to be seen within ten seconds.
    reported_s: tuple[float, ...] = (5.0, 60.0, 300.0, 1800.0)
    # The first report of a call that moves: it may be done by then.
    moving_s: float = 7.0
    # Between first reports of calls that move: where every sample is slow, one line is enough.
    # Doubles.
    quiet_s: float = 60.0
    # Without a look: the whole program stood still, and nobody is to blame for that.
    pause_s: float = 10.0
    # Processor time in each second between two looks: a thread that sleeps and looks, as our own
    # do, uses less.
    cpu_s: float = 0.02
    # What moves does something in this time; stacks come every second.
    moved_s: float = 5.0
    # On one unchanged stack, at every look: a loop in Python is found on its hottest line now and
    # then.
    spun_s: float = 30.0
    # Looks whose stacks are taken together: what they have in common is the part of the code that
    # a call is in. A loop is seen at one of its lines or another, and goes on to nothing.
    stacks: int = 3
    # At this share of the looks, at most, is a call that only waits seen to run.
    woken_share: float = 0.5
    # For a deadlock that comes again: a new worker did not help.
    again_s: float = 1.5
    # Looks after which a worker that can look at itself has done so twice: it began earlier.
    overdue_looks: float = 1.7
    # Looks between two questions to a zygote that unpickles, and from the first close look to the
    # first of them.
    asked_looks: float = 1.5
    # To see whether a thread of this process runs: while we look it may wait for the interpreter's
    # lock, as for any other. This long it can have that; a thread that uses a tenth of it runs.
    let_run_s: float = 0.02
    # At a thread that seems to run: it may have woken for a moment.
    looks_at_a_thread: int = 5


@frozen
class GrowthLimits:
    """Which workers have grown too much (`_core/health/memory_growth.py`)."""

    # Of what a worker may hold: one that grows by less began with too much.
    least_share_of_limit: float = 0.1
    # A worker that is let go brings first what it holds.
    ahead_looks: int = 3
    # Of all memory: less does not help against a shortage.
    least_share_of_memory: float = 0.02
    # Items of a container that are measured when a worker names what has grown in it.
    measured_items: int = 32
    # Containers in containers that are measured.
    measured_depth: int = 4
    # Suspects that a worker names.
    suspects: int = 16
    # What is smaller is nobody's suspect.
    suspect_bytes: int = 1024 * 1024


@frozen
class BundleLimits:
    """How many tiny batches travel together (`_core/bundling.py`, `_worker/outbox.py`)."""

    # What one bundle may take to load. What is loaded of it is sent every millisecond.
    load_s: float = 0.004
    # What the slabs of one bundle may hold: what is in flight stays small beside the program.
    slab_bytes: int = 2 * 1024 * 1024
    # Beyond it the cost of the message no longer shows.
    tickets: int = 64
    # Of a message of loaded batches; a socket takes several such without blocking.
    message_bytes: int = 32 * 1024
    # Messages need not come closer together: one costs both sides a tenth of this.
    flush_s: float = 0.001
    # How often a worker's thread looks for batches that have waited: seldom enough to cost nothing.
    look_s: float = 0.005
    # Looks without anything new; then it sleeps until something comes.
    idle_looks: int = 20
    # Of that sleep: no wait is without a bound.
    sleep_s: float = 3600.0


@frozen
class LookLimits:
    """How often workers and loops are looked at."""

    # At workers that keep the loop waiting.
    workers_s: float = 1.0
    # A worker at itself.
    own_s: float = 1.0
    # The shortest of both, however short `sample_timeout` is: a look costs up to a millisecond.
    shortest_s: float = 0.02
    # At loops that load in the main process, or ask a sampler there.
    main_process_s: float = 1.0
    # For the thread that does so, at the end of the program: it sleeps, or is in one look.
    main_process_join_s: float = 1.0
    # Frames of a stack that are read: recursion may be deep.
    stack_frames: int = 200
    # A loop of the main process that is away so long is looked at rarely until it comes back.
    loop_away_s: float = 10.0
    # At what workers use of the machine.
    usage_s: float = 10.0
    # Between two messages of a worker about the lines that its samples are found in.
    hot_lines_s: float = 2.0
    # Lines that are counted until they are reported.
    hot_lines: int = 50
    # Of the stacks that a worker writes down; then the file begins anew.
    stack_file_bytes: int = 1024 * 1024


@frozen
class AwayLimits:
    """While the loop is away (`_engine/worker_watchdog.py`, `_engine/loop_abandonment.py`)."""

    # Until the thread starts that watches meanwhile: many a short epoch is over by then.
    after_s: float = 0.1
    # A driver that was dropped without a close is noticed this late, at most.
    tick_s: float = 1.0
    # Between two looks: a loop in pure Python feels a thread that wakes more often.
    pause_s: float = 0.02
    # For the thread to end: it is asleep, or in the middle of one step.
    join_s: float = 1.0
    # Until a loop may be taken for abandoned: long enough to catch an error, save a checkpoint and
    # go on.
    abandoned_s: float = 30.0
    # Between two questions who holds an iterator: all objects of the program are gone through for
    # it, 30 ms a million. Doubles up to this.
    asked_again_s: float = 600.0


@frozen
class StartLimits:
    """Starting workers, the processes that they come from, and threads."""

    # For a forked worker to listen. It does in milliseconds; on a machine that swaps, or if its
    # siblings, each of hundreds of gigabytes, are forked before it, it takes longer.
    forked_s: float = 15.0
    # More for each worker.
    forked_each_s: float = 1.0
    # For one that comes from a clean process, which imports the program's libraries first.
    clean_s: float = 120.0
    # ... and if there is another way.
    clean_or_forked_s: float = 30.0
    # Processor time for forking first workers in the main process: another one is forked there
    # unless so much was spent on those before it. Four where a fork takes 3 ms, one where the
    # process is large.
    first_workers_cpu_s: float = 0.012
    # Where the machine gives no process: workers of the last epoch may be about to end.
    process_tries: int = 25
    process_pause_s: float = 0.01
    # For news of a birth, of a worker that is to be ended; it speaks first only by milliseconds.
    birth_news_s: float = 0.2
    # For a pid that somebody wants to see: a new process imports the program first.
    birth_s: float = 60.0
    # Between the end of a process and its exit status.
    reap_s: float = 1.0
    # For a zygote that was killed; what takes longer sits in the kernel.
    killed_zygote_s: float = 0.5
    # Zygotes that were gone before they were ready; once can be bad luck.
    stillborn_zygotes: int = 2
    # Comparisons in vain, in a row, with the dataset that a kept zygote holds: a dataset that
    # changes in each epoch is sent in each.
    kept_zygote_tries: int = 3
    # A kept zygote takes no more than one part in so many of the memory that is left.
    kept_zygote_share: int = 2
    # Of which it is remembered how they ended.
    zygote_ends: int = 64
    # Of a loader without workers: `it = iter(loader)`, again and again, has two iterators for a
    # moment.
    kept_drivers: int = 2
    # A thread that the system has given starts in well under a millisecond.
    thread_s: float = 5.0
    # Signals that may interrupt the wait for it.
    thread_tries: int = 10
    # That the thread for deferred work waits for more of it.
    idle_thread_s: float = 1.0


@frozen
class ForkLimits:
    """The looks that decide whether a fork is safe (`_processes/fork_safety`)."""

    # At the other threads, right before a fork: one may only be passing through.
    looks: int = 20
    look_s: float = 0.001
    # The same when a loop begins: threads of a pool that was laid down are about to be gone.
    first_looks: int = 10
    first_look_s: float = 0.002
    # Several loops ask while one begins: so long a look at the other threads counts.
    look_holds_s: float = 0.25
    # That a thread which waits for the GIL waits until it asks for it. A fork takes 30 ms where the
    # process is large; after that all is as before. (Python's own is 5 ms.)
    undisturbed_s: float = 0.1
    # That a forked child waits until it looks whether its parent is still there.
    parent_look_s: float = 1.0
    # Processor time of each of two searches for what workers can reach: the loop waits for them.
    search_cpu_s: float = 0.005
    # A fork copies the tables of all memory, 20 ms for each GiB, and each worker's costs that
    # again; and whatever the main process changes later is copied page by page. Until the clean
    # process is there it costs a second, so for less than this a fork is the better deal.
    huge_bytes: int = 3 * 1024**3
    # Open files among which locks are looked for. To look at more takes longer than to wait for the
    # end of a zygote, 5 ms.
    files_looked_at: int = 500


@frozen
class Bounds:
    """What sending a dataset may cost before a fork is the better deal. None: whatever it takes."""

    seconds: float | None
    pickled_bytes: int | None  # what has to be unpickled, piece by piece
    bytes: int | None  # in all; arrays are copied once and mapped by all workers


# The user wants a clean process.
UNBOUNDED = Bounds(None, None, None)


@frozen
class SendLimits:
    """Sending a job to a clean process (`_processes/replication`)."""

    # A freeze is worse than a few seconds. A minute before every epoch is not better than a rare
    # one.
    against_freezes: Bounds = Bounds(5.0, 512 * 1024**2, 8 * 1024**3)
    # Forked workers have proven to be stuck: without a clean process the run is lost.
    to_save_the_run: Bounds = Bounds(120.0, None, None)
    # To save 100 ms, spend no more.
    against_slow_forks: Bounds = Bounds(0.25, 16 * 1024**2, 256 * 1024**2)
    # For room in a channel: the other end takes a message when it has done what the last one asked.
    message_s: float = 30.0
    # For what the script names and the dataset does not.
    script_s: float = 0.05
    # For trying what functions import while they run.
    imports_s: float = 1.0
    # To find what cannot be sent, parts of a dataset are tried one by one: so many, and so long.
    tried_parts: int = 400
    tried_s: float = 1.0
    # A job whose tables have keys found by code is pickled until the classes of all keys are known:
    # at the second time they mostly are, at the third always, but where objects tell others.
    passes: int = 5
    # Where workers import modules anew: to compare these with their sources, and names in one line.
    compared_s: float = 1.0
    named_globals: int = 5
    # A text file is read to see how its lines end.
    text_file_bytes: int = 64 * 1024 * 1024
    # Between two looks at whom threads wait for that run stand-ins: nobody is told when that
    # changes.
    turn_look_s: float = 0.01
    # Until a thread that waits for its turn goes beside: longer than most modules run; without it,
    # some programs would wait forever.
    turn_s: float = 5.0
    # Threads of which each waits for the next; more are no longer looked at.
    turn_chain: int = 16
    # At the code of one module: in a circle of imports it may fail until others are there. Without
    # a bound, each module of a circle that cannot be imported tries all others again.
    module_tries: int = 8


@frozen
class SearchLimits:
    """Walks through what belongs to the program: it may be large, deep or a circle."""

    # What a Compose in a Compose in a Subset of a Subset holds is eight steps away.
    dataset_depth: int = 8
    dataset_objects: int = 1_000
    # Of the entries of one list or dict: a dataset may hold a list of millions.
    dataset_items: int = 32
    # Objects among which generators are; each would have to be looked at before every epoch.
    generator_objects: int = 200
    # Datasets around datasets; beyond that a batch of Subsets is asked for as a whole.
    wrapped_datasets: int = 32
    # What workers can reach, before a fork; from an attribute or a global on.
    reached_modules: int = 64
    reached_objects: int = 4_000
    reached_depth: int = 6
    # Functions that workers call, and the way from an object to them.
    used_functions: int = 2_000
    used_depth: int = 6
    # Parts of samples that do not fit together, of all of them; containers in containers.
    collate_parts: int = 100_000
    collate_depth: int = 20
    # Errors, each the cause of the one before, in which notes and advice are looked for.
    error_chain: int = 8
    # Processes that one worker has started.
    child_processes: int = 200


@frozen
class CloseLimits:
    """Ending an iterator (`_engine/driver.py`)."""

    # Each interrupted by Ctrl-C; then the workers are killed outright.
    tries: int = 8
    # Beyond the last deadline of ending a worker; then its process is abandoned.
    margin_s: float = 1.0
    # For a thread that is inside the user's sampler or dataset.
    lock_s: float = 5.0
    # A pinning call is a memory copy; a thread that needs longer is left behind.
    pinning_s: float = 5.0


@frozen
class StreamLimits:
    """Taking streams up again (`_engine/stream_positions.py`, `_worker/resumable_streams.py`)."""

    # States that are kept of an epoch: the last one may be the end, and nothing may be known after
    # the one before it.
    states: int = 3
    # Fingerprints of batches, of one epoch: of streams without a state nobody knows which are
    # needed.
    prints: int = 1024
    # Epochs that are kept: very short ones have not two states each.
    epochs: int = 8
    # Of a worker's time that taking states may cost.
    state_share: float = 0.05
    # In a pause of the loop: not worth counting.
    quick_s: float = 0.01
    # Without a message; a loop that trains asks more often.
    pause_ms: int = 20


@frozen
class RecordLimits:
    """What is kept for people: logs, counts, summaries. None of it grows with a run."""

    # Of the event log: enough to see what led to an error, small enough to keep with every loader.
    # None: all (tests that replay whole runs).
    event_log_entries: int | None = 256
    # Of the supervisor, the latest, for reports; the count goes on.
    supervisor_faults: int = 64
    # Of a loader, the latest; the counts go on.
    loader_faults: int = 1_000
    # To copy what another thread changes.
    snapshot_tries: int = 8
    # Between two sums of a loop's times: rarely, and yet fresh for whoever looks.
    fold_s: float = 0.25
    # Times of a loop between two sums.
    unsummed_times: int = 512
    # The slowest: as many as people look at.
    slow_samples: int = 10
    # The latest.
    waits: int = 100
    # Counted; beyond it the rarest are forgotten.
    lines_of_code: int = 200
    # That trends are made of: long enough for a fair mean, short beside an hour.
    trend_window_s: float = 30.0
    # Then neighbours are joined.
    trend_windows: int = 48
    # Whose accounts outlive them; a search may make thousands.
    loaders: int = 100
    # Between two writes of a process's summary: so old is what a killed process has left.
    summary_s: float = 5.0
    # For another thread of this process to have written it.
    summary_lock_s: float = 1.0
    # Processes of a run that may write, and that are read.
    summary_processes: int = 1000
    # Of one summary; one with 20 loaders has 30 kB.
    summary_bytes: int = 1 << 18
    # In it; some programs make one an epoch.
    summary_loaders: int = 20
    # Between two updates of a progress bar: as often as people can read it.
    bar_s: float = 0.1
    # ... which takes one part of so many of the time at the most; but however slow a terminal is,
    # people look.
    bar_share: int = 50
    bar_longest_s: float = 2.0
    # ... of a notebook: each is a message to a browser.
    cell_s: float = 0.25


@frozen
class AttachLimits:
    """Asking a loader from outside (`_engine/attach_mailbox.py`)."""

    # Of an answer.
    answer_bytes: int = 1 << 20
    # For one; whoever answers does so once a second.
    answer_s: float = 2.5
    # Between two looks for it.
    look_s: float = 0.02
    # Levels of an answer: ours have four.
    answer_depth: int = 8
    # Descriptors of a process that are looked through.
    descriptors: int = 20_000
    # Of the event log, the latest, in an answer.
    event_log_entries: int = 12
    # The latest, in an answer.
    faults: int = 5


@frozen
class Limits:
    """The bounds of one loader: what the supervisor keeps, and a group for each concern."""

    # A sample whose worker dies is tried once more: an out-of-memory kill or a cosmic ray does
    # not come back, a poisonous sample does, and a third try would only cost another worker.
    attempts: int = 2
    # Tries of a whole ticket, if each of them ends with another of its samples: who kills workers
    # now and then hits a long batch more than once. Where every sample kills, nobody gets far.
    tries: int = 6
    # Samples of one batch that may so be left to the policy. Where more fail, all will.
    spared: int = 16
    # Lives of a seat, in a row, that end before they have begun an epoch. Twice can be bad luck.
    failed_starts: int = 3
    # Lives of a seat, in a row, that bring no batch. Stops a restart loop that makes no progress.
    barren_lives: int = 8
    # Until a life listens. A spawned one imports the whole program first.
    start_s: float = 120.0
    # A process that ends closes its channel a moment before its end can be seen.
    silent_s: float = 1.0
    # How often to look at what lives do, while the loop waits. None: never.
    look_s: float | None = None
    # How long one call of the user's code may take, whatever it does. None: as long as it moves.
    call_s: float | None = None
    # ... without processor time, I/O or a change of its stack. None: as long as it likes. A slow
    # server, or a disk that has to spin up, is back by then.
    still_s: float | None = 300.0
    # ... using the processor on one unchanged stack. There is code that computes for minutes.
    spin_s: float | None = 1800.0
    # A life that holds tickets and takes none up: it will not get better. Long enough for a machine
    # that swaps.
    dead_s: float = 5.0
    # A life whose threads all wait for each other, with no limit: that is proven, at every look.
    locked_s: float = 3.0
    # ... if lives can be made anew without what they wait for: then nothing is lost by it. Two
    # looks, and a bit.
    turn_s: float = 1.5
    # Memory of its own that a life may hold. None: what the machine has.
    life_bytes: int | None = None
    # When less than this share of the memory there is is left, who has grown most is let go, if by
    # this much at least. 0: nobody is.
    short_share: float = 0.1
    grown_bytes: int = 64 * 1024 * 1024
    # Rest after the second barren life in a row; doubles up to `rest_max_s`.
    rest_s: float = 0.05
    rest_max_s: float = 2.0
    # A busy worker is not waited for: leaving a loop early takes less than half a second in all.
    stop_s: float = 0.25
    # An idle one leaves in a few milliseconds by itself; on a crowded machine it may take a while.
    stop_idle_s: float = 5.0
    terminate_s: float = 0.1
    # SIGKILL needs 130 ms to take 4 GiB apart; what still lives then sits in the kernel.
    kill_s: float = 5.0
    # Epochs of which a worker slot knows what it was asked for: loops that were left early.
    epochs_known: int = 8

    stalls: StallLimits = StallLimits()
    growth: GrowthLimits = GrowthLimits()
    bundles: BundleLimits = BundleLimits()
    looks: LookLimits = LookLimits()
    away: AwayLimits = AwayLimits()
    starting: StartLimits = StartLimits()
    forking: ForkLimits = ForkLimits()
    sending: SendLimits = SendLimits()
    searches: SearchLimits = SearchLimits()
    closing: CloseLimits = CloseLimits()
    streams: StreamLimits = StreamLimits()
    records: RecordLimits = RecordLimits()
    attach: AttachLimits = AttachLimits()


LIMITS = Limits()
