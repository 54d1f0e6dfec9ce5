// Requests as no library makes them: what is not read of one must not be taken for the next.
#include <gtest/gtest.h>

#include <string>

#include "tests/examples/server/running.h"

namespace bindery::server {
namespace {

constexpr const char* kPredict = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
const std::string kInner = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

std::string LengthOf(const std::string& body) { return "Content-Length: " + std::to_string(body.size()) + "\r\n"; }

// One answer to a head and what comes behind it, whole, and the end: before an idle connection would have ended.
void ExpectOneAnswer(const Running& server, const std::string& head, const std::string& status) {
  const RawConnection connection(server.port());
  const auto begin = std::chrono::steady_clock::now();
  connection.Send(head + "\r\n");
  std::this_thread::sleep_for(50ms);  // one by one: the library drops what came together with a head
  connection.Send(kInner);
  const std::string answers = connection.Read("what nobody says");
  EXPECT_TRUE(answers.starts_with("HTTP/1.1 " + status)) << head << answers;
  EXPECT_EQ(answers.find("HTTP/1.1", 1), std::string::npos) << head << answers;
  EXPECT_NE(answers.find("Connection: close"), std::string::npos) << head << answers;
  EXPECT_TRUE(answers.ends_with(head.starts_with("HEAD") ? "\r\n\r\n" : "}")) << head << answers;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s) << head;
}

ServerOptions Patient() {
  ServerOptions options = Quick();
  options.read_seconds = 5;
  return options;
}

TEST(Bodies, ThatAreNotReadAreNoRequests) {
  const Running server(TwoHeads(), Patient());
  const std::string length = LengthOf(kInner);
  ExpectOneAnswer(server, kPredict + std::string("Transfer-Encoding: chunked\r\n"), "411");
  ExpectOneAnswer(server, kPredict + std::string("Content-Encoding: gzip\r\n") + length, "415");
  ExpectOneAnswer(server, kPredict + std::string("Content-Length: 0\r\n") + length, "400");
  ExpectOneAnswer(server, kPredict + std::string("Content-Length: none\r\n"), "400");
  ExpectOneAnswer(server, kPredict, "411");
  ExpectOneAnswer(server, kPredict + std::string("Range: first\r\n") + length, "416");
  for (const char* const method : {"GET", "HEAD"}) {
    ExpectOneAnswer(server, method + std::string(" /healthz HTTP/1.1\r\nHost: x\r\n") + length, "400");
  }
  for (const char* const method : {"OPTIONS", "PUT", "DELETE", "PRI"}) {
    ExpectOneAnswer(server, method + std::string(" /predict HTTP/1.1\r\nHost: x\r\n") + length, "404");
  }
  ExpectOneAnswer(server, "MOVE /predict HTTP/1.1\r\nHost: x\r\n" + length, "400");
  ExpectOneAnswer(
      server, "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n" + length, "415");
}

// A client that says the rest later than the server waits for it.
TEST(Bodies, ThatComeLateAreNoRequests) {
  const Running server(TwoHeads());
  const RawConnection slow(server.port());
  slow.Send(kPredict + LengthOf(kInner + "{") + "\r\n{");
  EXPECT_TRUE(slow.Read("}").starts_with("HTTP/1.1 400"));
  send(slow.get(), kInner.data(), kInner.size(), MSG_NOSIGNAL);
  EXPECT_EQ(slow.Read("}"), "");
}

// Whoever is wrong about the data goes on on the same connection.
TEST(Bodies, ThatAreReadKeepTheConnection) {
  const Running server(TwoHeads());
  const RawConnection connection(server.port());
  const auto ask = [&](const std::string& request) {
    connection.Send(request);
    return connection.Read("}").substr(0, 12);
  };
  const std::string body = "{\"data\": [1, 2, 3]}";
  EXPECT_EQ(ask(kPredict + LengthOf("{") + "\r\n{"), "HTTP/1.1 400");
  EXPECT_EQ(ask("POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n" + LengthOf(body) + "\r\n" + body),
            "HTTP/1.1 415");
  EXPECT_EQ(ask("POST /elsewhere HTTP/1.1\r\nHost: x\r\n" + LengthOf(body) + "\r\n" + body), "HTTP/1.1 404");
  EXPECT_EQ(ask("GET /absent HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(ask(kPredict + LengthOf(body) + "\r\n" + body), "HTTP/1.1 200");
}

TEST(Bodies, OfOtherTypesAreSaidToBe) {
  const Running server(TwoHeads());
  const std::string wrong = "415 Content-Type: expected application/json or application/octet-stream, got ";
  const std::string large(9000, 'x');  // more than the library takes of a form; all of a prediction fits
  ServerOptions options = Quick();
  options.batcher.max_batch = 64;
  const Running roomy(TwoHeads(), options);
  EXPECT_EQ(roomy.Post(large, "application/x-www-form-urlencoded"), wrong + "\"application/x-www-form-urlencoded\"");
  EXPECT_EQ(server.Post("x", "multipart/form-data; boundary=y"), wrong + "\"multipart/form-data\"");
  EXPECT_EQ(server.Post("{\"data\": [1, 2, 3]}", "Application/JSON; charset=UTF-8"), "200");
  // What is quoted of a body is its beginning.
  EXPECT_LT(roomy.Post("{\"data\": \"" + large + "\1\"}").size(), 400u);
}

TEST(Bodies, OfAnswersAreWhole) {
  const Running server(TwoHeads());
  const std::string body = "{\"data\": [1, 2, 3]}";
  const httplib::Headers parts = {{"Range", "bytes=0-,0-,0-,1-2"}};
  const httplib::Result answer = server.Client().Post("/predict", parts, body, kJson);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_TRUE(Json::parse(answer->body).contains("outputs"));
}

}  // namespace
}  // namespace bindery::server
