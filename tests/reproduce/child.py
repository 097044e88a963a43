"""`python -m tests.reproduce.child ARGS…` runs the command line at the tiny scale: what its workers run, too."""

import sys

from tests.reproduce.tiny import tiny_scale
from uiat.cli import main

if __name__ == "__main__":
    with tiny_scale():
        sys.exit(main(sys.argv[1:]))
