// Where on a command line the operation stands: options may come before it.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace epccl::perf {

/// Names of options behind which a word is theirs, always or perhaps.
struct ValueNames {
  std::set<std::string> always, perhaps;
  void add(const CLI::App& app);
};

/// The arguments with the operation behind the program's name, whatever it is: the first word that is neither an option of the
/// collectives, of moe or of links nor what belongs to one. Behind --overlap, whose word may be left out, an operation's name is the
/// operation. As they are where there is none.
std::vector<const char*> operation_first(int argc, const char* const* argv);

}  // namespace epccl::perf
