// Copyright © 2026 mlx_norms contributors
//
// What a node of the graph computes: a value, which is not changed once a node
// has it. The defaults are those of an op with one kernel for any inputs, whose
// derivatives and maps are those of its fallback.

#pragma once

#include <array>
#include <concepts>
#include <memory>
#include <typeinfo>
#include <utility>

#include "csrc/common/types.h"
#include "mlx/utils.h"

namespace mlx_norms {

struct LaunchPlan;
class Op;

using OpPtr = std::shared_ptr<const Op>;
using Donors = std::array<const array*, 4>; // nullptr: none
using Dtypes = mx::SmallVector<mx::Dtype, 4>;

// An op and what it is called with.
template <typename T>
struct Call {
  T op;
  Arrays inputs;
};

class Op {
 public:
  Dtypes dtypes; // of the outputs

  Op() = default;
  explicit Op(Dtypes dtypes) : dtypes(std::move(dtypes)) {}
  virtual ~Op() = default;

  virtual const char* name() const = 0;
  virtual bool equals(const Op& other) const = 0;
  // The shape of output i: by default the first input's. Shapeless compile asks
  // again at every call.
  virtual mx::Shape shape(const Arrays& inputs, size_t i) const;
  // Throws if the inputs do not fit.
  virtual void check(const Arrays&) const {}
  // Whose buffers output i may take.
  virtual Donors donors(const Arrays&, size_t, mx::Stream) const {
    return {};
  }

  // The op in MLX's operations. It throws for a kernel alone, for study.
  virtual Arrays fallback(const Arrays& inputs, mx::Stream s) const;
  virtual LaunchPlan
  plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s) const = 0;
  // Computes allocated outputs. It throws for a GPU's kernel.
  virtual void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s)
      const;

  // Whether the kernel suits the inputs, and what computes the same by other
  // ops if not.
  virtual bool suits(const Arrays&, mx::Stream) const {
    return true;
  }
  virtual Arrays steps(const Arrays& inputs, mx::Stream s) const {
    return fallback(inputs, s);
  }

  // Transforms, if those of the steps are too slow. Outputs of a map have the
  // mapped axis first.
  virtual Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums,
      mx::Stream s) const;
  virtual Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const;
  virtual Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const;
  // What `mapped` makes: a call whose rows have the mapped axis. Its op is null
  // if the steps are mapped.
  virtual Call<OpPtr>
  batched(const Arrays&, const std::vector<int>&, mx::Stream) const {
    return {};
  }

  // What the self-check on Metal takes, if there is one: a call of the same
  // kernels with few rows, whose inputs are the call's, but smaller, and what
  // kernels depend on besides name and dtypes.
  virtual bool has_sample() const {
    return true;
  }
  virtual OpPtr sampled(const Arrays&, mx::Stream) const {
    return nullptr;
  }
  virtual Arrays sample(const Arrays&, mx::Stream) const {
    return {};
  }
  virtual void append_key(const Arrays&, mx::Stream, std::vector<int64_t>&)
      const {}
  // What the first outputs, so many, are compared with.
  virtual Arrays reference(const Arrays& sample, mx::Stream s) const {
    return fallback(sample, s);
  }
  virtual size_t compared() const {
    return dtypes.size();
  }
  // Whether there is no sample of the inputs.
  virtual bool is_empty(const Arrays& inputs) const {
    return inputs[0].size() == 0;
  }

  // Compares what all ops have: one of its own compares its members, too.
  bool operator==(const Op& other) const {
    return dtypes == other.dtypes;
  }
};

template <std::derived_from<Op> T>
OpPtr shared(T op) {
  return std::make_shared<const T>(std::move(op));
}

// The base of an op T that has operator==.
template <typename T>
class OpOf : public Op {
 public:
  using Op::Op;
  bool equals(const Op& other) const final {
    return typeid(other) == typeid(T) &&
        static_cast<const T&>(*this) == static_cast<const T&>(other);
  }

  bool operator==(const OpOf&) const = default;
};

} // namespace mlx_norms
