// Datatypes by the names that nccl-tests prints.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::perf {

struct DataType {
  epcclDataType_t id = epcclFloat32;
  const char* name = "float";
  size_t bytes = 4;
  friend bool operator==(const DataType& a, const DataType& b) { return a.id == b.id; }
};

/// Every datatype, in the order of epcclDataType_t.
const std::vector<DataType>& all_datatypes();

/// "all", or names separated by commas: "float,int8". Also takes the names of other tools (float32, fp16,
/// bf16, ...).
Result<std::vector<DataType>> parse_datatypes(std::string_view text);

}  // namespace epccl::perf
