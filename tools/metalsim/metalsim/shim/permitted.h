// Copyright © 2026 mlx_norms contributors
// How far a function of metal::fast may be off, as of the tables of accuracy in
// Metal's specification. Whether up or down depends on the argument alone.
#pragma once

namespace metalsim {

struct FastMath {
  float factor; // of what is permitted

  // What is y for the argument x, off by this error.
  float off(float y, float x, float error) const {
    if (factor == 0 || y == 0 || !__builtin_isfinite(y)) {
      return y;
    }
    unsigned bits = __builtin_bit_cast(unsigned, x) & 0x7fffffffu;
    bool down =
        bits * 2654435761u >> 31; // for numbers without last digits, too
    return y + (down ? -factor : factor) * error;
  }
  // The same in units of y's last place.
  float off_by_ulps(float y, float x, float ulps) const {
    int exponent = y == 0 ? -126 : __builtin_ilogbf(y);
    return off(y, x, ulps * __builtin_ldexpf(1, exponent - 23));
  }

  // 2^-13 within half a turn. Metal says "larger otherwise": here as many times
  // that as there are half turns.
  float turned(float y, float x, float half_turns) const {
    float larger = __builtin_fmaxf(1, __builtin_fabsf(half_turns));
    return off(y, x, __builtin_fminf(0x1p-13f * larger, 1));
  }
  float sin(float x) const {
    return turned(__builtin_sinf(x), x, x * 0.318309886f);
  }
  float cos(float x) const {
    return turned(__builtin_cosf(x), x, x * 0.318309886f);
  }
};

} // namespace metalsim
