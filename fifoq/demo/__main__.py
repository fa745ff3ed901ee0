"""`python -m fifoq.demo`."""

import sys

from fifoq.demo.command import main

if __name__ == "__main__":
    sys.exit(main())
