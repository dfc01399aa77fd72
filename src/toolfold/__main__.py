"""`toolfold` and `python -m toolfold`: the version at once, everything else through the command line face.

Nothing is imported here that Python has not loaded by itself: until `main` runs, Ctrl-C is a traceback.
"""

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_CANNOT_WRITE = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def _open_streams() -> None:
    """Opens the standard streams that whoever started this closed: the next file to be opened would take their place,
    and be written to as one of them. What the terminal's encoding cannot say is spelt out."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        if descriptor == 1:  # to be read alone: who prints to a closed stream is told, as by a full disk
            os.close(descriptor)
            descriptor = os.open(os.devnull, os.O_RDONLY)
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    # Python has none for a descriptor that was closed when it started.
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays open
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a program that calls `main` may have put anything in their place
            stream.reconfigure(errors="backslashreplace")


def main(argv: "Sequence[str] | None" = None) -> int:
    code = 0
    try:
        arguments = list(sys.argv[1:] if argv is None else argv)
        _open_streams()
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:  # `run` answers it itself once it is there
        sys.stderr.write("interrupted\n")
        code = 130
    except OSError as error:
        if error.filename is not None or error.errno not in _CANNOT_WRITE:
            raise
        if error.errno != errno.EPIPE:  # a reader who went away (`toolfold tree | head`) has what was wanted
            code = code or 1
            from contextlib import suppress

            with suppress(OSError):
                sys.stderr.write(f"error: what was to be printed cannot be written: {error.strerror}\n")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python would complain once more when it flushes at exit, and end with a code of its own
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from toolfold import __version__

        sys.stdout.write(f"toolfold {__version__}\n")
        return 0
    from toolfold.faces.cli import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
