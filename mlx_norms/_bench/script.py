"""What the scripts in bench/ share: a command line, a console and a file of figures."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import TypeVar

import mlx.core as mx
from rich.console import Console
from rich.progress import track

from . import machine, peers
from .results import CsvFile

_WIDTH = 160  # of what goes to no terminal
_Item = TypeVar("_Item")


class Script:
    """A script that measures.

    Its device is a "gpu", and with ``--device cpu`` it is tried without one; or it is the "cpu",
    with a malloc that keeps memory; or it is MLX's "default" device. ``rounds`` is how many there
    are unless ``--rounds`` says so.

    Attributes:
        parser: Takes the script's own arguments, before :meth:`begin`.
        peers: Whom ``--peers`` names, those that are here.
        tiny: Whether it is tried on the CPU: shapes are to be tiny.
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
        self.parser = parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
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
                "--peers", default="", metavar="NAMES", help="also time torch, liger or torch,liger"
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
        """Read the arguments, take the device, and say what the figures depend on.

        A quiet one says and writes nothing: another process does.
        """
        self._args = args = self.parser.parse_args()
        if self._device == "cpu" and not args.default_malloc:
            machine.restart_keeping_memory()
        device = getattr(args, "device", self._device)
        self.tiny = device != self._device
        if device != "default":
            mx.set_default_device(getattr(mx, device))
        mx.random.seed(0)
        self.console = Console(quiet=quiet)
        if not self.console.is_terminal:
            self.console = Console(quiet=quiet, width=_WIDTH)
        self.facts = machine.facts()
        if self._device == "gpu":
            self.facts["driver"] = machine.driver_version()
        self.add_peers(filter(None, getattr(args, "peers", "").split(",")))
        self.say(", ".join(f"{key} {value}" for key, value in self.facts.items()))
        return args

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False)

    def add_peers(self, names: Iterable[str]) -> None:
        """Take those of ``names`` that are here as peers, whose versions are facts."""
        self.peers = peers.available(names, self.say)
        self.facts |= peers.versions(self.peers)

    def tracked(self, items: Iterable[_Item], what: str = "measuring") -> Iterator[_Item]:
        """The items, with a bar on a terminal."""
        console = Console(stderr=True)
        yield from track(list(items), what, console=console, disable=not console.is_terminal)

    def write(self, *values: object, **named: object) -> None:
        """A line of the file, by the order of the columns or by their names, if it is asked for."""
        if self.console.quiet or not self._args.csv:
            return
        if self._file is None:
            file = open(self._args.csv, "w", newline="")  # until the process ends
            self._file = CsvFile(file, self._columns, self.facts)
        by_order = dict(zip(self._columns, values, strict=True)) if values else {}
        self._file.write(by_order | named)
