#include "perf/src/datatype.hpp"

#include <algorithm>
#include <utility>

#include "perf/src/names.hpp"

namespace epccl::perf {
namespace {

/// Other spellings -> nccl-tests' names.
constexpr std::pair<std::string_view, std::string_view> aliases[] = {
    {"char", "int8"},        {"int", "int32"},       {"float16", "half"},    {"fp16", "half"},
    {"float32", "float"},    {"fp32", "float"},      {"float64", "double"},  {"fp64", "double"},
    {"bf16", "bfloat16"},    {"fp8_e4m3", "f8e4m3"}, {"fp8_e5m2", "f8e5m2"}, {"float8e4m3", "f8e4m3"},
    {"float8e5m2", "f8e5m2"}};

Result<DataType> find(std::string_view name) {
  for (const auto& [alias, canonical] : aliases) {
    if (name == alias) name = canonical;
  }
  std::string known;
  for (const DataType& type : all_datatypes()) {
    if (name == type.name) return type;
    known += std::string(known.empty() ? "" : ", ") + type.name;
  }
  return error(Code::invalid_argument, "unknown datatype \"{}\": want all, or some of {}", name, known);
}

}  // namespace

const std::vector<DataType>& all_datatypes() {
  static const std::vector<DataType> types = {
      {epcclInt8, "int8", 1},         {epcclUint8, "uint8", 1},       {epcclInt32, "int32", 4},
      {epcclUint32, "uint32", 4},     {epcclInt64, "int64", 8},       {epcclUint64, "uint64", 8},
      {epcclFloat16, "half", 2},      {epcclFloat32, "float", 4},     {epcclFloat64, "double", 8},
      {epcclBfloat16, "bfloat16", 2}, {epcclFloat8e4m3, "f8e4m3", 1}, {epcclFloat8e5m2, "f8e5m2", 1}};
  return types;
}

Result<std::vector<DataType>> parse_datatypes(std::string_view text) {
  if (text == "all") return all_datatypes();
  std::vector<DataType> types;
  for (const std::string_view name : split(text)) {
    EPCCL_ASSIGN(const DataType type, find(name));
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  return types;
}

}  // namespace epccl::perf
