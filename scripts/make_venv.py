"""Create the virtual environment named on the command line, or say in one sentence why not.

Run by the Makefile with whatever ``python3`` is. So this file keeps to syntax that
any Python 3 parses: one that is too old must get as far as the sentence. It imports
nothing of Penstock. An environment that still works is left alone.
"""

import os
import subprocess
import sys

OLDEST = (3, 11)


def works(folder):
    """Whether ``folder`` holds an environment whose Python starts, is new enough and has pip."""
    python = os.path.join(folder, "bin", "python")  # noqa: PTH118 - strings serve every Python 3
    probe = "import sys, pip; sys.exit(sys.version_info < %r)" % (OLDEST,)
    try:
        return subprocess.call([python, "-c", probe], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def main(folder):
    if works(folder):
        return None
    if sys.version_info < OLDEST:
        return "Penstock needs Python %d.%d or newer, and %s is %s. Name another: make PYTHON=python3.12" % (
            *OLDEST,
            sys.executable,
            sys.version.split()[0],
        )
    if subprocess.call([sys.executable, "-m", "venv", "--clear", folder]) != 0:
        return "%s cannot create virtual environments (on Debian and Ubuntu: apt install python3-venv)." % (
            sys.executable,
        )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
