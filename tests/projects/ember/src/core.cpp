extern "C" int ember_answer() { return 42; }
