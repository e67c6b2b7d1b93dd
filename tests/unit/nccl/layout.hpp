#pragma once

#include <string>
#include <utility>
#include <vector>

using Layout = std::vector<std::pair<std::string, long long>>;

/// layout.inc as bindings/nccl/abi.hpp has it.
Layout our_layout();
/// As nccl.h and nccl_device.h have it.
Layout their_layout();

#define SIZE(type) {"sizeof " #type, static_cast<long long>(sizeof(type))},
#define FIELD(type, field) {"offset of " #type "." #field, static_cast<long long>(offsetof(type, field))},
#define VALUE(constant) {#constant, static_cast<long long>(constant)},
