"""Why a process hangs right now, seen from outside: gathered (`look`), then named (`causes/`)."""
