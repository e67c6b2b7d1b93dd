// Files that are broken, oversized or make no sense: an error that says what and where; never a crash, never
// a hang.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>

#include "test_machine.hpp"
#include "topology/xml_guard.hpp"

namespace epccl::topology {
namespace {

/// The error of a text that must not load.
std::string error_of(const std::string& xml) {
  const auto machine = parse_machine(xml, "test.xml");
  EXPECT_FALSE(machine.ok()) << xml.substr(0, 500);
  if (machine.ok()) return "";
  EXPECT_EQ(machine.status().message().rfind("test.xml: ", 0), 0u) << machine.status().message();
  return machine.status().message();
}

void expect_error(const std::string& xml, const std::string& part) {
  const std::string message = error_of(xml);
  EXPECT_NE(message.find(part), std::string::npos) << "\"" << message << "\" does not say \"" << part << "\"";
}

std::string nccl(const std::string& inside) {
  return "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">" + inside + "</cpu></system>";
}

std::string gpu(const std::string& bus_id, const std::string& gpu_attributes,
                const std::string& inside = "") {
  return "<pci busid=\"" + bus_id + "\" class=\"0x030200\" link_speed=\"8 GT/s\" link_width=\"16\"><gpu " +
         gpu_attributes + ">" + inside + "</gpu></pci>";
}

std::string hwloc(const std::string& inside, const std::string& root = "version=\"2.0\"") {
  return "<topology " + root +
         "><object type=\"Machine\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
         "allowed_cpuset=\"0x1\" "
         "nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">"
         "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
         "complete_nodeset=\"0x1\" gp_index=\"2\" local_memory=\"1024\"/>"
         "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
         "complete_nodeset=\"0x1\" gp_index=\"3\"/>" +
         inside + "</object></topology>";
}

std::string file_text(const std::string& name) {
  std::ifstream file(data_file(name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A file that is removed again.
class TemporaryPath {
 public:
  TemporaryPath() : path_(testing::TempDir() + "epccl-hostile-" + std::to_string(getpid()) + ".xml") {}
  ~TemporaryPath() { unlink(path_.c_str()); }
  const std::string& str() const { return path_; }

 private:
  std::string path_;
};

TEST(HostileXml, TheSkeletonsThemselvesLoad) {
  const auto a = parse_machine(nccl(gpu("0000:01:00.0", "dev=\"0\" sm=\"90\"")), "a"),
             b = parse_machine(hwloc(""), "b");
  EXPECT_TRUE(a.ok()) << a.status().message();
  EXPECT_TRUE(b.ok()) << b.status().message();
}

TEST(HostileXml, NotXmlAtAll) {
  expect_error("", "");
  expect_error("no xml", "broken XML");
  expect_error("<system", "truncated");
  expect_error("<system><cpu></system>", "not closed");
  expect_error("</system>", "not opened");
  expect_error(std::string("\0\0\0\0", 4), "broken XML");
  expect_error("<system><cpu a=b></cpu></system>", "broken XML at byte");
  expect_error("<!-- never closed", "truncated");
}

TEST(HostileXml, UnknownRootElement) {
  expect_error("<html></html>", "<html>, not <topology> (hwloc) or <system> (NCCL, RCCL)");
  expect_error("<system version=\"1\"/>", "no <cpu>");
  expect_error("<topology version=\"2.0\"/>", "no Machine");
}

TEST(HostileXml, OneDocumentAndNothingBehindIt) {
  const std::string one = nccl("");
  expect_error(one + "garbage", "text after the root element, at byte " + std::to_string(one.size()));
  expect_error(one + "\n<!-- a --> x", "text after the root element");
  expect_error(one + "<![CDATA[x]]>", "text after the root element");
  expect_error(one + one, "a second root element");
  expect_error("<system/>" + one, "a second root element");
  const auto fine =
      parse_machine("<?xml version=\"1.0\"?>\n<!-- a -->" + one + "\r\n <!-- b --> <?c?>\n", "a");
  EXPECT_TRUE(fine.ok()) << fine.status().message();
}

TEST(HostileXml, OtherEncodingsAreNamed) {
  const std::string one = nccl("");
  for (const bool little : {true, false}) {
    for (const bool mark : {true, false}) {
      std::string wide = !mark ? "" : little ? "\xff\xfe" : "\xfe\xff";
      for (const char c : one) wide += little ? std::string{c, '\0'} : std::string{'\0', c};
      expect_error(wide, "UTF-16 or UTF-32, not UTF-8");
    }
  }
  EXPECT_TRUE(parse_machine("\xef\xbb\xbf" + one, "a").ok()) << "UTF-8 with a mark";
}

TEST(HostileXml, EveryTruncationOfARealFileIsAnError) {
  for (const char* name : {"nccl-aws-p4d.xml", "hwloc-dgx2.xml"}) {
    const std::string whole = file_text(name);
    const size_t last_tag = whole.rfind('<');
    for (size_t length = 0; length <= last_tag; length += 97) error_of(whole.substr(0, length));
  }
}

TEST(HostileXml, RandomDamageNeverCrashes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string bytes = "<>/\"'= \n0123456789abcdefx:.-,&;[]";
  for (const char* name :
       {"nccl-oci-h100.xml", "rccl-8x-mi250x.xml", "hwloc-dgx2.xml", "hwloc-corona-mi.xml"}) {
    const std::string whole = file_text(name);
    for (int round = 0; round < 60; ++round) {
      std::string text = whole;
      for (unsigned hits = 1 + random() % 4; hits > 0; --hits)
        text[random() % text.size()] = bytes[random() % bytes.size()];
      const auto machine = parse_machine(text, name);
      EXPECT_TRUE(machine.ok() || !machine.status().message().empty());
    }
  }
}

TEST(HostileXml, DeepNestingIsRefused) {
  std::string deep, end;
  for (int i = 0; i < 1'000'000; ++i) {
    deep += "<pci>";
    end += "</pci>";
  }
  expect_error(nccl(deep + end), "nested deeper than 128");
}

TEST(HostileXml, TooManyElementsAreRefused) {
  std::string siblings;
  for (size_t i = 0; i <= XmlLimits::siblings; ++i) siblings += "<a/>";
  expect_error(nccl(siblings), "more than 20000 children");
  std::string many;
  for (size_t i = 0; i < 100; ++i) many += "<b>" + std::string(siblings.substr(0, 4 * 5000)) + "</b>";
  expect_error(nccl(many), "more than 400000 XML elements");
}

TEST(HostileXml, OversizedFilesAreRefusedUnread) {
  const TemporaryPath path;
  { std::ofstream file(path.str()); }
  ASSERT_EQ(truncate(path.str().c_str(), (int64_t{64} << 20) + 1), 0);
  const auto machine = read_machine(path.str());
  ASSERT_FALSE(machine.ok());
  EXPECT_NE(machine.status().message().find("larger than 64 MiB"), std::string::npos)
      << machine.status().message();
}

TEST(HostileXml, WhatIsNoRegularFileIsRefused) {
  EXPECT_FALSE(read_machine("/nonexistent/machine.xml").ok());
  EXPECT_FALSE(read_machine("/").ok());
  EXPECT_FALSE(read_machine("/dev/zero").ok());
  const TemporaryPath path;
  ASSERT_EQ(mkfifo(path.str().c_str(), 0600), 0);
  const auto machine = read_machine(path.str());
  ASSERT_FALSE(machine.ok()) << "and does not wait for a writer";
  EXPECT_NE(machine.status().message().find("not a regular file"), std::string::npos);
}

// A terminal would obey what stands in a name.
TEST(HostileXml, ControlCharactersAreRefused) {
  for (const char* const text : {"\x1b[31m", "&#27;[31m", "&#x1B;", "&#0;", "\x7f", "&#127;"})
    expect_error(
        nccl(gpu("0000:01:00.0", std::string("dev=\"0\" sm=\"90\" rank=\"0\" name=\"") + text + "\"")),
        "a control character at byte ");
  expect_error(std::string("<system>\0</system>", 18), "a control character at byte 8");
  const auto fine = parse_machine(nccl("<!-- &#9; &#233; &#xe9; \t &# &#; \xc3\xa9 -->"), "fine");
  EXPECT_TRUE(fine.ok()) << fine.status().message();
}

TEST(HostileXml, EntityDeclarationsAreRefused) {
  expect_error("<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><system>&b;</system>",
               "declarations");
}

TEST(HostileNcclXml, BusIds) {
  expect_error(nccl("<pci class=\"0x030200\"/>"), "no attribute \"busid\"");
  expect_error(nccl("<pci busid=\"here\" class=\"0x030200\"/>"), "busid=\"here\" is no PCI bus id");
  expect_error(
      nccl(
          "<pci busid=\"0000:01:00.0\" class=\"0x030200\"/><pci busid=\"0000:01:00.0\" class=\"0x030200\"/>"),
      "PCI bus id 0000:01:00.0 appears twice");
}

TEST(HostileNcclXml, NumbersThatAreNone) {
  const std::string start = "<pci busid=\"0000:01:00.0\" ";
  expect_error(nccl(start + "/>"), "no attribute \"class\"");
  expect_error(nccl(start + "class=\"gpu\"/>"), "class=\"gpu\"");
  expect_error(nccl(start + "class=\"0x030200\" vendor=\"0x10000\"/>"), "vendor=\"0x10000\"");
  expect_error(nccl(start + "class=\"0x030200\" link_width=\"wide\"/>"), "link_width=\"wide\"");
  expect_error(nccl(start + "class=\"0x030200\" link_speed=\"fast\"/>"), "link_speed=\"fast\"");
  expect_error(nccl(gpu("0000:01:00.0", "dev=\"first\"")), "dev=\"first\"");
  expect_error(nccl(gpu("0000:01:00.0", "dev=\"-1\"")), "dev=\"-1\"");
  expect_error(nccl(gpu("0000:01:00.0", "sm=\"9999999999999999999999\"")), "sm=");
  expect_error(nccl("<nic><net name=\"e\" speed=\"quick\"/></nic>"), "speed=\"quick\"");
  expect_error(nccl("<nic><net speed=\"1\"/></nic>"), "no attribute \"name\"");
  expect_error("<system><cpu numaid=\"none\"/></system>", "numaid=\"none\"");
  expect_error("<system><cpu/></system>", "no attribute \"numaid\"");
  expect_error("<system><cpu numaid=\"0\" affinity=\"all\"/></system>", "affinity");
  expect_error("<system><cpu numaid=\"0\"/><cpu numaid=\"0\"/></system>", "NUMA node 0 appears twice");
}

TEST(HostileNcclXml, Links) {
  const auto with = [](const std::string& link) { return nccl(gpu("0000:01:00.0", "dev=\"0\"", link)); };
  expect_error(with("<nvlink target=\"0000:01:00.0\" count=\"1\"/>"), "has a nvlink link to itself");
  expect_error(with("<nvlink count=\"1\"/>"), "no attribute \"target\"");
  expect_error(with("<nvlink target=\"there\" count=\"1\" tclass=\"0x030200\"/>"),
               "\"there\" is no PCI bus id");
  expect_error(with("<nvlink target=\"0000:02:00.0\" count=\"0\"/>"), "count=\"0\"");
  expect_error(with("<nvlink target=\"0000:02:00.0\" count=\"1000000\"/>"), "count=\"1000000\"");
  expect_error(with("<xgmi target=\"0000:02:00.0\" tclass=\"x\"/>"), "tclass=\"x\"");
  expect_error(nccl("<pci busid=\"0000:02:00.0\" class=\"0x010000\"/>" +
                    gpu("0000:01:00.0", "dev=\"0\"", "<nvlink target=\"0000:02:00.0\"/>")),
               "0000:02:00.0 is no GPU");
}

TEST(HostileNcclXml, ALinkToAGpuThatIsNotVisibleLeavesANote) {
  const auto machine = parse_machine(
      nccl(gpu("0000:01:00.0", "dev=\"0\"", "<nvlink target=\"0000:02:00.0\" count=\"4\"/>")), "a");
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_TRUE(machine->links.empty());
  ASSERT_EQ(machine->notes.size(), 1u);
  EXPECT_NE(machine->notes[0].find("0000:02:00.0"), std::string::npos);
}

TEST(HostileNcclXml, TwoGpusWithOneNumber) {
  expect_error(nccl(gpu("0000:01:00.0", "dev=\"3\"") + gpu("0000:02:00.0", "dev=\"3\"")),
               "two GPUs have the number 3");
}

TEST(HostileNcclXml, SeveralHosts) {
  expect_error("<system><cpu host_hash=\"0x1\" numaid=\"0\"/><cpu host_hash=\"0x2\" numaid=\"0\"/></system>",
               "several hosts");
}

TEST(HostileNcclXml, TooManyGpus) {
  std::string gpus;
  for (unsigned i = 0; i < 300; ++i)
    gpus += gpu(BusId{i, 0, 0, 0}.to_string(), "dev=\"" + std::to_string(i) + "\"");
  expect_error(nccl(gpus), "more than 256 GPUs");
}

TEST(HostileHwlocXml, Versions) {
  expect_error(hwloc("", "version=\"3.0\""), "versions up to 2 can be read");
  expect_error(hwloc("", "version=\"new\""), "is no version");
}

TEST(HostileHwlocXml, NumbersThatAreNone) {
  expect_error(hwloc("<object type=\"NUMANode\" os_index=\"one\"/>"), "os_index=\"one\"");
  expect_error(hwloc("<object type=\"NUMANode\"/>"), "no attribute \"os_index\"");
  expect_error(hwloc("<object type=\"NUMANode\" os_index=\"1\" local_memory=\"much\"/>"),
               "local_memory=\"much\"");
  expect_error(hwloc("<object type=\"NUMANode\" os_index=\"1\" cpuset=\"all\"/>"), "cpuset: \"all\"");
  expect_error(hwloc("<object type=\"PU\" nodeset=\"" + std::string(1 << 20, 'f') + "\"/>"), "nodeset");
  expect_error(hwloc("<object type=\"PU\" gp_index=\"x\"/>"), "gp_index=\"x\"");
  expect_error(hwloc("<object type=\"OSDev\" osdev_type=\"9\"/>"), "osdev_type=\"9\"");
  expect_error(hwloc("<object/>"), "no attribute \"type\"");
}

TEST(HostileHwlocXml, PciAttributes) {
  const std::string type = "pci_type=\"0302 [10de:20b0] [0000:0000] a1\" ";
  expect_error(hwloc("<object type=\"PCIDev\" " + type + "/>"), "no attribute \"pci_busid\"");
  expect_error(hwloc("<object type=\"PCIDev\" pci_busid=\"x\" " + type + "/>"), "pci_busid=\"x\"");
  const std::string start = "<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" ";
  expect_error(hwloc(start + "pci_type=\"GPU\"/>"), "pci_type=\"GPU\"");
  expect_error(hwloc(start + type + "pci_link_speed=\"nan\"/>"), "pci_link_speed=\"nan\"");
  expect_error(hwloc("<object type=\"Bridge\" bridge_type=\"2-7\"/>"), "bridge_type=\"2-7\"");
  expect_error(hwloc("<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"0000:2b\"/>"),
               "bridge_pci=\"0000:2b\"");
}

TEST(HostileHwlocXml, Matrices) {
  const auto matrix = [](const std::string& count, const std::string& inside) {
    std::string text = hwloc(
        "<object type=\"PCIDev\" gp_index=\"7\" pci_busid=\"0000:01:00.0\" "
        "pci_type=\"0302 [10de:20b0] [0000:0000] a1\"/>");
    text.insert(text.rfind("</topology>"), "<distances2hetero name=\"NVLinkBandwidth\" nbobjs=\"" + count +
                                               "\">" + inside + "</distances2hetero>");
    return text;
  };
  EXPECT_TRUE(parse_machine(matrix("1", "<indexes>PCIDev:7 </indexes><u64values>0 </u64values>"), "a").ok());
  for (const char* size : {"65536", "100000", "4294967295", "-1", "0", "many"})
    expect_error(matrix(size, ""), "nbobjs=\"" + std::string(size));
  expect_error(matrix("2", "<indexes>PCIDev:7</indexes><u64values>0</u64values>"),
               "1 devices and 1 values, where nbobjs says 2 and 4");
  expect_error(matrix("1", "<indexes>PCIDev:7</indexes>"), "1 devices and 0 values");
  expect_error(matrix("1", "<indexes>PCIDev:8</indexes><u64values>0</u64values>"),
               "\"PCIDev:8\" is no device");
  expect_error(matrix("1", "<indexes>PU:3</indexes><u64values>0</u64values>"), "\"PU:3\" is no device");
  expect_error(matrix("1", "<indexes>PCIDev:7</indexes><u64values>fast</u64values>"),
               "\"fast\" is no bandwidth");
}

TEST(HostileHwlocXml, DuplicateIds) {
  const std::string device =
      "<object type=\"PCIDev\" gp_index=\"#\" pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:20b0] "
      "[0000:0000] a1\" "
      "pci_link_speed=\"1.0\"/>";
  const auto numbered = [&](const std::string& number) {
    return std::string(device).replace(device.find('#'), 1, number);
  };
  expect_error(hwloc(numbered("10") + numbered("11")), "PCI bus id 0000:01:00.0 appears twice");
  expect_error(hwloc(numbered("2")), "gp_index 2 appears twice");
  expect_error(hwloc("<object type=\"NUMANode\" os_index=\"0\"/>"), "NUMA node 0 appears twice");
}

TEST(HwlocXml, AMachineWithoutNumaNodesHasOne) {
  const auto machine = parse_machine(
      "<topology><object type=\"Machine\" os_index=\"0\" cpuset=\"0xf...f,,0x0000000f\" "
      "local_memory=\"4096\">"
      "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"0000:[00-07]\"><object type=\"PCIDev\" "
      "pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:20b0] [0000:0000] "
      "a1\"/></object></object></topology>",
      "version 1");
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  ASSERT_EQ(machine->numa_nodes.size(), 1u);
  EXPECT_EQ(format_cpu_list(machine->numa_nodes[0].cpus), "0-3");
  EXPECT_EQ(machine->numa_nodes[0].memory_bytes, 4096u);
  EXPECT_EQ(machine->gpus.at(0).numa, 0);
}

}  // namespace
}  // namespace epccl::topology
