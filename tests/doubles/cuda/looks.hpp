// How a stream of the double waits for memory: it looks again and again, ever more rarely, since many streams wait at a time on few cores.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace fake_cuda {

template <typename IsTrue>
void look_until(IsTrue is_true) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  for (const Clock::time_point begin = Clock::now(); !is_true();)
    std::this_thread::sleep_for(std::clamp<Clock::duration>((Clock::now() - begin) / 16, 20us, 300us));
}

}  // namespace fake_cuda
