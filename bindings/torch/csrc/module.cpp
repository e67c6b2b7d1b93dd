// What Python sees: a function that makes the process group, and the process group.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "backend.hpp"
#include "program_end.hpp"

namespace {

namespace py = pybind11;

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         double timeout_seconds, std::vector<int64_t> global_ranks,
                                         std::string name) {
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  return c10::make_intrusive<epccl_torch::EpcclBackend>(store, rank, size, timeout, std::move(global_ranks),
                                                        std::move(name));
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout_seconds"), py::arg("global_ranks"), py::arg("name"),
             py::call_guard<py::gil_scoped_release>());
  module.def("program_ends", &epccl_torch::program_ends);
  module.def("process_ends", &epccl_torch::process_ends, py::call_guard<py::gil_scoped_release>());
  module.attr("built_for") = TORCH_VERSION;
  // new_group calls this on ranks that are not in the new group, where the default group is bound to a device and can be split: of
  // NCCL, all ranks take part in a split. Here the members meet alone.
  py::class_<epccl_torch::EpcclBackend, c10d::Backend, c10::intrusive_ptr<epccl_torch::EpcclBackend>>(
      module, "EpcclBackend")
      .def(
          "perform_nocolor_split", [](epccl_torch::EpcclBackend&, const py::object&) {}, py::arg("device"))
      // What PyTorch's own backends call set_timeout() of theirs.
      .def("_set_default_timeout", &epccl_torch::EpcclBackend::setTimeout, py::arg("timeout"),
           py::call_guard<py::gil_scoped_release>());
}
