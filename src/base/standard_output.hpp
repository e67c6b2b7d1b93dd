// What a program prints is written, or its user hears that it was not.
#pragma once

#include <string_view>

#include "base/status.hpp"

namespace epccl {

/// Writes all of it now. Error: system_error, "cannot write standard output" and why.
Status print(std::string_view text);

}  // namespace epccl
