"""`python -m capsbench` is the `capsbench` command."""

from capsbench.cli import main

if __name__ == "__main__":
    main()
