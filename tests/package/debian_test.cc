// The Debian packages: what their control fields say, which files are in which, and that they are whole when unpacked.
// tools/package_check.sh installs and removes them by apt on a bare system, as root.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "tests/package/installation.h"

namespace bindery {
namespace {

const std::string kPackages[] = {"libbindery-predict0", "libbindery0", "libbindery-dev", "bindery"};

class Debian : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!(there_ = Has("dpkg-deb") && Has("dpkg-shlibdeps") && Has("dpkg-architecture"))) return;
    // Quick, and larger.
    const std::string made = Sh("DPKG_DEB_COMPRESSOR_TYPE=none DEBFULLNAME='A. Packager' DEBEMAIL=a@example.org '" +
                                Root() + "/tools/package.sh' --built '" + Root() + "' --output packages");
    EXPECT_EQ(LinesOf(made).size(), std::size(kPackages)) << made;
    Sh("for package in packages/*.deb; do dpkg-deb -x $package unpacked; done");
    libraries_ = LinesOf(Sh("echo unpacked/usr/lib/$(dpkg-architecture --query DEB_HOST_MULTIARCH)")).at(0);
  }
  static void TearDownTestSuite() {
    for (const char* folder : {"packages", "unpacked"}) std::filesystem::remove_all(Scratch() + "/" + folder);
  }
  void SetUp() override {
    if (!there_) GTEST_SKIP() << "there is no dpkg-deb, dpkg-shlibdeps or dpkg-architecture";
  }

  static std::string FileOf(const std::string& package) { return "packages/" + package + "_*.deb"; }
  static std::string Field(const std::string& package, const std::string& name) {
    const std::string value = Sh("dpkg-deb -f " + FileOf(package) + " " + name);
    return value.substr(0, value.find('\n'));
  }
  static bool Depends(const std::string& package, const std::string& on) {
    return (", " + Field(package, "Depends") + ",").find(", " + on) != std::string::npos;
  }
  // The loader does not know the folder where they are unpacked.
  static std::string Run(const std::string& command) { return Sh("LD_LIBRARY_PATH=" + libraries_ + " " + command); }

  static bool there_;
  static std::string libraries_;
};
bool Debian::there_ = false;
std::string Debian::libraries_;

TEST_F(Debian, ControlFields) {
  const std::string version = LinesOf(Run("unpacked/usr/bin/bindery --version")).at(0).substr(8);
  const std::string architecture = LinesOf(Sh("dpkg --print-architecture")).at(0);
  for (const std::string& package : kPackages) {
    EXPECT_EQ(Field(package, "Package"), package);
    EXPECT_EQ(Field(package, "Version"), version) << package;
    EXPECT_EQ(Field(package, "Architecture"), architecture) << package;
    EXPECT_EQ(Field(package, "Maintainer"), "A. Packager <a@example.org>") << package;
    EXPECT_GT(std::stoi("0" + Field(package, "Installed-Size")), 500) << package;
    EXPECT_NE(Field(package, "Description"), "") << package;
    EXPECT_EQ(Field(package, "Multi-Arch") == "same", package.ends_with("0")) << package;
  }
  EXPECT_EQ(Field("libbindery-dev", "Section"), "libdevel");
}

TEST_F(Debian, Dependencies) {
  const std::string same = " (= " + Field("bindery", "Version") + "),";
  for (const std::string& package : kPackages) {
    EXPECT_EQ(Depends(package, "libbindery-predict0" + same), package != "libbindery-predict0") << package;
    EXPECT_EQ(Depends(package, "libc6 (>= "), package != "libbindery-dev") << package;
    const bool on_top = package == "libbindery-dev" || package == "bindery";
    EXPECT_EQ(Depends(package, "libbindery0" + same), on_top) << package;
    // Who only serves a model needs no decoders of images.
    for (const char* images : {"libpng", "libturbojpeg"}) EXPECT_EQ(Depends(package, images), package == "libbindery0");
  }
  EXPECT_TRUE(Depends("libbindery-predict0", "libdnnl"));
  EXPECT_TRUE(Depends("libbindery-dev", "libfmt-dev"));  // which its headers include
  // Programs of others that are packaged find which package they need.
  EXPECT_EQ(Sh("dpkg-deb -I " + FileOf("libbindery0") + " shlibs | cut -d ' ' -f 1-3"), "libbindery 0 libbindery0\n");
  EXPECT_EQ(Sh("dpkg-deb -I " + FileOf("libbindery0") + " triggers"), "activate-noawait ldconfig\n");
}

