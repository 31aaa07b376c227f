"""Whether a fork of this process is safe: its threads, locks and native thread pools."""
