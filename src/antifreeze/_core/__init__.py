"""The part that decides: events in, commands out, time as an argument, no I/O."""
