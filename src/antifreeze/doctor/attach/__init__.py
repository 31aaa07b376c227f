"""Why a process hangs right now, seen from outside: gathered (`gather/`), understood (`analyse/`),
then named (`causes/`)."""
