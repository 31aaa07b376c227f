"""Take the current folder off the path for commands that never run the user's code.

`python -m antifreeze check` has the current folder first on its path. In a repository of others a
`rich.py` or a folder `libcst` would then be run in place of the real one. So this comes before all
other imports of ours. What Python imports even before us, such as a folder `antifreeze`, cannot be
kept out here: the command `antifreeze`, and `python -P -m antifreeze`, have no such entry.
"""

import sys

_MODULES = ("antifreeze", "antifreeze.cli", "-mantifreeze", "-mantifreeze.cli")
_RUN_NOTHING = ("check", "attach", "explain", "platform")


def leave_current_folder() -> None:
    """Take the first entry off the path if it is the one that `-m` has put there."""
    words = sys.argv
    # While `-m` looks for its module, that stands in place of the module's path.
    if words[:1] != ["-m"] or words[1:2] == [] or words[1] not in _RUN_NOTHING:
        return
    if sys.flags.safe_path or len(sys.orig_argv) < len(words):
        return
    if sys.orig_argv[-len(words)] in _MODULES:
        del sys.path[:1]
