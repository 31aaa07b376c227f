"""Tests of the pure core: no process, no thread, no sleep; time is an argument."""
