// Package kernels holds the device code of dispatch and combine, what lies where
// in device memory, and the line between an engine and what runs the code.
//
// kernels.cu is shipped as PTX, made by `make ptx-moe`, with the hash of its source
// in front; a test fails where they do not belong together. emulate.h compiles the
// same source as C++, every GPU thread a fiber, so that tests run it where there is
// no GPU (package emulated).
package kernels
