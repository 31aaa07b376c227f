"""`loader.progress()`: `loop` counts, `figures` has the words, `displays` and `bars` show."""
