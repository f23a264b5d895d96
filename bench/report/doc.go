// Package report turns the lines of `goshmem bench -json` into pages that people
// look at, and compares two runs.
//
// A file holds results, one JSON object a line, of any number of programs, runs
// and machines. Lines of one figure are samples of it: the median of their medians
// is shown, and [Compare] tests whether two files differ.
package report
