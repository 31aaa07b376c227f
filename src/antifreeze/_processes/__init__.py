"""Those who do the loading: in this process, in worker processes, and in tests on virtual time."""
