// Copyright © 2026 mlx_norms contributors
//
// Sets of a norm's operands, and what there is one of for each.

#pragma once

#include <array>
#include <bit>
#include <initializer_list>
#include <utility>

#include "csrc/common/types.h"
#include "csrc/norm/operand.h"
#include "mlx/utils.h"

namespace mlx_norms {

// Some of them, in order.
class Operands {
 public:
  class Iterator {
   public:
    explicit constexpr Iterator(unsigned bits) : bits_(bits) {}
    constexpr Operand operator*() const {
      return static_cast<Operand>(std::countr_zero(bits_));
    }
    constexpr Iterator& operator++() {
      bits_ &= bits_ - 1;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    unsigned bits_;
  };

  constexpr Operands() = default;
  constexpr Operands(std::initializer_list<Operand> all) {
    for (auto operand : all) {
      set(operand);
    }
  }

  static constexpr Operands of_bits(unsigned bits) {
    Operands operands;
    operands.bits_ = bits;
    return operands;
  }

  constexpr bool has(Operand operand) const {
    return bits_ >> operand & 1;
  }
  constexpr bool has_any(Operands others) const {
    return bits_ & others.bits_;
  }
  constexpr void set(Operand operand, bool has = true) {
    bits_ = (bits_ & ~(1u << operand)) | unsigned{has} << operand;
  }
  constexpr Operands with(Operands others) const {
    return of_bits(bits_ | others.bits_);
  }
  constexpr Operands without(Operands others) const {
    return of_bits(bits_ & ~others.bits_);
  }
  constexpr Operands only(Operands others) const {
    return of_bits(bits_ & others.bits_);
  }
  constexpr int count() const {
    return std::popcount(bits_);
  }
  // The place of one that is there.
  constexpr int index_of(Operand operand) const {
    return std::popcount(bits_ & ((1u << operand) - 1));
  }
  // What is one's among those of all, which start at `first`; null: absent.
  template <typename T>
  T* find(Operand operand, T* first) const {
    return has(operand) ? first + index_of(operand) : nullptr;
  }
  // The one in this place.
  constexpr Operand at(int index) const {
    auto it = begin();
    while (index-- > 0) {
      ++it;
    }
    return *it;
  }
  constexpr int64_t bits() const {
    return bits_;
  }

  constexpr Iterator begin() const {
    return Iterator(bits_);
  }
  constexpr Iterator end() const {
    return Iterator(0);
  }
  constexpr bool operator==(const Operands&) const = default;

 private:
  unsigned bits_ = 0;
};

// What is added up, in this order.
constexpr Operands kAddends = [] {
  Operands addends;
  for (int i = 0; i < kOperands; ++i) {
    addends.set(
        static_cast<Operand>(i), kOperandTraits[i].kind == OperandKind::Addend);
  }
  return addends;
}();
// What a sum is made of.
constexpr auto kOfSum = kAddends.with({kFactor});

// Whether its shape is x's.
constexpr bool has_shape_of_x(Operand operand) {
  auto kind = kOperandTraits[operand].kind;
  return kind == OperandKind::Addend || kind == OperandKind::Rows;
}

template <typename T>
struct PerOperand {
  std::array<T, kOperands> of{};

  T& operator[](Operand operand) {
    return of[operand];
  }
  const T& operator[](Operand operand) const {
    return of[operand];
  }
};

// The arrays of one normalized tensor; null: absent.
struct NormInputs : PerOperand<const array*> {
  NormInputs(std::initializer_list<std::pair<Operand, const array*>> arrays) {
    for (auto [operand, a] : arrays) {
      (*this)[operand] = a;
    }
  }
  // A node's, which start at `first`.
  NormInputs(Operands operands, const array* first) {
    for (auto operand : operands) {
      (*this)[operand] = first++;
    }
  }

  const array& x() const {
    return *(*this)[kX];
  }
  Operands present() const {
    unsigned bits = 0;
    for (int i = 0; i < kOperands; ++i) {
      bits |= unsigned{of[i] != nullptr} << i;
    }
    return Operands::of_bits(bits);
  }
  // The dtype of the sum, or x's.
  mx::Dtype sum_dtype() const {
    auto dtype = x().dtype();
    for (auto operand : kAddends) {
      auto* a = (*this)[operand];
      dtype = a ? mx::promote_types(dtype, a->dtype()) : dtype;
    }
    return dtype;
  }
  // Those of the norm of a sum that has been computed.
  NormInputs without_sum(const array& sum) const {
    auto in = *this;
    for (auto operand : kOfSum) {
      in[operand] = nullptr;
    }
    in[kX] = &sum;
    return in;
  }

  void append_to(Arrays& inputs) const {
    for (auto* a : of) {
      if (a) {
        inputs.push_back(*a);
      }
    }
  }
  Arrays arrays() const {
    Arrays inputs;
    inputs.reserve(present().count());
    append_to(inputs);
    return inputs;
  }
};

// Gradients of the operands for which they are wanted.
using Gradients = PerOperand<OptionalArray>;

} // namespace mlx_norms
