"""Runs every measurement, or those named on the command line, and prints a table of each."""

import sys

from bench import functions, headroom, kubernetes, storms, warmth

BENCHES = {
    "functions": functions.main,
    "headroom": headroom.main,
    "kubernetes": kubernetes.main,
    "storms": storms.main,
    "warmth": warmth.main,
}


def main(names: list[str]) -> int:
    """Run the named measurements (none: all); 2 for a name that is none."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.stderr.write(f"bench: no such measurement: {', '.join(unknown)}; there are ")
        sys.stderr.write(f"{', '.join(BENCHES)}\n")
        return 2
    for name in names or BENCHES:
        BENCHES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
