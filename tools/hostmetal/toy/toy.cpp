// Copyright © 2026 mlx_norms contributors

// A primitive whose eval_gpu is a script: what a plugin may tell MLX's encoder,
// right or wrong.

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "eval.h"
#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/utils.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

namespace {

using Size = std::array<size_t, 3>;
// Index, MTL::DataType, value.
using Constant = std::tuple<size_t, size_t, nb::bytes>;

MTL::Size mtl_size(const Size& size) {
  return {size[0], size[1], size[2]};
}

// What an eval_gpu has at hand.
struct State {
  mx::metal::Device& device;
  mx::metal::CommandEncoder* encoder;
  std::vector<mx::array> arrays; // inputs, outputs, and what the script makes
  MTL::Library* library = nullptr;
  MTL::ComputePipelineState* pipeline = nullptr;
  std::optional<mx::metal::CommandEncoder::ConcurrentContext> concurrent{};
};

using Commands = std::vector<std::function<void(State&)>>;

mx::array empty(const std::vector<int>& shape, mx::Dtype dtype) {
  return mx::array(mx::Shape(shape.begin(), shape.end()), dtype, nullptr, {});
}

// Arrays that live longer than their eval_gpu without MLX's knowing.
std::vector<mx::array>& kept() {
  static std::vector<mx::array> arrays;
  return arrays;
}

void allocate(mx::array& a) {
  a.set_data(mx::allocator::malloc(a.nbytes()));
}

class Scripted : public mx::Primitive {
 public:
  Scripted(mx::Stream stream, Commands commands)
      : Primitive(stream),
        commands_(std::move(commands)) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    hostmetal::eval(*this, inputs, outputs);
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    auto& device = mx::metal::device(stream().device);
    State state{device, &mx::metal::get_command_encoder(stream()), inputs};
    state.arrays.insert(state.arrays.end(), outputs.begin(), outputs.end());
    for (auto& command : commands_) {
      command(state);
    }
  }

  const char* name() const override {
    return "Scripted";
  }

 private:
  Commands commands_;
};

class Script {
 public:
  Script(
      size_t inputs,
      const std::vector<std::pair<std::vector<int>, mx::Dtype>>& outputs)
      : n_arrays_(inputs + outputs.size()) {
    for (auto& [shape, dtype] : outputs) {
      shapes_.push_back(mx::Shape(shape.begin(), shape.end()));
      dtypes_.push_back(dtype);
    }
  }

  // Adds an array of the script's own; returns its number.
  size_t array(std::vector<int> shape, mx::Dtype dtype) {
    return add_array([=] { return empty(shape, dtype); });
  }

  template <typename F>
  size_t add_array(F make) {
    add([=](State& s) { s.arrays.push_back(make()); });
    return n_arrays_++;
  }

  template <typename F>
  void add(F&& command) {
    commands_.emplace_back(std::forward<F>(command));
  }

  std::vector<mx::array> operator()(const std::vector<mx::array>& inputs) {
    auto primitive = std::make_shared<Scripted>(
        mx::default_stream(mx::Device::cpu), commands_);
    return mx::array::make_arrays(shapes_, dtypes_, primitive, inputs);
  }

 private:
  size_t n_arrays_;
  std::vector<mx::Shape> shapes_;
  std::vector<mx::Dtype> dtypes_;
  Commands commands_;
};

void set_kernel(
    Script& script,
    const std::string& kernel,
    const std::string& hash_name,
    const std::vector<Constant>& constants) {
  std::vector<std::tuple<size_t, size_t, std::string>> copies;
  for (auto& [index, type, value] : constants) {
    copies.emplace_back(index, type, std::string(value.c_str(), value.size()));
  }
  script.add([=](State& s) {
    mx::metal::MTLFCList list;
    for (auto& [index, type, value] : copies) {
      list.emplace_back(value.data(), static_cast<MTL::DataType>(type), index);
    }
    s.pipeline = s.device.get_kernel(kernel, s.library, hash_name, list);
    s.encoder->set_compute_pipeline_state(s.pipeline);
  });
}

// A method that adds a call with the arguments that it was given.
template <typename... Args>
auto adds(void (*call)(State&, Args...)) {
  return [call](Script& script, std::decay_t<Args>... args) {
    script.add([=](State& s) { call(s, args...); });
  };
}

} // namespace

