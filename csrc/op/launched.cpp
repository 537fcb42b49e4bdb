// Copyright © 2026 mlx_norms contributors

#include "csrc/op/launched.h"

#include <set>

#include "csrc/common/checks.h"
#include "csrc/gpu/check_complete.h"
#include "csrc/op/node.h"

namespace mlx_norms {

namespace {

constexpr const char* kOp = "launch";
using Kind = KernelNeeds::Kind;
using Argument = KernelNeeds::Argument;

std::string quoted(const std::string& name) {
  return "\"" + name + "\"";
}

const char* text(Kind kind) {
  switch (kind) {
    case Kind::Flag:
      return "a bool";
    case Kind::Number:
    case Kind::Int:
      return "an int of 32 bits";
    case Kind::UInt:
      return "an int from 0 to 2^32 - 1";
    case Kind::Float:
      return "a float";
    case Kind::Words:
      return "six ints of 32 bits";
    case Kind::Read:
      return "an array";
    case Kind::Written:
      return "an output, with a shape and a dtype";
  }
  return "";
}

// Fills in a launch, and refuses what its kernel does not take.
class Filling {
 public:
  explicit Filling(const NamedLaunch& named)
      : named_(named),
        needs_(*needs_of_kernel(named.kernel)),
        name_(*name_in(needs_, named.kernel)),
        op_(Launch(KernelName(name_.text.c_str()))) {}

  Launched filled() {
    for (const auto& [name, value] : named_.constants) {
      set_constant(name, value);
    }
    for (const auto& constant : needs_.constants) {
      if (!given_.contains(constant.name)) {
        refuse_for("constants must have " + quoted(constant.name));
      }
    }
    for (const auto& [name, a] : named_.inputs) {
      op_.read.push_back(find(name, {Kind::Read}).index);
      op_.taken.push_back(a.shape());
    }
    for (const auto& [name, output] : named_.outputs) {
      op_.written.push_back(find(name, {Kind::Written}).index);
      op_.made.push_back(output.first);
      op_.dtypes.push_back(output.second);
    }
    for (const auto& [name, value] : named_.scalars) {
      set_scalar(name, value);
    }
    for (const auto& argument : needs_.arguments) {
      if (is_wanted(argument) && !given_.contains(argument.name)) {
        auto where = argument.kind == Kind::Written ? "outputs" : "arguments";
        refuse_for(std::string(where) + " must have " + quoted(argument.name));
      }
    }
    set_sizes();
    return std::move(op_);
  }

 private:
  static const KernelNeeds* needs_of_kernel(const std::string& kernel) {
    auto* needs = needs_of(kernel);
    if (!needs) {
      refuse(
          kOp,
          "kernel must be one of this build but is " + quoted(kernel) + ".");
    }
    return needs;
  }

  static const KernelNeeds::Name* name_in(
      const KernelNeeds& needs,
      const std::string& kernel) {
    return &*std::ranges::find(needs.names, kernel, &KernelNeeds::Name::text);
  }

  [[noreturn]] void refuse_for(const std::string& message) const {
    refuse(kOp, message + " for kernel " + named_.kernel + ".");
  }

  [[noreturn]] void refuse_value(const Argument& of) const {
    refuse_for(quoted(of.name) + " must be " + text(of.kind));
  }

  // An argument that is asked for, with these constants, and of such a kind.
  const Argument& find(const std::string& name, std::set<Kind> kinds) {
    for (const auto& argument : needs_.arguments) {
      if (argument.name != name) {
        continue;
      }
      if (!kinds.contains(argument.kind)) {
        refuse_value(argument);
      }
      if (argument.condition >= 0 && !is_wanted(argument)) {
        refuse_for(quoted(name) + " must be left out with these constants");
      }
      if (!given_.insert(name).second) {
        refuse_for(quoted(name) + " must be given once");
      }
      return argument;
    }
    refuse_for("there must be no " + quoted(name));
  }

  bool is_wanted(const Argument& argument) const {
    if (argument.condition == KernelNeeds::kAlways) {
      return true;
    }
    auto constant = std::ranges::find(
        op_.launch.constants,
        argument.condition,
        &Launch::ConstantValue::index);
    return constant != op_.launch.constants.end() && constant->value;
  }

  void set_constant(const std::string& name, std::variant<bool, int> value) {
    for (const auto& constant : needs_.constants) {
      if (constant.name != name) {
        continue;
      }
      auto* flag = std::get_if<bool>(&value);
      if ((constant.kind == Kind::Flag) != (flag != nullptr)) {
        refuse_value(constant);
      }
      given_.insert(name);
      if (flag) {
        return op_.launch.set(Constant<bool>{constant.index}, *flag);
      }
      return op_.launch.set(
          Constant<int32_t>{constant.index}, std::get<int>(value));
    }
    refuse_for("constants must have no " + quoted(name));
  }

