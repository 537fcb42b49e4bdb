"""What commands measure with, and the scripts in bench/: times, the machine, tables, logits.

It depends on no command, and on no extra but where it prints a table.
"""
