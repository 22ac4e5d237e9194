"""`python -m scalable.cli`, the same as `scalable-topics`."""

from scalable.cli.app import main

if __name__ == "__main__":
    main()
