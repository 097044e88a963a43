"""Entry point of `python -m uiat`, the same as `uiat`."""

import sys

from uiat.cli import main

if __name__ == "__main__":
    sys.exit(main())
