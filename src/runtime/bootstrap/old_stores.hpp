// Private directories of jobs that were killed while they met: nobody else would ever look there again.
#pragma once

#include <string>

namespace epccl::runtime {

/// What the names of this user's private directories in a folder for temporary files begin with; 32 hexadecimal digits follow.
std::string start_of_private_names();

/// To be held (flock) by who uses one, for as long as that takes, so that it is not taken for left over. Does its best: some file
/// systems have no such locks. False: it was removed before that, and is to be opened anew.
bool hold_private_directory(int directory);

/// Removes those where nothing has changed for a day and that nobody holds. Nothing but mailbox files goes with them.
void remove_old_stores(const std::string& folder);

}  // namespace epccl::runtime
