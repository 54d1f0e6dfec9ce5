// The comparison of binary interfaces.
#include <gtest/gtest.h>

#include <string>

#include "tests/package/installation.h"

namespace bindery {
namespace {

class Abi : public Installation {};

TEST_F(Abi, AnotherLayoutWantsAnotherNumber) {
  if (!Has("abidiff")) GTEST_SKIP() << "there is no abidiff";
  const std::string abi = "'" + Root() + "/tools/abi.sh' --stored described --prefix ";
  // Of a few headers, as describing all of them takes a while.
  Sh("cp -r moved few && cd few/include/bindery && rm -r predict.h engine executor kvstore symbol train && "
     "printf '#include \"bindery/%s\"\\n' base/*.h > bindery.h");
  Sh("cp -r few changed");
  EXPECT_NE(Shell(abi + "few").err.find("nothing is described"), std::string::npos);
  Sh(abi + "few --store");
  EXPECT_NE(Sh(abi + "few").find("nothing that programs were built against has changed"), std::string::npos);
  Sh("sed -i 's/^  int rank_ = 0;/  int another_ = 0, rank_ = 0;/' changed/include/bindery/base/shape.h");
  const Outcome outcome = Shell(abi + "changed");
  EXPECT_EQ(outcome.status, 1) << outcome;
  EXPECT_NE(outcome.out.find("1 data member insertion"), std::string::npos) << outcome;
  EXPECT_NE(outcome.err.find("raise BINDERY_VERSION_ABI"), std::string::npos) << outcome;
  Sh("sed -i 's/BINDERY_VERSION_ABI 0/BINDERY_VERSION_ABI 1/' changed/include/bindery/version.h");
  EXPECT_NE(Sh(abi + "changed").find("number 1, and 0 is described"), std::string::npos);
}

// What is listed of headers can be compiled, whatever their namespaces are.
TEST_F(Abi, DescribesAllThatIsInstalled) {
  if (!Has("abidw")) GTEST_SKIP() << "there is no abidw";
  EXPECT_NE(Sh("'" + Root() + "/tools/abi.sh' --store --stored all --prefix moved")
                .find("c_api libbindery_predict libbindery types"),
            std::string::npos);
  const std::string types = Sh("xz --decompress --stdout all/types.abi.xz");
  for (const char* type : {"Shape", "Trainer", "TapeScope", "NDArray"}) {
    EXPECT_NE(types.find("<class-decl name='" + std::string(type) + "' "), std::string::npos) << type;
  }
}

// The C interface of this version is described in tools/package/abi: another is another number, or an addition.
TEST_F(Abi, TheCInterfaceIsAsDescribed) {
  if (!Has("abidiff")) GTEST_SKIP() << "there is no abidiff";
  const std::string abi = "'" + Root() + "/tools/abi.sh' --c-interface --prefix ";
  EXPECT_NE(Sh(abi + "moved").find("nothing that programs were built against has changed: c_api"), std::string::npos);
  Sh("mkdir -p c/include && cp -r moved/include/bindery c/include");
  const std::string header = "c/include/bindery/c_api.h";
  Sh("echo 'bindery_status bindery_more(int32_t number);' >> " + header);
  Sh(abi + "c");
  struct Case {
    std::string edit, message;
  };
  for (const Case& change :
       {Case{"s/int32_t calls; .*/int32_t calls, more;/", "1 data member insertion"},
        Case{"s/bindery_predictor_free(bindery_predictor/bindery_predictor_end(bindery_predictor/", "1 Removed"}}) {
    Sh("cp moved/include/bindery/c_api.h c/include/bindery && sed -i '" + change.edit + "' " + header);
    const Outcome outcome = Shell(abi + "c");
    EXPECT_EQ(outcome.status, 1) << outcome;
    EXPECT_NE(outcome.out.find(change.message), std::string::npos) << outcome;
    EXPECT_NE(outcome.err.find("raise BINDERY_VERSION_ABI"), std::string::npos) << outcome;
  }
}

}  // namespace
}  // namespace bindery
