// Package faultlab is for tests that need real processes to kill, stop and
// starve. The test binary runs itself: a test starts a [Job] of N processes, each
// of which plays a role that the binary's TestMain offers to [Hook], reports what
// it sees as JSON lines and takes words from the test. The test ends, stops and
// resumes them by process id.
//
//	func TestMain(m *testing.M) {
//		if code, child := faultlab.Hook(roles()); child {
//			os.Exit(code)
//		}
//		os.Exit(m.Run())
//	}
//
// Everything is bounded: a job has a deadline, after which a wait for a report
// fails the test, and whatever is left of it is killed when the test ends. A
// process ends with the test process, however that ends.
//
// It stands beside the rooms that it tests and is imported by tests only.
package faultlab
