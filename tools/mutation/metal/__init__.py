"""Defects planted in the Metal kernels and their plans, a file per op or part."""

import importlib
import pkgutil

FILES = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "texts")
METAL_MUTANTS = [
    mutant for name in FILES for mutant in importlib.import_module(f".{name}", __name__).MUTANTS
]