  void set_scalar(const std::string& name, const NamedLaunch::Scalar& value) {
    const auto& to =
        find(name, {Kind::Int, Kind::UInt, Kind::Float, Kind::Words});
    auto& launch = op_.launch;
    if (auto* words = std::get_if<std::vector<int>>(&value)) {
      std::array<int32_t, 6> six;
      if (to.kind != Kind::Words || words->size() != six.size()) {
        refuse_value(to);
      }
      std::ranges::copy(*words, six.begin());
      return launch.set(Words{to.index}, six);
    }
    auto* number = std::get_if<int64_t>(&value);
    if (to.kind == Kind::Float) {
      auto wide =
          number ? static_cast<double>(*number) : std::get<double>(value);
      return launch.set(Scalar<float>{to.index}, static_cast<float>(wide));
    }
    if (number && to.kind == Kind::Int && std::in_range<int32_t>(*number)) {
      return launch.set(
          Scalar<int32_t>{to.index}, static_cast<int32_t>(*number));
    }
    if (number && to.kind == Kind::UInt && std::in_range<uint32_t>(*number)) {
      return launch.set(
          Scalar<uint32_t>{to.index}, static_cast<uint32_t>(*number));
    }
    refuse_value(to);
  }

  void set_sizes() {
    // CUDA's grids have at most 65535 along y and z.
    constexpr std::array<int64_t, 3> kMaxGroups = {INT32_MAX, 65535, 65535};
    int64_t most = name_.max_threads ? name_.max_threads : 1024;
    int64_t left = most; // of a threadgroup's threads
    for (int i = 0; i < 3; ++i) {
      auto groups = named_.groups[i], threads = named_.group[i];
      if (groups < 1 || groups > kMaxGroups[i]) {
        refuse_for("groups must be from 1 to 2147483647, 65535 and 65535");
      }
      if (threads < 1 || threads > left) {
        refuse_for(
            "group must be from 1 thread along each axis to " +
            std::to_string(most) + " in all");
      }
      left /= threads;
      op_.launch.groups[i] = static_cast<uint32_t>(groups);
      op_.launch.group[i] = static_cast<uint32_t>(threads);
    }
  }

  const NamedLaunch& named_;
  const KernelNeeds& needs_;
  const KernelNeeds::Name& name_;
  Launched op_;
  std::set<std::string> given_;
};

bool same(const Launch& a, const Launch& b) {
  auto constants = [](const auto& x, const auto& y) {
    return x.index == y.index && x.value == y.value;
  };
  return a.kernel == b.kernel && a.groups == b.groups && a.group == b.group &&
      std::ranges::equal(a.constants, b.constants, constants) &&
      std::ranges::equal(a.words, b.words);
}

} // namespace

bool Launched::operator==(const Launched& other) const {
  return same(launch, other.launch) && read == other.read &&
      written == other.written && taken == other.taken && made == other.made &&
      std::ranges::equal(dtypes, other.dtypes);
}

void Launched::check(const Arrays& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].shape() != taken[i]) {
      refuse(
          kOp,
          "an array must have the shape " + text(taken[i]) +
              " that its launch was made for but has " +
              text(inputs[i].shape()) + ".");
    }
  }
}

LaunchPlan Launched::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream s) const {
  LaunchPlan plan(s);
  auto empty = [](const array& a) { return a.size() == 0; };
  if (std::ranges::all_of(outputs, empty)) {
    return plan;
  }
  auto& filled = plan.launch(launch.kernel);
  filled = launch;
  for (size_t i = 0; i < inputs.size(); ++i) {
    filled.set(Input{read[i]}, inputs[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    filled.set(Output{written[i]}, outputs[i]);
  }
  return plan;
}

Arrays Launched::fallback(const Arrays&, mx::Stream) const {
  refuse(kOp, "grad, jvp and vmap of a kernel alone are not defined.");
}

Arrays launch(const NamedLaunch& named, mx::StreamOrDevice stream) {
  auto s = mx::to_stream(stream);
  auto op = Filling(named).filled();
  if (op.made.empty()) {
    refuse(kOp, "outputs must have at least one array.");
  }
  require_gpu_kernels(kOp, "kernel " + quoted(named.kernel), s);
  Arrays inputs;
  for (const auto& [name, a] : named.inputs) {
    inputs.push_back(mx::contiguous(a, /* allow_col_major= */ false, s));
  }
  return node(std::move(op), std::move(inputs), s);
}

} // namespace mlx_norms
