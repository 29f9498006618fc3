"""``python -m app`` and the console script ``waystation``: hands over to the command line."""

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    from app.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
