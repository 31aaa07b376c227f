"""How long a test waits for what must come: a line, an end, a process that goes.

No promise: what is promised within seconds is asserted where it is. This only ends the waiting for
what never comes, so it is long enough for a machine that stands still for a minute.
"""

PATIENCE_S = 240.0  # below what a test may take in all (pyproject.toml)
