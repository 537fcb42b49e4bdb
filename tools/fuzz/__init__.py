"""Random programs and random numerics, run with our norms and compared with MLX and float64."""
