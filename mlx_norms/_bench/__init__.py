"""What measures: for the commands of ``python -m mlx_norms`` and for the scripts in bench/.

It knows no command. timing.py has samples, ratios and rounds; clocks.py and kernel_times.py how calls
are timed; cells.py and ladder.py what is timed and how many bytes it moves, contestants.py and
peers.py who does it; measuring.py, device_copy.py and machine.py what it is held against; results.py,
tables.py and plots.py where figures go. Only what prints needs rich; matplotlib, torch and Liger are
imported where they are used.
"""
