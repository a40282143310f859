"""The command `tokenloom`. Subcommands load what they need when they run, so that help is quick."""

from __future__ import annotations

import argparse
import io
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from jobs.commands import catalog, inspect, mixture, pretokenize, stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

EXIT_CODES = """\
exit codes:
  0    done
  2    the command line or the configuration is wrong
  3    a source, a file or a record cannot be read
  4    damaged output, or a refusal to mix two different jobs
  5    a child process died, or the output cannot be written
  128+n  ended by signal n
"""


class Interrupted(BaseException):
    """A signal asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="tokenloom",
        description="Text corpora become token shards once; training reads them in an exact order.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for module in (pretokenize, catalog, inspect, mixture, stream):
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    # numpy would start threads for linear algebra that nobody here uses; it looks when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # text is of every script, terminals are not
    options = argparse.Namespace()
    try:
        build_parser().parse_args(arguments, options)
        return _run(options)
    except Interrupted as interruption:
        name = signal.Signals(interruption.number).name
        hint = getattr(options, "interrupted", "Run the same command again.")
        print(f"tokenloom: stopped by {name}. {hint}", file=sys.stderr)
        # While Python shuts down its handlers are gone; a further signal must not change the exit status.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        return 128 + interruption.number
    except BrokenPipeError:
        sys.stderr.close()
        return 128 + signal.SIGPIPE


def _run(options: argparse.Namespace) -> int:
    if options.version:
        from importlib.metadata import version

        print(version("tokenloom"))
        return 0
    if options.command is None:
        build_parser().print_help()
        return 2
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING if getattr(options, "quiet", False) else logging.INFO)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])
    for name in ("prep", "runtime", "jobs"):  # other libraries log what they do, signed addresses too
        logging.getLogger(name).setLevel(logging.INFO)
    from prep.catalog.errors import TokenloomError

    try:
        return int(options.run(options))
    except TokenloomError as error:
        print(f"tokenloom: error: {error}", file=sys.stderr)
        return error.exit_code


def _ignore(number: int, frame: FrameType | None) -> None:
    """What SIG_IGN does, without its warning about a signal that was under way."""


def _interrupt(number: int, _: FrameType | None) -> None:
    """Stop at once, but only once: what follows cleans up undisturbed."""
    for other in STOP_SIGNALS:
        signal.signal(other, _ignore)
    raise Interrupted(number)


if __name__ == "__main__":
    sys.exit(main())
