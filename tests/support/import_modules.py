"""`python -m tests.support.import_modules ARGS…`: run a command, then print the modules that it imported."""

import sys

from uiat.cli import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    print(*sorted(sys.modules))
    sys.exit(code)
