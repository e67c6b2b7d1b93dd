// Frames: what is written is read, and nothing that arrives can do harm.
#include "runtime/bootstrap/wire.hpp"

#include "ranks.hpp"

namespace epccl::test {
namespace {

using namespace runtime::wire;

TEST(Wire, WriterAndReaderAgree) {
  const Bytes blob = to_blob("blob");
  Bytes frame =
      Writer(Type::stall).u8(200).u32(4'000'000'000u).u64(1ull << 60).i32(-5).text("text").blob(blob).take();
  Splitter splitter;
  splitter.append(frame);
  const auto got = splitter.next(1000);
  ASSERT_TRUE(got.ok() && got->has_value());
  EXPECT_EQ((*got)->type, Type::stall);
  Reader body((*got)->body);
  EXPECT_EQ(body.u8(), 200);
  EXPECT_EQ(body.u32(), 4'000'000'000u);
  EXPECT_EQ(body.u64(), 1ull << 60);
  EXPECT_EQ(body.i32(), -5);
  EXPECT_EQ(body.text(), "text");
  const auto read = body.blob();
  EXPECT_EQ(Bytes(read.begin(), read.end()), blob);
  EXPECT_TRUE(body.complete());
}

TEST(Wire, ReaderNeverReadsPastTheEnd) {
  const Bytes body = to_blob(std::string("\xff\xff\xff\x7f", 4) + "rest"), three(3);
  Reader as_text(body), as_blob(body), as_number(three);
  EXPECT_EQ(as_text.text(), "");
  EXPECT_FALSE(as_text.complete());
  EXPECT_TRUE(as_blob.blob().empty());
  EXPECT_FALSE(as_blob.complete());
  EXPECT_EQ(as_number.u32(), 0u);
  EXPECT_FALSE(as_number.complete());
}

TEST(Wire, ReasonsThatNobodyKnowsAreNone) {
  for (int value = 0; value < 256; ++value) {
    Writer frame(Type::failure);
    frame.u8(static_cast<uint8_t>(value));
    Reader body(frame.body());
    const Reason reason = body.reason();
    EXPECT_EQ(reason, value <= 2 ? static_cast<Reason>(value) : Reason::none) << value;
    EXPECT_TRUE(body.complete());
  }
  Reader nothing({});
  EXPECT_EQ(nothing.reason(), Reason::none);
  EXPECT_FALSE(nothing.complete());
}

TEST(Wire, LeftoverBytesAreNoticed) {
  const Bytes body(5);
  Reader reader(body);
  reader.u32();
  EXPECT_FALSE(reader.complete());
}

TEST(Wire, LongTextIsCutWhenWrittenAndRefusedWhenRead) {
  Writer writer(Type::failure);
  writer.text(std::string(3 * max_text, 'x'));
  Reader body(writer.body());
  EXPECT_EQ(body.text().size(), max_text);
  EXPECT_TRUE(body.complete());
  Writer blob(Type::failure);
  blob.blob(Bytes(max_text + 1));
  Reader too_long(blob.body());
  too_long.text();
  EXPECT_FALSE(too_long.complete());
}

TEST(Wire, SplitterTakesAnyPieces) {
  auto random = seeded_random();
  for (int round = 0; round < 50; ++round) {
    Bytes stream;
    std::vector<size_t> sizes;
    for (int frame = 0; frame < 20; ++frame) {
      sizes.push_back(random() % 300);
      const Bytes bytes = Writer(Type::gather).raw(Bytes(sizes.back(), static_cast<std::byte>(frame))).take();
      stream.insert(stream.end(), bytes.begin(), bytes.end());
    }
    Splitter splitter;
    std::vector<size_t> got;
    for (size_t at = 0; at < stream.size();) {
      const size_t piece = std::min(stream.size() - at, size_t{1 + random() % 200});
      splitter.append(std::span(stream).subspan(at, piece));
      at += piece;
      for (auto next = splitter.next(1000); next.ok() && next->has_value(); next = splitter.next(1000)) {
        const Bytes& body = (*next)->body;
        EXPECT_EQ(body, Bytes(body.size(), static_cast<std::byte>(got.size())));
        got.push_back(body.size());
      }
    }
    EXPECT_EQ(got, sizes);
  }
}

TEST(Wire, SplitterRefusesLengthsOutsideTheLimit) {
  for (const uint32_t length : {0u, 101u, 0xffffffffu}) {
    Bytes header(4);
    for (size_t i = 0; i < 4; ++i) header[i] = static_cast<std::byte>(length >> (8 * i));
    Splitter splitter;
    splitter.append(header);
    EXPECT_FALSE(splitter.next(100).ok()) << length;
  }
}

}  // namespace
}  // namespace epccl::test
