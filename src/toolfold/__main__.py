"""`toolfold` and `python -m toolfold`: the version at once, everything else through the command line face."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from toolfold import __version__

        sys.stdout.write(f"toolfold {__version__}\n")
        return 0
    try:
        from toolfold.faces.cli import run
    except KeyboardInterrupt:  # `run` itself answers it once it is there
        sys.stderr.write("interrupted\n")
        return 130
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
