// Prints each pickle of the command line as one line of JSON that loses nothing, for pickle_python_test.py; or "error: ..." .
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/pickle_reader.h"

namespace {

using trireme::pickle::Kind;
using trireme::pickle::Value;

void hex(const char* tag, std::string_view bytes) {
  std::printf("{\"%s\":\"", tag);
  for (const char c : bytes) std::printf("%02x", static_cast<unsigned char>(c));
  std::printf("\"}");
}

void print(const Value& value, int depth) {
  if (depth > 1100) {  // a list that holds itself
    std::printf("null");
    return;
  }
  const auto all = [&](const char* tag) {
    std::printf("{\"%s\":[", tag);
    for (size_t i = 0; i < value.items.size(); ++i) {
      std::printf(i == 0 ? "" : ",");
      print(*value.items[i], depth + 1);
    }
    std::printf("]}");
  };
  switch (value.kind) {
    case Kind::kNone:
      std::printf("null");
      break;
    case Kind::kBool:
      std::printf(value.integer != 0 ? "true" : "false");
      break;
    case Kind::kInt:
      std::printf("{\"i\":\"%lld\"}", static_cast<long long>(value.integer));
      break;
    case Kind::kBigInt:
      hex("I", value.text);
      break;
    case Kind::kFloat:
      std::printf("{\"f\":\"%a\"}", value.real);
      break;
    case Kind::kStr:
      hex("s", value.text);
      break;
    case Kind::kBytes:
      hex("b", value.text);
      break;
    case Kind::kList:
      all("l");
      break;
    case Kind::kTuple:
      all("t");
      break;
    case Kind::kSet:
      all("S");
      break;
    case Kind::kDict:
      all("d");
      break;
    case Kind::kObject:
      hex("o", value.text);
      break;
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    auto bytes =
        std::make_shared<const std::string>(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    const auto document = trireme::pickle::read(bytes);
    if (document.ok()) {
      print(document.value()->root(), 0);
      std::printf("\n");
    } else {
      std::printf("error: %s\n", document.reason().c_str());
    }
  }
  return 0;
}
