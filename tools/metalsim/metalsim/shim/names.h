// Copyright © 2026 mlx_norms contributors
//
// Names that Apple's headers declare. With `using namespace metal`, what a text
// declares by one of them outside of functions and classes is ambiguous where
// it is named. The shim declares those that it does not know, and rules.py
// reads all of these lists.
#pragma once

// clang-format off

// Types in namespace metal that are names alone here.
#define MSL_UNKNOWN(X) \
  X(access) X(address) X(array_ref) X(bias) X(border_color) X(command_buffer) \
  X(compare_func) X(component) X(compute_command) X(compute_pipeline_state) \
  X(cooperative_tensor) X(coord) X(cull_mode) X(depth2d) X(depth2d_array) \
  X(depth2d_ms) X(depth2d_ms_array) X(depth_clip_mode) X(depth_stencil_state) \
  X(depthcube) X(depthcube_array) X(dextents) X(extents) X(filter) \
  X(gradient2d) X(gradient3d) X(gradientcube) X(imageblock) \
  X(imageblock_data_rate) X(imageblock_layout_explicit) \
  X(imageblock_layout_implicit) X(interpolant) X(interpolation) X(level) \
  X(lod_clamp) X(mag_filter) X(max_anisotropy) X(memory_coherence) X(mesh) \
  X(mesh_grid_properties) X(min_filter) X(min_lod_clamp) X(mip_filter) \
  X(os_log) X(patch_control_point) X(primitive_type) X(quad_vote) \
  X(r16snorm) X(r16unorm) X(r8snorm) X(r8unorm) X(r_address) X(reduction) \
  X(render_command) X(render_pipeline_state) X(rg11b10f) X(rg16snorm) \
  X(rg16unorm) X(rg8snorm) X(rg8unorm) X(rgb10a2) X(rgb9e5) X(rgba16snorm) \
  X(rgba16unorm) X(rgba8snorm) X(rgba8unorm) X(s_address) X(sampler) \
  X(sparse_color) X(srgba8unorm) X(t_address) X(tensor) X(tensor_blocked) \
  X(tensor_handle) X(tensor_inline) X(tensor_offset) X(texture1d) \
  X(texture1d_array) X(texture2d) X(texture2d_array) X(texture2d_ms) \
  X(texture2d_ms_array) X(texture3d) X(texture_buffer) X(texturecube) \
  X(texturecube_array) X(topology) X(triangle_fill_mode) \
  X(visible_function_table) X(winding)

// The same of namespace metal::raytracing.
#define MSL_UNKNOWN_OF_RAYS(X) \
  X(acceleration_structure) X(curve_basis) X(curve_data) X(curve_type) \
  X(extended_limits) X(forced_opacity) X(geometry_cull_mode) \
  X(geometry_type) X(instance_acceleration_structure) X(instance_motion) \
  X(instancing) X(intersection_function_table) X(intersection_params) \
  X(intersection_query) X(intersection_result) X(intersection_type) \
  X(intersector) X(max_levels) X(opacity_cull_mode) \
  X(primitive_acceleration_structure) X(primitive_motion) X(ray) \
  X(triangle_cull_mode) X(triangle_data) X(world_space_data)

// Types and values in namespace metal that the shim has.
#define MSL_KNOWN(X) \
  X(array) X(atomic) X(atomic_bool) X(atomic_float) X(atomic_int) \
  X(atomic_uint) X(atomic_ulong) X(bool_constant) X(conditional) \
  X(conditional_t) X(enable_if) X(enable_if_t) X(false_type) \
  X(integral_constant) X(is_arithmetic) X(is_arithmetic_v) X(is_convertible) \
  X(is_convertible_v) X(is_floating_point) X(is_floating_point_v) \
  X(is_integral) X(is_integral_v) X(is_pointer) X(is_pointer_v) X(is_same) \
  X(is_same_v) X(is_signed) X(is_signed_v) X(is_unsigned) X(is_unsigned_v) \
  X(make_unsigned) X(make_unsigned_t) X(matrix) X(mem_flags) \
  X(memory_order) X(memory_order_relaxed) X(memory_order_seq_cst) \
  X(numeric_limits) X(remove_const_t) X(remove_cv_t) X(remove_reference) \
  X(remove_reference_t) X(simd_vote) X(simdgroup_bfloat8x8) \
  X(simdgroup_float8x8) X(simdgroup_half8x8) X(simdgroup_matrix) \
  X(thread_scope) X(thread_scope_device) X(thread_scope_simdgroup) \
  X(thread_scope_thread) X(thread_scope_threadgroup) X(true_type) \
  X(uniform) X(vec)

// clang-format on

namespace metal {
#define MSL_DECLARE(name) struct name;
MSL_UNKNOWN(MSL_DECLARE)
namespace raytracing {
MSL_UNKNOWN_OF_RAYS(MSL_DECLARE)
}
#undef MSL_DECLARE
} // namespace metal
