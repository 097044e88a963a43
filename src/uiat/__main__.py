"""`python -m uiat` is `uiat`."""

import sys

from uiat.cli import main

if __name__ == "__main__":
    sys.exit(main())
