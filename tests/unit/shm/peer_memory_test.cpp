// Reading and writing memory of another rank of the node.
#include <sys/mman.h>

#include <array>
#include <cstring>

#include "node.hpp"

namespace epccl::transports {
namespace {

// It may be a rank that has died: of what it did wrong more is known elsewhere.
TEST(PeerMemory, ThatIsNotThereIsThePeersFailure) {
  Node node(2);
  constexpr size_t bytes = 4096;
  void* const gone = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  BufferRef theirs;
  theirs.address = reinterpret_cast<uint64_t>(gone);
  theirs.bytes = bytes;
  std::array<char, 100> mine{};
  iovec here{mine.data(), mine.size()}, there{gone, mine.size()};
  for (const bool is_write : {false, true})
    for (const Status& status :
         {is_write ? node[0].write(1, theirs, 0, mine.data(), mine.size())
                   : node[0].read(1, theirs, 0, mine.data(), mine.size()),
          node[0].transfer_pieces(1, is_write, std::span(&here, 1), std::span(&there, 1))}) {
      EXPECT_EQ(status.code(), Code::remote_error) << status.message();
      for (const char* part : {is_write ? "process_vm_writev" : "process_vm_readv", "local rank 1"})
        EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
  munmap(gone, bytes);
}

}  // namespace
}  // namespace epccl::transports