TEST_F(Debian, Files) {
  std::map<std::string, std::string> owners;  // of files and links, which package has them
  // drwxr-xr-x root/root         0 2026-01-31 12:00 ./usr/lib/
  static const std::regex kLine(R"(([dl-])(\S{9}) (\S+) +\d+ \S+ \S+ \./(\S*)( -> (\S+))?)");
  for (const std::string& package : kPackages) {
    for (const std::string& line : LinesOf(Sh("dpkg-deb -c " + FileOf(package)))) {
      std::smatch match;
      ASSERT_TRUE(std::regex_match(line, match, kLine)) << line;
      const std::string path = match[4];
      EXPECT_TRUE(path.empty() || path.starts_with("usr/")) << package << ": " << line;
      EXPECT_FALSE(path.starts_with("usr/local")) << package << ": " << line;
      EXPECT_EQ(match[3], "root/root") << package << ": " << line;
      if (match[1] == "d") continue;
      const char* mode = match[1] == "l" ? "rwxrwxrwx" : path == "usr/bin/bindery" ? "rwxr-xr-x" : "rw-r--r--";
      EXPECT_EQ(match[2], mode) << package << ": " << line;
      const auto [at, is_new] = owners.emplace(path, package);
      EXPECT_TRUE(is_new) << path << " is in " << at->second << " and in " << package;
    }
    for (const char* name : {"copyright", "changelog.gz"}) {
      EXPECT_EQ(owners["usr/share/doc/" + package + "/" + name], package);
    }
  }
  const std::string libraries = libraries_.substr(libraries_.find('/') + 1) + "/";
  EXPECT_EQ(owners[libraries + "libbindery_predict.so.0"], "libbindery-predict0");
  EXPECT_EQ(owners[libraries + "libbindery.so.0"], "libbindery0");
  for (const std::string& path :
       {libraries + "libbindery.so", libraries + "libbindery_predict.so", libraries + "pkgconfig/bindery.pc",
        libraries + "cmake/Bindery/BinderyConfig.cmake", std::string("usr/include/bindery/bindery.h"),
        std::string("usr/share/bindery/bazel/BUILD.bazel")}) {
    EXPECT_EQ(owners[path], "libbindery-dev") << path;
  }
  for (const char* path : {"bin/bindery", "share/man/man1/bindery.1.gz", "share/bindery/models/lenet.prototxt"}) {
    EXPECT_EQ(owners[std::string("usr/") + path], "bindery") << path;
  }
  // Together they are what is installed without packages, but for the list by which that is removed, the licence and
  // folders that Debian calls otherwise.
  Sh(InstallTo("--destdir plain --prefix /usr --system --libdir '" + libraries.substr(4) + "'"));
  for (std::string path : Tree(Scratch() + "/plain")) {
    if (std::filesystem::is_directory(std::filesystem::symlink_status(Scratch() + "/plain/" + path)) ||
        path.ends_with("/installed_files") || path.ends_with("/LICENSE")) {
      continue;
    }
    path = std::regex_replace(path, std::regex("share/doc/bindery/"), "share/doc/libbindery-dev/");
    path = std::regex_replace(path, std::regex("zsh/site-functions"), "zsh/vendor-completions");
    EXPECT_TRUE(owners.contains(path)) << path << " is in no package";
  }
  std::filesystem::remove_all(Scratch() + "/plain");
}

// Without root; the loader, pkg-config and CMake are told where the root is.
TEST_F(Debian, WhatIsUnpackedIsWhole) {
  for (const std::string& package : kPackages) {
    Sh("dpkg-deb -I ../" + FileOf(package) + " md5sums | md5sum --check --quiet --strict", Scratch() + "/unpacked");
  }
  EXPECT_EQ(Sh("find unpacked -xtype l"), "") << "links that lead nowhere";
  EXPECT_GT(ExpectLinksLeadSomewhere(Scratch() + "/unpacked/usr/share/doc/libbindery-dev"), 20);
  Run("unpacked/usr/bin/bindery train --model mlp --train-digits 200 --test-digits 50 --epochs 1 --checkpoints= "
      "--progress none --save mlp.pb");
  const std::string source = "unpacked/usr/share/doc/libbindery-dev/examples/outside/predict.cc";
  Sh("export PKG_CONFIG_SYSROOT_DIR=$PWD/unpacked PKG_CONFIG_PATH=$PWD/" + libraries_ +
     "/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1\n"
     "g++ -std=c++20 -O0 " +
     source + " -o by_hand $(pkg-config --cflags --libs bindery-predict)");
  Run("./by_hand mlp.pb 1,28,28");
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  Sh("cmake -S unpacked/usr/share/doc/libbindery-dev/examples/outside -B by_cmake "
     "-DCMAKE_PREFIX_PATH=$PWD/unpacked/usr && cmake --build by_cmake --target predict_c");
  Run("by_cmake/predict_c mlp.pb 1,28,28");
}

TEST_F(Debian, WrongUseIsAnError) {
  const std::string package = "'" + Root() + "/tools/package.sh'";
  EXPECT_NE(Shell(package + " --fast").err.find("unknown option --fast"), std::string::npos);
  EXPECT_NE(Shell(package + " --output").err.find("--output needs a value"), std::string::npos);
  const Outcome nothing = Shell(package + " --built nowhere --output none");
  EXPECT_EQ(nothing.status, 1) << nothing;
  EXPECT_NE(nothing.err.find("there is no nowhere/tools/package/libbindery.so"), std::string::npos) << nothing;
}

}  // namespace
}  // namespace bindery
