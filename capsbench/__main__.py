"""`python -m capsbench` is the `capsbench` command."""

from capsbench.forks import run_as_fork

if __name__ == "__main__":
    run_as_fork()
    from capsbench.cli import main

    main()
