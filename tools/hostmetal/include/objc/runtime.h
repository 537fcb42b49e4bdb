// Copyright © 2026 mlx_norms contributors

// What metal-cpp names of <objc/runtime.h>.
#pragma once

struct objc_class;
struct objc_object {
  objc_class* isa;
};
struct objc_selector;
using Class = objc_class*;
using Protocol = objc_object;
using SEL = objc_selector*;
using id = objc_object*;

extern "C" {
SEL sel_registerName(const char* name);
Class objc_lookUpClass(const char* name);
Protocol* objc_getProtocol(const char* name);
}
