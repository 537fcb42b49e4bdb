"""What the Metal kernels ask of memory and threadgroups, counted on the software device."""
