"""`python -m cli`, the same as `leeway`."""

from cli.main import main

main()
