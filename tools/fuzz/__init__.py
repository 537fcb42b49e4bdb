"""Random programs and random numerics, run by ours and held against MLX and float64."""
