// What this library asks of UCX where the user did not: every UCX_* variable in the environment wins.
#pragma once

#include <string>
#include <vector>

#include "transports/ucx/ucx_library.hpp"

namespace epccl::transports::ucx {

/// One UCX setting, named without its UCX_ prefix.
struct Setting {
  std::string name, value;
};

/// The settings to apply to a new UCP context, those the user has set in the environment left out.
/// `tcp_only`: TCP is the only network UCX would use here.
std::vector<Setting> preferred_settings(bool tcp_only);

/// True when UCX would carry network traffic over TCP alone: no other network device exists, or the user's
/// UCX_TLS or UCX_NET_DEVICES leave none.
bool tcp_is_the_only_network(const Library& ucx);

/// Takes back the signal handlers that the UCX library installs when it is loaded (SIGHUP would no longer end
/// the process, crashes would print), unless the user asked for them or somebody replaced them since.
void restore_signal_handlers(const Library& ucx);

}  // namespace epccl::transports::ucx
