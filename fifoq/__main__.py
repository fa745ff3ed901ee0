"""`python -m fifoq`: the same as `fifoq`."""

from fifoq.cli import main

if __name__ == "__main__":
    main()
