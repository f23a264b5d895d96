// Package options is the table of the runtime's options, and everything that is
// made from it: the parser of the GOSHMEM_* environment, the printout of
// `goshmem info`, and the page docs/options.md. An option exists nowhere else.
//
// A value is taken from the caller's struct (a field that is not zero), else
// from the environment (a variable that is not empty), else from the default.
// Package pe resolves the options once, at Join. The package is pure: it is given
// the environment, reads no file and prints nothing by itself.
package options
