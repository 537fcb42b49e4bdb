"""The norms' gradients for every input, the forward evaluated before; else as norm."""

from norm import suite

SUITE = suite(__doc__, backward=True)
