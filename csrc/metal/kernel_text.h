// Copyright © 2026 mlx_norms contributors
//
// The kernels' text with its headers joined, written by kernels/join.py.

#pragma once

namespace mlx_norms {

extern const char* const kernel_text_name; // ends in a hash of the text
extern const char* const kernel_text;

} // namespace mlx_norms
