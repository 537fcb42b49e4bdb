"""Runs of the bench command in the test's process."""

import csv

from command.cli import main

PNG = b"\x89PNG"
CACHE = 1 << 16
GRID = ["--rows", "3", "--lengths", "40", "--dtypes", "float32"]


def run(capsys, *arguments):
    assert main([*arguments, "--rounds", "2"]) == 0
    return capsys.readouterr().out


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))
