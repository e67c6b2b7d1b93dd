// Jobs whose real NCCL is a double, and what that was asked.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace nccl_programs {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Processes, each with one GPU, whose real NCCL is the double, unless `environment` says otherwise.
Job with_gpus(int ranks, const Environment& environment = {});

/// As NCCL_CONFIG_INITIALIZER.
ncclConfig_t initial_config();
/// That of a nonblocking communicator.
ncclConfig_t nonblocking_config();

/// What the double was asked since the last time, one call a line: the name less "nccl", then the arguments. Without questions
/// for its version, its errors and its error texts. Empty where it was never opened.
std::vector<std::string> asked_of_real();

/// Asks it until it has this call, too; what it was asked then.
std::vector<std::string> asked_of_real_until(const std::string& call);

/// A pointer as the double writes it.
std::string text_of(const void* pointer);

/// The double's communicator that the last of these lines made, as it writes it.
std::string made_in(const std::vector<std::string>& lines);

}  // namespace nccl_programs
