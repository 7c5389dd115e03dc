"""`python -m leeway_cli`, the same as `leeway`."""

from leeway_cli.main import main

main()
