"""What ``python -m mlx_norms bench`` and the scripts in bench/ share.

cells.py has what is timed and how many bytes it moves, contestants.py who does it, clocks.py how it
is timed, device_copy.py and peak.py what it is held against, results.py and plots.py where figures
go. Rich, matplotlib, torch and Liger are imported where they are used.
"""
