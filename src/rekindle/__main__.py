"""Where the command starts."""

import gc
import sys


def main() -> None:
    # Nothing of what a start-up imports is garbage: looking for some a dozen times costs a twentieth of a short answer.
    gc.set_threshold(50_000, 20, 20)
    try:
        from rekindle.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # while it was starting, or ending
        sys.stderr.write("\nerror: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
