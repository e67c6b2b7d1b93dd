// Groups that a program has not destroyed when it ends. The interpreter takes seconds to take PyTorch apart, and only then does the
// process end; the other ranks should not wait for that to hear that this one makes no more calls.
#pragma once

namespace epccl_torch {

class EpcclBackend;

/// A group that is there from now on, and one that is not any more.
void group_begins(EpcclBackend* group);
void group_ends(EpcclBackend* group);

/// Called when Python's exit functions run: all groups that are left then leave as soon as the last of those functions is through
/// (they may still make calls), beside the interpreter's end.
void program_ends();

}  // namespace epccl_torch
