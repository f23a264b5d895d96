// Package devicetest holds the tests that every device driver passes, and the
// kernels that tests and benchmarks on a GPU launch.
package devicetest