NB_MODULE(_toy, m) {
  m.def("release", [] { kept().clear(); }, "Frees what `keep` kept.");

  auto script = nb::class_<Script>(m, "Script");
  script
      .def(
          nb::init<
              size_t,
              const std::vector<std::pair<std::vector<int>, mx::Dtype>>&>(),
          "inputs"_a,
          "outputs"_a)
      .def("__call__", &Script::operator(), "inputs"_a)
      .def("array", &Script::array, "shape"_a, "dtype"_a)
      .def(
          "take",
          [](Script& script) {
            return script.add_array([] { return kept().back(); });
          },
          "Adds the array that was kept last; returns its number.")
      .def(
          "kernel",
          &set_kernel,
          "kernel"_a,
          "hash_name"_a = "",
          "constants"_a = std::vector<Constant>())
      .def("set_bytes", [](Script& script, nb::bytes value, int index) {
        std::string bytes(value.c_str(), value.size());
        script.add([=](State& s) {
          s.encoder->set_bytes(
              bytes.data(), static_cast<int>(bytes.size()), index);
        });
      });

  auto def = [&](const char* name, auto call, auto... more) {
    script.def(name, adds(+call), more...);
  };
  def("allocate", [](State& s, size_t array) { allocate(s.arrays[array]); });
  def("allocate_with_stride", [](State& s, size_t array, int64_t stride) {
    auto& a = s.arrays[array];
    auto size = a.size() * stride;
    a.set_data(
        mx::allocator::malloc(size * a.itemsize()),
        size,
        {stride},
        {false, false, false});
  });
  def(
      "share",
      [](State& s, size_t from, size_t to, int64_t offset) {
        auto& a = s.arrays[to];
        a.copy_shared_buffer(
            s.arrays[from], a.strides(), {true, true, true}, a.size(), offset);
      },
      "from"_a,
      "to"_a,
      "offset"_a = 0);
  def("add_temporary", [](State& s, size_t array) {
    s.encoder->add_temporary(s.arrays[array]);
  });
  def("keep",
      [](State& s, size_t array) { kept().push_back(s.arrays[array]); });
  def("library", [](State& s, std::string name, std::string text) {
    s.library = s.device.get_library(name, [=] { return text; });
  });
  def("metallib", [](State& s, std::string name, std::string path) {
    s.library = s.device.get_library(name, path);
  });
  def("mlx_kernel",
      [](State& s, std::string kernel) { s.device.get_kernel(kernel); });
  def("check_threads", [](State& s, Size group) {
    mx::check_kernel_threadgroup_size(
        s.pipeline, mtl_size(group), "the script's");
  });
  def(
      "set_input",
      [](State& s, size_t array, int index, int64_t offset) {
        s.encoder->set_input_array(s.arrays[array], index, offset);
      },
      "array"_a,
      "index"_a,
      "offset"_a = 0);
  def(
      "set_output",
      [](State& s, size_t array, int index, int64_t offset) {
        s.encoder->set_output_array(s.arrays[array], index, offset);
      },
      "array"_a,
      "index"_a,
      "offset"_a = 0);
  def(
      "set_buffer",
      [](State& s, size_t array, int index, int64_t offset) {
        auto* buffer = s.arrays[array].buffer().ptr();
        s.encoder->set_buffer(
            static_cast<const MTL::Buffer*>(buffer), index, offset);
      },
      "array"_a,
      "index"_a,
      "offset"_a = 0);
  def("register_output", [](State& s, size_t array) {
    s.encoder->register_output_array(s.arrays[array]);
  });
  def("set_threadgroup_memory", [](State& s, size_t length, int index) {
    s.encoder->set_threadgroup_memory_length(length, index);
  });
  def("barrier", [](State& s) { s.encoder->barrier(); });
  def("start_concurrent", [](State& s) { s.concurrent.emplace(*s.encoder); });
  def("end_concurrent", [](State& s) { s.concurrent.reset(); });
  def("use_another_stream", [](State& s) {
    auto stream = mx::new_stream(mx::Device::cpu);
    s.encoder = &mx::metal::get_command_encoder(stream);
  });
  def("ask_device_for_its_name",
      [](State& s) { s.device.mtl_device()->name(); });
  def("dispatch_threads", [](State& s, Size grid, Size group) {
    s.encoder->dispatch_threads(mtl_size(grid), mtl_size(group));
  });
  def("dispatch_threadgroups", [](State& s, Size grid, Size group) {
    s.encoder->dispatch_threadgroups(mtl_size(grid), mtl_size(group));
  });
}
