"""`python -m tests.support.reproduce_child ARGS…` runs the command line at the tiny scale, as its workers do."""

import sys

from tests.support.tiny import tiny_scale
from uiat.cli import main

if __name__ == "__main__":
    with tiny_scale():
        sys.exit(main(sys.argv[1:]))
