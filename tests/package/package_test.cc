// What is installed: outside programs, built by other tools than ours, from the headers and libraries alone.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <regex>
#include <string>

#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/package/installation.h"

namespace bindery {
namespace {

class Package : public Installation {
 protected:
  // A folder with the examples that are built outside.
  static std::string Outside(const std::string& name) {
    Sh("cp -r moved/share/doc/bindery/examples/outside " + name);
    return Scratch() + "/" + name;
  }
  static void ExpectPrograms(const std::string& folder) {
    const Outcome train = Shell("./train mlp.pb", folder);
    EXPECT_EQ(train.status, 0) << train;
    int right = 0;
    ASSERT_EQ(std::sscanf(train.out.c_str(), "%d of 1000 digits right", &right), 1) << train;
    EXPECT_GT(right, 900);
    // An exception of the library's type, from below it all.
    EXPECT_NE(train.out.find("as expected: DataError: cannot read \"no-such-file.pb\""), std::string::npos) << train;
    for (const char* program : {"./predict", "./predict_c"}) {
      Sh(std::string(program) + " mlp.pb 1,28,28", folder);
      const Outcome missing = Shell(std::string(program) + " missing.pb 1,28,28", folder);
      EXPECT_EQ(missing.status, 1) << missing;
      EXPECT_NE(missing.err.find("DataError: cannot read \"missing.pb\""), std::string::npos) << missing;
    }
  }
};

TEST_F(Package, Program) {
  EXPECT_EQ(Sh("moved/bin/bindery --version"), Sh("echo bindery $(pkg-config --modversion moved/lib/pkgconfig/*y.pc)"));
  EXPECT_NE(Sh("moved/bin/bindery devices").find("cpu"), std::string::npos);
}

// To headers, examples and other pages; what is not installed is no link.
TEST_F(Package, LinksOfPagesLeadSomewhere) {
  EXPECT_GT(ExpectLinksLeadSomewhere(prefix() + "/share/doc/bindery"), 20);
  const std::string page = ReadText(prefix() + "/share/doc/bindery/docs/models.md");
  EXPECT_NE(page.find("[train/zoo.h](../../../../include/bindery/train/zoo.h)"), std::string::npos);
}

TEST_F(Package, IsRemovedWithoutATrace) {
  const std::string root = Scratch() + "/dest";
  Sh("mkdir -p dest/opt/b/lib && touch dest/opt/b/lib/other.so");
  const Names before = Tree(root);
  Sh(InstallTo("--destdir dest --prefix=/opt/b"));
  const Names installed = Tree(root);
  EXPECT_TRUE(installed.contains("opt/b/lib/libbindery.so"));
  EXPECT_TRUE(installed.contains("opt/b/include/bindery/bindery.h"));
  // An older one had a file that this one has not, and one of its own was lost.
  Sh("echo include/bindery/gone.h >> share/bindery/installed_files && touch include/bindery/gone.h && "
     "rm include/bindery/bindery.h",
     root + "/opt/b");
  Sh(InstallTo("--destdir dest --prefix=/opt/b"));
  EXPECT_EQ(Tree(root), installed);
  Sh("'" + Root() + "/tools/install.sh' --destdir dest --prefix=/opt/b --uninstall");
  EXPECT_EQ(Tree(root), before);

  const Outcome again = Shell("'" + Root() + "/tools/install.sh' --destdir dest --prefix=/opt/b --uninstall");
  EXPECT_EQ(again.status, 1) << again;
  EXPECT_NE(again.err.find("nothing is installed"), std::string::npos) << again;
  // No shell expands ~ behind a =; and where one looks for folders is nothing to the script.
  const Outcome home = Shell("cd '" + Root() + "' && HOME=/no CDPATH=.:.. tools/install.sh --prefix='~/b' --uninstall");
  EXPECT_NE(home.err.find("nothing is installed in /no/b: "), std::string::npos) << home;
  EXPECT_NE(Shell(InstallTo("--prefix /dev/null/x")).status, 0);
  EXPECT_NE(Shell(InstallTo("--libdir ../x --prefix y")).status, 0);
  EXPECT_EQ(Tree(root), before);
}

TEST_F(Package, LibrariesFolderMayBeAnother) {
  Sh(InstallTo("--prefix lib64 --libdir lib/x86_64-linux-gnu"));
  EXPECT_EQ(Sh("PKG_CONFIG_PATH=lib64/lib/x86_64-linux-gnu/pkgconfig pkg-config --exists --print-errors bindery"), "");
  EXPECT_NE(Sh("lib64/bin/bindery --version").find("bindery"), std::string::npos);
  Sh(InstallTo("--prefix other --libdir lib64"));
  EXPECT_NE(Sh("other/bin/bindery --version").find("bindery"), std::string::npos);
  const Outcome unknown = Shell(InstallTo("--prefix third --libdir libraries"));
  EXPECT_EQ(unknown.status, 1) << unknown;
  EXPECT_NE(unknown.err.find("--libdir: the program looks for its libraries in lib, lib64 and "), std::string::npos)
      << unknown;
  EXPECT_TRUE(Tree(Scratch() + "/third").empty());
}

// --- symbols

// Demangled names of what a library exports, by version.
std::map<std::string, Names> Exported(const std::string& library) {
  std::map<std::string, Names> exported;
  for (const std::string& line : LinesOf(Sh("nm -DC --defined-only moved/lib/" + library))) {
    // "0000000000123456 T bindery::Trainer::Save(...)@@BINDERY_0"
    const size_t version = line.rfind("@@");
    if (version == std::string::npos) continue;  // the names of the versions themselves
    exported[line.substr(version + 2)].insert(line.substr(line.find(' ') + 3, version - line.find(' ') - 3));
  }
  return exported;
}

TEST_F(Package, ExportsNothingButTheInterface) {
  static const std::regex kOurs(
      R"((typeinfo |typeinfo name |vtable |VTT |guard variable )?(for )?([a-z ]+ |bindery::\w+[&*]? |std::\S+ )?bindery::.*)");
  for (const char* library : {"libbindery.so", "libbindery_predict.so"}) {
    const auto exported = Exported(library);
    ASSERT_EQ(exported.size(), 2u) << library;
    for (const auto& [version, names] : exported) {
      if (version.starts_with("BINDERY_PRIVATE_")) {
        EXPECT_LT(names.size(), 200u) << library;
        continue;
      }
      EXPECT_EQ(version, "BINDERY_0");
      EXPECT_GT(names.size(), 300u) << library;
      for (const std::string& name : names) {
        EXPECT_TRUE(std::regex_match(name, kOurs) || name.starts_with("bindery_")) << library << " exports " << name;
        EXPECT_EQ(name.find("proto::"), std::string::npos) << library << " exports " << name;
        EXPECT_EQ(name.find("google::"), std::string::npos) << library << " exports " << name;
      }
    }
  }
  EXPECT_TRUE(Exported("libbindery_predict.so")["BINDERY_0"].contains("typeinfo for bindery::ShapeError"));
}

TEST_F(Package, ExportsAllOfTheCInterface) {
  static const std::regex kFunction(R"(\n[a-z][^\n(]*\b(bindery_\w+)\()");
  const std::string header = ReadText(prefix() + "/include/bindery/c_api.h");
  Names declared;
  for (std::sregex_iterator at(header.begin(), header.end(), kFunction); at != std::sregex_iterator(); ++at) {
    declared.insert((*at)[1]);
  }
  EXPECT_GT(declared.size(), 20u);
  Names exported;
  const auto all = Exported("libbindery_predict.so");
  for (const std::string& name : all.at("BINDERY_0")) {
    if (name.starts_with("bindery_")) exported.insert(name);
  }
  EXPECT_EQ(exported, declared);
}

TEST_F(Package, InferenceNeedsNothingOfTraining) {
  const std::string needed = Sh("readelf -d moved/lib/libbindery_predict.so");
  for (const char* library : {"png", "turbojpeg", "libz", "libbindery.so"}) {
    EXPECT_EQ(needed.find(std::string("[lib") + library), std::string::npos) << needed;
    EXPECT_EQ(needed.find(std::string("[") + library), std::string::npos) << needed;
  }
  EXPECT_EQ(Sh("readelf -d moved/lib/libbindery.so | grep -c 'NEEDED.*libbindery_predict.so.0'"), "1\n");
}

// --- outside programs

TEST_F(Package, OutsideProgramsByPkgConfig) {
  const std::string folder = Outside("by_make");
  Sh("PKG_CONFIG_PATH='" + prefix() + "/lib/pkgconfig' make -j2 CXXFLAGS='-std=c++20 -O0 -Wall -Wextra -Werror'",
     folder);
  ExpectPrograms(folder);
}

TEST_F(Package, OutsideProgramsByCMake) {
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  const std::string folder = Outside("by_cmake");
  Sh("cmake -S . -B build -DCMAKE_PREFIX_PATH='" + prefix() + "' && cmake --build build --parallel 2", folder);
  ExpectPrograms(folder + "/build");
  // Another series is another interface.
  const Outcome outcome =
      Shell("sed -i 's/Bindery 0.1/Bindery 0.2/' CMakeLists.txt && cmake -S . -B other -DCMAKE_PREFIX_PATH='" +
                prefix() + "'",
            folder);
  EXPECT_NE(outcome.status, 0) << outcome;
}

// Attributes' descriptors are objects that program and library share, whatever the program hides.
TEST_F(Package, AnOperatorOfAProgramThatHidesItsSymbols) {
  Sh("g++ -std=c++20 -O1 -fvisibility=hidden -fvisibility-inlines-hidden -I moved/include "
     "moved/share/doc/bindery/examples/custom_operator.cc -o custom_operator -L moved/lib -lbindery -lbindery_predict "
     "-lfmt -Wl,-rpath,moved/lib");
  EXPECT_NE(Sh("./custom_operator").find("epoch 20: test accuracy 0.9"), std::string::npos);
}

TEST_F(Package, CInterfaceFromPython) {
  if (!Has("python3")) GTEST_SKIP() << "there is no python3";
  const Model model{.symbol = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "softmax"),
                    .params = {{"fc_weight", HostTensor::From({3, 2}, {1, 0, 0, 1, 1, 1})},
                               {"fc_bias", HostTensor::From({3}, {0, 0, -1})}}};
  SaveModel(model, Scratch() + "/small.pb");
  const std::string out = Sh("python3 '" + Root() + "/tests/package/ctypes_check.py' '" + prefix() +
                             "/lib/libbindery_predict.so.0' small.pb");
  EXPECT_NE(out.find("ok "), std::string::npos) << out;
}

}  // namespace
}  // namespace bindery
