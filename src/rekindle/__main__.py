"""Where the command starts."""

import gc


def main() -> None:
    # Nothing of what a start-up imports is garbage: looking for some a dozen times costs a twentieth of a short answer.
    gc.set_threshold(50_000, 20, 20)
    from rekindle.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
