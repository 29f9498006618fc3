"""What the demo prints: acts, events with their seq, proofs, commands to copy. Plain text when it is not a terminal."""

import sys

from rich.console import Console
from rich.text import Text

from app.cli.frames import Frame
from app.cli.output import printable
from app.cli.watching import print_event


class Screen:
    """The story on stdout; remarks of the machinery too, so that they stand where they happened."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else 120
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)
        self._acts = 0

    def title(self, text: str) -> None:
        self._console.print(Text(text, style="bold"))

    def act(self, text: str) -> None:
        """A numbered heading."""
        self._acts += 1
        self._console.print(Text(f"\n{self._acts}  {text}", style="bold cyan"))

    def say(self, text: str) -> None:
        self._console.print(f"   {printable(text)}")

    def proof(self, text: str) -> None:
        """Something that was checked just now, and holds."""
        self._console.print(Text(f"   ✓ {printable(text)}", style="green"))

    def blow(self, text: str) -> None:
        """Something that was broken on purpose."""
        self._console.print(Text(f"   ✗ {printable(text)}", style="bold red"))

    def event(self, frame: Frame, *, replayed: bool = False) -> None:
        """One event; a replayed one is marked."""
        print_event(self._console, frame, mark="  ↻" if replayed else "   ")

    def command(self, text: str) -> None:
        """A line to copy, printed as it stands and never wrapped."""
        self._console.file.write(f"\n{text}\n")
        self._console.file.flush()
