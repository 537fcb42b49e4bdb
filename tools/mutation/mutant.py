"""What a planted defect is."""

from dataclasses import dataclass

from support.variant import ROOT

from .operators import Site


@dataclass(frozen=True)
class Mutant:
    """One defect: the text `old`, which occurs once in `file`, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: str  # pytest's arguments
    at_levels: bool = False  # whether it shows at some levels of the CPU kernels only
    isa: str = "baseline"  # the instruction set that it takes to show

    def planted(self) -> str:
        """The file's text with the defect.

        Raises:
            ValueError: If the text to replace does not occur exactly once in the file.
        """
        text = (ROOT / self.file).read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.old!r} is {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Operated:
    """A defect by an operator."""

    site: Site
    tests: str
    at_levels = False
    isa = "baseline"

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def file(self) -> str:
        return self.site.name.partition(":")[0]

    def planted(self) -> str:
        text = (ROOT / self.file).read_text()
        return text[: self.site.start] + self.site.new + text[self.site.stop :]
