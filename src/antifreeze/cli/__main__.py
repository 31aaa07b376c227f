"""`python -m antifreeze.cli`."""

from . import main

raise SystemExit(main())
