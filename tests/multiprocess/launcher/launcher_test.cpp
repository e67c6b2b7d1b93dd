// epccl-run: what ranks get, what comes out, and that nothing is left behind.
#include "run.hpp"

namespace epccl::test {
namespace {

using Lines = std::vector<std::string>;

// Each rank writes its pid, then sleeps under that pid.
constexpr const char* sleeper = "echo $$ > $D/rank.$EPCCL_RANK; exec sleep 300";

TEST_F(Launcher, RanksGetTheirPlace) {
  EXPECT_EQ(run({"-n", "3", "sh", "-c",
                 "echo $EPCCL_RANK of $EPCCL_WORLD_SIZE, $EPCCL_LOCAL_RANK ${EPCCL_HOSTID-none}"}),
            0);
  EXPECT_EQ(sorted_lines(), (Lines{"0 of 3, 0 none", "1 of 3, 1 none", "2 of 3, 2 none"}));
}

TEST_F(Launcher, RanksGetTheirPlaceForTorchTooUnlessItIsGiven) {
  EXPECT_EQ(run({"-n", "2", "--nodes", "2", "sh", "-c", "echo $RANK of $WORLD_SIZE, $LOCAL_RANK"}), 0);
  EXPECT_EQ(sorted_lines(), (Lines{"0 of 2, 0", "1 of 2, 0"}));
  EXPECT_EQ(run({"-n", "1", "--env", "RANK=7", "sh", "-c", "echo $RANK of $WORLD_SIZE"}), 0);
  EXPECT_EQ(sorted_lines(), (Lines{"7 of 1"}));
}

TEST_F(Launcher, VirtualNodesAreContiguousBlocks) {
  EXPECT_EQ(run({"-n", "5", "--nodes", "2", "sh", "-c", "echo $EPCCL_RANK $EPCCL_HOSTID $EPCCL_LOCAL_RANK"}),
            0);
  EXPECT_EQ(sorted_lines(), (Lines{"0 node0 0", "1 node0 1", "2 node0 2", "3 node1 0", "4 node1 1"}));
}

TEST_F(Launcher, NodesMayBeUnequal) {
  EXPECT_EQ(run({"--ranks-per-node", "1,3", "sh", "-c", "echo $EPCCL_RANK $EPCCL_HOSTID $EPCCL_WORLD_SIZE"}),
            0);
  EXPECT_EQ(sorted_lines(), (Lines{"0 node0 4", "1 node1 4", "2 node1 4", "3 node1 4"}));
}

TEST_F(Launcher, StoreIsPrivateSharedAndGoneAfterwards) {
  EXPECT_EQ(run({"-n", "2", "sh", "-c", "stat -c '%a %F' $EPCCL_STORE; echo $EPCCL_STORE"}), 0);
  const Lines lines = sorted_lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[2], "700 directory");
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_FALSE(std::filesystem::exists(lines[0]));
}

TEST_F(Launcher, StoreIsThereForRanksThatGoElsewhereWhereTmpdirIsRelative) {
  EXPECT_EQ(wait(start_program({"sh", "-c",
                                fmt::format("cd $D && TMPDIR=tmp exec {} -n 1 sh -c 'cd / && test -d "
                                            "\"$EPCCL_STORE\" && echo \"$EPCCL_STORE\"'",
                                            EPCCL_RUN)})),
            0)
      << err();
  EXPECT_TRUE(out().starts_with(directory_ + "/tmp/")) << out();
}

TEST_F(Launcher, TmpdirThatIsNotThereIsNamed) {
  EXPECT_EQ(wait(start_program({"env", "TMPDIR=/nowhere/at/all", EPCCL_RUN, "-n", "1", "true"})), 1);
  EXPECT_EQ(err(),
            "epccl-run: making a directory in TMPDIR=/nowhere/at/all: No such file or directory (errno 2)\n");
}

TEST_F(Launcher, BrokenPipesThatWereIgnoredStaySo) {
  const std::string is_ignored = fmt::format(
      "{} -n 1 sh -c 'mask=$(sed -n \"s/^SigIgn:[[:space:]]*//p\" /proc/self/status); echo $((0x$mask >> 12 "
      "& "
      "1))'",
      EPCCL_RUN);
  EXPECT_EQ(wait(start_program({"sh", "-c", is_ignored})), 0);
  EXPECT_EQ(out(), "0\n");
  EXPECT_EQ(wait(start_program({"sh", "-c", "trap '' PIPE; " + is_ignored})), 0);
  EXPECT_EQ(out(), "1\n");
}

TEST_F(Launcher, WhatItSaysBeyondALimitOfFileSizesDoesNotEndIt) {
  const std::string full = fmt::format(
      "head -c 65536 /dev/zero > $D/full; ulimit -f 8; exec {} -n 1 sh -c 'exit 3' 2>> $D/full", EPCCL_RUN);
  EXPECT_EQ(wait(start_program({"sh", "-c", full})), 3);
}

TEST_F(Launcher, VariablesFromTheCommandLineReachAllRanks) {
  EXPECT_EQ(run({"-n", "2", "--env", "A=b=c", "--env", "EMPTY=", "sh", "-c", "echo $A-${EMPTY-unset}-"}), 0);
  EXPECT_EQ(sorted_lines(), (Lines{"b=c--", "b=c--"}));
}

TEST_F(Launcher, VariableThatIsOnlyNamedIsExportedAsItIs) {
  EXPECT_EQ(run({"-n", "1", "--env", "D", "sh", "-c", "echo $D"}), 0);
  EXPECT_EQ(out(), directory_ + "\n");
  EXPECT_EQ(run({"-n", "1", "--env", "EPCCL_HOSTID=mine", "sh", "-c", "echo $EPCCL_HOSTID"}), 0);
  EXPECT_EQ(out(), "mine\n");
}

TEST_F(Launcher, HelpSaysWhatOptionsTakeAndHowItEnds) {
  EXPECT_EQ(run({"--help"}), 0);
  for (const char* words : {"--ranks-per-node N,N,...", "--env NAME[=VALUE]", "127 where", "126 where",
                            "2 for wrong arguments", "With it lines stay whole"})
    EXPECT_NE(out().find(words), std::string::npos) << words << " in " << out();
}

TEST_F(Launcher, ProgramsOptionsAreItsOwn) {
  EXPECT_EQ(run({"-n", "1", "echo", "-n", "7", "--nodes", "--", "x"}), 0);
  EXPECT_EQ(out(), "7 --nodes -- x");
}

TEST_F(Launcher, TaggedLinesAreWholeAndCarryTheirRank) {
  EXPECT_EQ(run({"-n", "4", "--tag-output", "sh", "-c",
                 "for i in $(seq 200); do printf a$EPCCL_RANK; printf 'b%s\\n' $i; done; printf end"}),
            0);
  Lines wanted;
  for (int rank = 0; rank < 4; ++rank) {
    for (int i = 1; i <= 200; ++i) wanted.push_back(fmt::format("[{}] a{}b{}", rank, rank, i));
    wanted.push_back(fmt::format("[{}] end", rank));
  }
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(sorted_lines(), wanted);
}

// The ranks are not blamed for it, and what is lost is not passed over.
TEST_F(Launcher, TaggedOutputThatCannotBeWrittenIsAnErrorThatSaysWhy) {
  for (const char* program : {"echo hi", "seq 100000"}) {
    const std::string command = fmt::format(
        "test \"$({} -n 2 --tag-output {} 2>&1 >/dev/full)\" = "
        "'epccl-run: what the ranks print cannot be written: No space left on device'",
        EPCCL_RUN, program);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    const int status = std::system(
        fmt::format("{} -n 2 --tag-output {} >/dev/full 2>/dev/null", EPCCL_RUN, program).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1);
  }
}

TEST_F(Launcher, TaggedOutputThatHasNowhereToGoIsOneToo) {
  const int status =
      std::system(fmt::format("{} -n 2 --tag-output echo hi >&- 2>/dev/null", EPCCL_RUN).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(Launcher, TagsKeepTheTwoOutputsApart) {
  EXPECT_EQ(run({"-n", "1", "--tag-output", "sh", "-c", "echo to out; echo to err >&2"}), 0);
  EXPECT_EQ(out(), "[0] to out\n");
  EXPECT_EQ(err(), "[0] to err\n");
}

TEST_F(Launcher, ExitCodeAndReportAreThoseOfTheFirstFailure) {
  EXPECT_EQ(run({"-n", "3", "--grace", "0", "sh", "-c", "test $EPCCL_RANK = 1 && exit 7; exec sleep 300"}),
            7);
  EXPECT_NE(err().find("epccl-run: rank 1 (pid "), std::string::npos) << err();
  EXPECT_NE(err().find("exited with code 7; 2 more"), std::string::npos) << err();
}

TEST_F(Launcher, DeathBySignalIsReportedByName) {
  EXPECT_EQ(run({"-n", "2", "--nodes", "2", "--grace", "0", "sh", "-c",
                 "test $EPCCL_RANK = 1 && kill -SEGV $$; exec sleep 300"}),
            128 + SIGSEGV);
  EXPECT_NE(err().find("rank 1 (node1, pid "), std::string::npos) << err();
  EXPECT_NE(err().find("was killed by SIGSEGV"), std::string::npos) << err();
}

TEST_F(Launcher, CrashCountsAsTheCauseOfAFailureSeenJustBefore) {
  // The launcher has seen the failure when the pid is free.
  const auto run_until_killed_by = [&](const std::string& signal) {
    return run({"-n", "2", "--env", "FIRST=first." + signal, "--env", "SIGNAL=" + signal, "sh", "-c",
                "test $EPCCL_RANK = 0 && { echo $$ > $D/$FIRST; exit 3; }; "
                "until test -s $D/$FIRST; do sleep 0.01; done; "
                "while kill -0 $(cat $D/$FIRST); do sleep 0.01; done; kill -$SIGNAL $$"});
  };
  // A second later would be another matter: a machine may be that busy.
  int code = 0;
  for (int attempt = 0; attempt < 5 && code != 128 + SIGSEGV; ++attempt) {
    std::filesystem::remove(directory_ + "/first.SEGV");
    code = run_until_killed_by("SEGV");
  }
  EXPECT_EQ(code, 128 + SIGSEGV);
  EXPECT_EQ(run_until_killed_by("ABRT"), 3);
}

TEST_F(Launcher, OthersMayEndByThemselvesWithinTheGracePeriod) {
  EXPECT_EQ(run({"-n", "2", "--grace", "60", "sh", "-c",
                 "trap 'touch $D/terminated' TERM; test $EPCCL_RANK = 1 && exit 3; sleep 0.3; echo ended by "
                 "itself"}),
            3);
  EXPECT_EQ(out(), "ended by itself\n");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/terminated"));
}

// The other one fails when it ignores the signal already.
TEST_F(Launcher, RankThatIgnoresTermIsKilled) {
  EXPECT_EQ(run({"-n", "2", "--grace", "0", "sh", "-c",
                 "trap '' TERM; echo $$ > $D/rank.$EPCCL_RANK; if test $EPCCL_RANK = 1; then "
                 "until test -s $D/rank.0; do sleep 0.05; done; exit 3; fi; while :; do sleep 1; done"}),
            3);
  EXPECT_FALSE(alive(pid_from("rank.0")));
}

TEST_F(Launcher, NothingIsLeftWhenARankIsKilled) {
  const pid_t launcher = start({"-n", "4", "--grace", "0.1", "sh", "-c", sleeper});
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(pid_from(fmt::format("rank.{}", rank)));
  kill(ranks[2], SIGKILL);
  EXPECT_EQ(wait(launcher), 128 + SIGKILL);
  for (const pid_t rank : ranks) EXPECT_FALSE(alive(rank));
}

TEST_F(Launcher, NothingIsLeftWhenTheLauncherItselfIsKilled) {
  // Each rank has a child of its own, in a session of its own: what is hardest to find.
  const pid_t launcher = start({"-n", "3", "sh", "-c",
                                "setsid sh -c 'echo $$ > $D/child.$EPCCL_RANK; exec sleep 300' & "
                                "echo $$ > $D/rank.$EPCCL_RANK; wait"});
  std::vector<pid_t> all;
  for (int rank = 0; rank < 3; ++rank) {
    all.push_back(pid_from(fmt::format("rank.{}", rank)));
    all.push_back(pid_from(fmt::format("child.{}", rank)));
  }
  kill(launcher, SIGKILL);
  EXPECT_EQ(wait(launcher), -SIGKILL);
  for (const pid_t pid : all) EXPECT_TRUE(eventually([&] { return !alive(pid); }));
}

TEST_F(Launcher, OrphansOfASuccessfulJobAreEnded) {
  EXPECT_EQ(run({"-n", "2", "sh", "-c",
                 "(setsid sh -c 'echo $$ > $D/child.$EPCCL_RANK; exec sleep 300' &); "
                 "until test -s $D/child.$EPCCL_RANK; do sleep 0.01; done"}),
            0);
  EXPECT_FALSE(alive(pid_from("child.0")));
  EXPECT_FALSE(alive(pid_from("child.1")));
}

TEST_F(Launcher, OrphanThatIgnoresTermAndHidesItsEnvironmentIsKilled) {
  EXPECT_EQ(
      run({"-n", "1", "sh", "-c",
           "(env -i D=$D setsid sh -c 'trap \"\" TERM; echo $$ > $D/child; while :; do sleep 1; done' &); "
           "until test -s $D/child; do sleep 0.01; done"}),
      0);
  EXPECT_FALSE(alive(pid_from("child")));
}

TEST_F(Launcher, ChildrenOfTheShellThatBecameTheLauncherAreLeftAlone) {
  const pid_t launcher = start_program(
      {"sh", "-c",
       "sh -c 'echo $$ > $D/server; exec sleep 300' & until test -s $D/server; do sleep 0.01; done; "
       "exec " EPCCL_RUN " -n 2 true"});
  EXPECT_EQ(wait(launcher), 0);
  const pid_t server = pid_from("server");
  EXPECT_TRUE(alive(server));
  kill(server, SIGKILL);
}

TEST_F(Launcher, EndOfTheRanksIsSeenWhereTheCallerIgnoresIt) {
  struct sigaction before {};
  sigaction(SIGCHLD, nullptr, &before);
  signal(SIGCHLD, SIG_IGN);
  const pid_t launcher = start({"-n", "2", "--timeout", "10", "sh", "-c", "exit 3"});
  sigaction(SIGCHLD, &before, nullptr);
  EXPECT_EQ(wait(launcher), 3);
}

// Of a daemon, or from cron.
TEST_F(Launcher, DoesWithoutStandardDescriptors) {
  for (const char* closed : {"<&-", ">&-", "<&- >&- 2>&-"}) {
    const std::string command = fmt::format(
        "exec {} -n 2 sh -c 'echo there >> $D/came.$EPCCL_RANK; test -d $EPCCL_STORE' {}", EPCCL_RUN, closed);
    EXPECT_EQ(wait(start_program({"sh", "-c", command})), 0) << closed;
  }
  EXPECT_EQ(contents(directory_ + "/came.1"), "there\nthere\nthere\n");
}

TEST_F(Launcher, SignalsArePassedOnToEveryRanksGroup) {
  const pid_t launcher = start({"-n", "2", "sh", "-c",
                                "trap 'echo got; exit 0' USR1; echo $$ > $D/rank.$EPCCL_RANK; "
                                "while :; do sleep 0.05; done"});
  pid_from("rank.0");
  pid_from("rank.1");
  // The trap is set before the pid is written; but a signal that hits `sleep` ends only that.
  kill(launcher, SIGUSR1);
  EXPECT_EQ(wait(launcher), 0);
  EXPECT_EQ(out(), "got\ngot\n");
}

TEST_F(Launcher, InterruptEndsRanksThatDoNotHandleIt) {
  const pid_t launcher = start({"-n", "3", "sh", "-c", sleeper});
  for (int rank = 0; rank < 3; ++rank) pid_from(fmt::format("rank.{}", rank));
  kill(launcher, SIGINT);
  EXPECT_EQ(wait(launcher), 128 + SIGINT);
}

TEST_F(Launcher, SecondInterruptEndsRanksThatIgnoreIt) {
  const pid_t launcher =
      start({"-n", "2", "--grace", "0", "sh", "-c",
             "trap '' INT TERM; echo $$ > $D/rank.$EPCCL_RANK; while :; do sleep 0.05; done"});
  const pid_t first = pid_from("rank.0"), second = pid_from("rank.1");
  kill(launcher, SIGINT);
  usleep(100'000);
  EXPECT_TRUE(alive(first) && alive(second)) << "the first one is theirs to ignore";
  // Two that come at once are one to a process that has not run in between.
  ASSERT_TRUE(eventually([&] {
    kill(launcher, SIGINT);
    usleep(100'000);
    return !alive(launcher);
  }));
  EXPECT_EQ(wait(launcher), 128 + SIGINT);
  EXPECT_FALSE(alive(first) || alive(second));
}

TEST_F(Launcher, TimeoutEndsTheJob) {
  EXPECT_EQ(run({"-n", "2", "--timeout", "10", "sh", "-c", sleeper}), 124);
  EXPECT_NE(err().find("2 of 2 ranks still run after 10 s"), std::string::npos) << err();
  EXPECT_FALSE(alive(pid_from("rank.0")));
}

TEST_F(Launcher, ProgramThatIsNotThereIsNamed) {
  EXPECT_EQ(run({"-n", "4", "/no/such/program"}), 127);
  EXPECT_NE(err().find("running /no/such/program: No such file or directory"), std::string::npos) << err();
}

TEST_F(Launcher, TakesMpirunsNameForTheNumberOfRanksAndLeavesTheProgramsOwn) {
  EXPECT_EQ(run({"--tag-output", "--timeout", "60", "-np", "1", "sh", "-c", "echo $EPCCL_WORLD_SIZE $0 $1",
                 "-np", "7"}),
            0);
  EXPECT_EQ(out(), "[0] 1 -np 7\n");
  EXPECT_EQ(run({"-np", "1", "--", "sh", "-c", "echo $0 $1", "-np", "7"}), 0);
  EXPECT_EQ(out(), "-np 7\n");
}

TEST_F(Launcher, MistakesAreExplained) {
  const std::vector<std::pair<Lines, std::string>> cases = {
      {{"true"}, "how many ranks"},
      {{"-n", "2"}, "no program"},
      {{"-n", "0", "true"}, "--ranks: Value 0"},
      {{"-n", "x", "true"}, "--ranks: Value x"},
      {{"-n", "2", "--nodes", "3", "true"}, "2 ranks cannot fill 3 nodes"},
      {{"-n", "2", "--ranks-per-node", "1,3", "true"}, "adds up to 4, not to -n 2"},
      {{"--nodes", "3", "--ranks-per-node", "1,3", "true"}, "lists 2 nodes, --nodes says 3"},
      {{"-n", "1", "--env", "NOT_SET_HERE", "true"}, "--env NOT_SET_HERE: that variable is not set here"},
      {{"-n", "1", "--env", "=x", "true"}, "--env =x: want NAME=VALUE"},
      {{"-n", "2", "--nodes", "2", "--env", "EPCCL_HOSTID=zz", "true"},
       "--env EPCCL_HOSTID=zz: that variable epccl-run sets itself"},
      {{"--env", "EPCCL_HOSTID=zz", "--ranks-per-node", "1,1", "true"},
       "--env EPCCL_HOSTID=zz: that variable epccl-run sets itself"},
      {{"--ranks-per-node", "3,", "true"}, "--ranks-per-node 3,: want numbers from 1"},
      {{"--ranks-per-node", "3,0", "true"}, "--ranks-per-node 3,0: want numbers from 1"},
      {{"--ranks-per-node", "3;5", "true"}, "--ranks-per-node 3;5: want numbers from 1"},
      {{"-n", "1", "--env", "EPCCL_RANK=3", "true"},
       "--env EPCCL_RANK=3: that variable epccl-run sets itself"},
      {{"--nosuchoption", "-n", "1", "true"}, "unknown option --nosuchoption"},
      {{"-n", "1", "--nosuchoption", "true"}, "unknown option --nosuchoption"},
      {{"--nosuchoption"}, "unknown option --nosuchoption"},
      {{"-n", "1", "--timeout", "nan", "true"}, "--timeout nan: want seconds"},
      {{"-n", "1", "--grace", "-1", "true"}, "--grace -1: want seconds"},
  };
  for (const auto& [arguments, part] : cases) {
    EXPECT_EQ(run(arguments), 2) << part;
    EXPECT_NE(err().find(part), std::string::npos) << err();
    EXPECT_EQ(err().find("epccl-run: "), 0U) << err();
    EXPECT_EQ(err().find('\n'), err().size() - 1) << "more than a line: " << err();
  }
}

TEST_F(Launcher, ProgramWhoseNameLooksLikeAnOptionComesBehindTwoDashes) {
  EXPECT_EQ(run({"-n", "1", "--", "-nosuchprogram"}), 127);
  EXPECT_NE(err().find("running -nosuchprogram"), std::string::npos) << err();
}

}  // namespace
}  // namespace epccl::test
