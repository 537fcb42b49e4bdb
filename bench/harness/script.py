"""What the scripts in bench/ share: a command line, a console and a file of figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import mlx.core as mx
from rich.console import Console
from rich.progress import track

from . import conditions, peers
from .results import CsvFile

_WIDTH = 160  # when the output is not a terminal
_Item = TypeVar("_Item")


class CommandLine(argparse.ArgumentParser):
    """That of ``python bench NAME``."""

    def __init__(self, description: str) -> None:
        super().__init__(
            prog=" ".join(["python bench", *sys.argv[1:2]]),
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def parse_args(self) -> argparse.Namespace:
        return super().parse_args(sys.argv[2:])


class Script:
    """A script that measures.

    ``device`` is "gpu", where ``--device cpu`` tries the script without one; or "cpu", with a
    malloc that keeps freed memory; or MLX's "default" device. ``rounds`` is the default of
    ``--rounds``.

    Attributes:
        parser: Accepts the script's own arguments, before :meth:`begin`.
        peers: The peers that ``--peers`` names and that are installed.
        tiny: Whether the script is only tried on the CPU, with tiny shapes.
        facts: What the figures depend on, in each line of the file.
    """

    def __init__(
        self,
        description: str,
        columns: Iterable[str] = (),
        *,
        device: str = "gpu",
        peers: bool = False,
        rounds: int = 0,
    ) -> None:
        self.parser = parser = CommandLine(description)
        self._columns, self._device, self._file = list(columns), device, None
        if columns:
            parser.add_argument(
                "--csv", metavar="FILE", help="write all figures with device and versions"
            )
        if rounds:
            parser.add_argument(
                "--rounds", type=int, default=rounds, help="samples of each (%(default)s)"
            )
        if peers:
            parser.add_argument(
                "--peers",
                default="",
                metavar="NAMES",
                help="also time some of torch,torch.compile,liger,quack",
            )
        if device == "gpu":
            parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
        if device == "cpu":
            parser.add_argument(
                "--default-malloc",
                action="store_true",
                help="leave malloc as it is in this environment, not told to keep freed memory",
            )

    def begin(self, *, quiet: bool = False) -> argparse.Namespace:
        """Read the arguments, choose the device, and print what the figures depend on.

        If ``quiet``, it prints and writes nothing, because another process does.
        """
        self._args = args = self.parser.parse_args()
        if self._device == "cpu" and not args.default_malloc:
            conditions.restart_keeping_memory()
        device = getattr(args, "device", self._device)
        self.tiny = device != self._device
        if device != "default":
            mx.set_default_device(getattr(mx, device))
        mx.random.seed(0)
        self.console = Console(quiet=quiet)
        if not self.console.is_terminal:
            self.console = Console(quiet=quiet, width=_WIDTH)
        self.facts = conditions.facts()
        if self._device == "gpu":
            self.facts["driver"] = conditions.driver_version()
        self.add_peers(filter(None, getattr(args, "peers", "").split(",")))
        self.say(", ".join(f"{key} {value}" for key, value in self.facts.items()))
        return args

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False)

    def add_peers(self, names: Iterable[str]) -> None:
        """Add the installed ones of ``names`` as peers, and their versions to the facts."""
        self.peers = peers.available(names, self.say)
        self.facts |= peers.versions(self.peers)

    def tracked(self, items: Iterable[_Item], what: str = "measuring") -> Iterator[_Item]:
        """Iterate over the items, with a progress bar on a terminal."""
        console = Console(stderr=True)
        yield from track(list(items), what, console=console, disable=not console.is_terminal)

    def write(self, *values: object, **named: object) -> None:
        """Write a line to the file, if any, with values in the order of columns or by name."""
        if self.console.quiet or not self._args.csv:
            return
        if self._file is None:
            file = open(self._args.csv, "w", newline="")  # stays open until the process ends
            self._file = CsvFile(file, self._columns, self.facts)
        by_order = dict(zip(self._columns, values, strict=True)) if values else {}
        self._file.write(by_order | named)
